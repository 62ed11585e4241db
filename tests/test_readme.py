"""What the README says to run is there, and its Python runs."""

import re
import subprocess

import pytest

from tests.forked_trainings import start_command, wait_for
from tests.paths import PAGES, ROOT, SCRIPTS
from tests.test_documented_commands import blocks, commands
from tests.tiny_data import write_tiny_data

README = PAGES[0].read_text(encoding="utf-8")
TRAINING = (ROOT / "docs/train.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_to_files(page):
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#:]+)\)", text):
        assert (page.parent / target).exists(), target


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


def test_the_training_command_runs(tmp_path):
    """As printed, on other data, and smaller; without a GPU, as it says, by --cpu."""
    (words,) = [w for w in commands(TRAINING) if w[:1] == ["fairseq-train"]]
    data = write_tiny_data(tmp_path / "data")
    smaller = ["--embed-dim", "32", "--num-heads", "1", "--max-update", "1", "--cpu"]
    words = [*words[2:], *smaller, "--save-dir", tmp_path / "run"]
    training = start_command("train", [data, *words], tmp_path / "log", ROOT)
    assert wait_for([training]) == [0], (tmp_path / "log").read_text()[-2000:]
    assert (tmp_path / "run/checkpoint_best.pt").exists()


def test_the_plain_pytorch_example_runs():
    (example,) = [b for b in blocks("python", README) if "import torch" in b]
    exec(compile(example, "README.md", "exec"), {"__name__": "__main__"})


@pytest.mark.parametrize("script", sorted(SCRIPTS.glob("*.sh")), ids=lambda p: p.name)
def test_every_script_is_valid_shell(script):
    subprocess.run(["bash", "-n", script], check=True)
