"""What the README says to run is there, and its Python runs."""

import importlib.util
import re
import shlex
import subprocess

import pytest

from benchmarks import report
from tests.forked_trainings import start_command, wait_for
from tests.messages import process_refuses
from tests.paths import PAGES, ROOT
from tests.tiny_data import write_tiny_data

README = PAGES[0].read_text(encoding="utf-8")
TRAINING = (ROOT / "docs/train.md").read_text(encoding="utf-8")


def blocks(language: str, text: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, flags=re.S)


def commands(text: str) -> list[list[str]]:
    """The commands of a page's shell blocks, continued lines joined."""
    found = []
    for block in blocks("bash", text):
        for line in block.replace("\\\n", " ").splitlines():
            words = shlex.split(line.partition(" #")[0], comments=True)
            if words:
                found.append(words)
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_to_files(page):
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#:]+)\)", text):
        assert (page.parent / target).exists(), target


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if any(commands(page.read_text(encoding="utf-8")))],
    ids=lambda p: str(p.relative_to(ROOT)),
)
def test_scripts_and_modules_exist(page):
    for words in commands(page.read_text(encoding="utf-8")):
        for word in words:
            if re.fullmatch(r"scripts/\w+\.(sh|py)", word):
                assert (ROOT / word).exists(), words
        if words[:2] == ["python", "-m"] and words[2] != "pytest":
            assert importlib.util.find_spec(words[2]) is not None, words


def test_nothing_is_left_to_fill_in():
    for page in PAGES:
        assert "@@" not in page.read_text(encoding="utf-8"), page


def test_architectures_and_configurations_exist():
    from fairseq.models import ARCH_MODEL_REGISTRY

    import fairseq_transnormer.plugin.models  # noqa: F401 (registers them)

    text = README + TRAINING
    named = set(re.findall(r"`((?:roberta_)?transnormer_t\w+)`", text))
    named |= set(re.findall(r"--arch (\w+)", text))
    assert len(named) >= 8 and named <= set(ARCH_MODEL_REGISTRY)
    for name in re.findall(r"--config-name (\w+)", text):
        assert (ROOT / "configs" / f"{name}.yaml").exists()


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_sentences_are_short(page):
    text = page.read_text(encoding="utf-8")
    prose = re.sub(r"```.*?```|^\|.*?$|^    .*?$", "\n\n", text, flags=re.S | re.M)
    prose = re.sub(r"`[^`]*`", "code", re.sub(r"\]\([^)]*\)", "]", prose))
    sentences = re.split(r"[.!?:;][\])*]*\s|\n\s*\n|\n[*#]|\n\d\.", prose)
    words = [re.findall(r"\S*\w\S*", sentence) for sentence in sentences]
    longest = max(words, key=len)
    assert len(longest) <= 25, " ".join(longest)


def test_the_readme_counts_the_verdicts():
    page = (ROOT / "docs/claims.md").read_text(encoding="utf-8")
    first = page.split("\n## ")[1]
    counts = dict(re.findall(r"^### ([a-z ]+) \((\d+)\)", first, re.M))
    total = sum(map(int, counts.values()))
    assert (
        f"Of the paper's {total} claims, at our small size, {counts['holds in kind']} "
        f"hold in kind, {counts['contradicted']} are contradicted, "
        f"{counts['not separated']} are not separated and {counts['not run']} "
        "was not run"
    ) in " ".join(README.split())


def test_the_readme_names_the_gpus_that_were_measured():
    runs = report.runs_of([ROOT / "results/gpu"]).values()
    names = {run["environment"]["device"] for run in runs}
    assert len(names) == 2
    for name in names:
        assert re.search(r"[A-Z]+\d+", name)[0] in README


def test_the_training_command_runs(tmp_path):
    """As printed, on other data, and smaller; without a GPU, as it says, by --cpu."""
    (words,) = [w for w in commands(TRAINING) if w[0] == "fairseq-train"]
    data = write_tiny_data(tmp_path / "data")
    smaller = ["--embed-dim", "32", "--num-heads", "1", "--max-update", "1", "--cpu"]
    words = [*words[2:], *smaller, "--save-dir", tmp_path / "run"]
    training = start_command("train", [data, *words], tmp_path / "log", ROOT)
    assert wait_for([training]) == [0], (tmp_path / "log").read_text()[-2000:]
    assert (tmp_path / "run/checkpoint_best.pt").exists()


def test_the_plain_pytorch_example_runs():
    (example,) = [b for b in blocks("python", README) if "import torch" in b]
    exec(compile(example, "README.md", "exec"), {"__name__": "__main__"})


@pytest.mark.parametrize(
    "script",
    sorted(p.name for p in ROOT.glob("scripts/*.sh") if p.name != "train.sh"),
)
def test_every_script_is_valid_shell(script):
    subprocess.run(["bash", "-n", ROOT / "scripts" / script], check=True)


LOG = """2026-01-01 00:00:00 | INFO | fairseq.trainer | Loaded checkpoint runs/x.pt \
(epoch 1 @ 40 updates)
2026-01-01 00:00:00 | INFO | train_inner | epoch 001:     50 / 220 loss=9.275, \
ppl=619.35, wps=750.6, ups=0.4, wpb=2048, num_updates=50, lr=0.001, gnorm=0.6
2026-01-01 00:00:00 | INFO | valid | epoch 001 | valid on 'valid' subset | loss 7.5 | \
ppl 181.02 | wps 2000 | num_updates 100 | best_loss 7.5
"""


def test_the_quickstart_shows_one_unit():
    """Perplexity in the training's lines."""
    script = (ROOT / "scripts/quickstart.sh").read_text()
    (progress,) = re.findall(r"^progress='(.*?)'$", script, re.S | re.M)
    shown = subprocess.run(
        ["sed", "-n", "-E", progress],
        **{"input": LOG, "capture_output": True, "text": True, "check": True},
    )
    assert shown.stdout.splitlines() == [
        "resumed at update 40",
        "update 50: training perplexity 619.35, 750.6 tokens a second",
        "update 100: validation perplexity 181.02",
    ]


def test_quickstart_refuses_what_it_cannot_do():
    allowed = ("transnormer_t1", "transnormer_t2")
    for arguments, parts in (
        (["--arch", "transformer"], ["--arch 'transformer'", *allowed]),
        (["--updates", "9"], ["--updates '9'", "from 10"]),
        (["--fast"], ["'--fast'", "--help"]),
    ):
        done = subprocess.run(
            ["bash", ROOT / "scripts/quickstart.sh", *arguments],
            capture_output=True,
            text=True,
        )
        process_refuses(done, *parts, alone=True)
    help_text = subprocess.run(
        ["bash", ROOT / "scripts/quickstart.sh", "--help"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "usage: scripts/quickstart.sh" in help_text and "set -e" not in help_text
