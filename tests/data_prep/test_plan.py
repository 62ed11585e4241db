"""Vocabulary, model and training follow from the text, within bounds."""

import subprocess

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from data_prep.own_text.plan import Sizes, openings, plan_for
from fairseq_transnormer.training import launch
from fairseq_transnormer.training.config import get
from tests.inference.models import sentences
from tests.messages import assert_names, command_refuses, refuses

from .commands import plan as command

RULE = Sizes()


def parameters(plan):
    """Of the layers, about."""
    return 12 * plan.layers * plan.width**2


def counts_of(characters, alphabet=80):
    return {
        "characters": characters,
        "different_characters": alphabet,
        "frequent_characters": min(alphabet, 3 * alphabet // 4 + 10),
    }


@given(
    characters=st.integers(2_000, 10**11),
    alphabet=st.integers(2, 20_000),
    has_gpu=st.booleans(),
)
@settings(max_examples=200, deadline=None)
def test_any_text_has_a_plan(characters, alphabet, has_gpu):
    plan = plan_for(counts_of(characters, alphabet), has_gpu, RULE)
    # sentencepiece needs an entry for each byte and for each character that is covered
    covered = alphabet if plan.coverage == 1 else 3 * alphabet // 4 + 10
    assert plan.vocab_size >= 261 + min(alphabet, covered)
    assert plan.vocab_size % 8 == plan.width % 64 == plan.layers % 2 == 0
    assert 200 <= plan.updates <= (50_000 if has_gpu else 2_000)
    assert 1 <= plan.batch_size <= (64 if has_gpu else 8)
    assert has_gpu or parameters(plan) <= 3_145_728
    # no layer parameter without a quarter of a token, but in the smallest model
    smallest = parameters(plan) == 12 * 2 * 64**2
    assert smallest or parameters(plan) <= 4 * characters / 1.5


def test_more_text_makes_more_of_everything():
    plans = [plan_for(counts_of(10**n), 1, RULE) for n in range(4, 10)]
    for name in ("vocab_size", "updates", "tokens_per_sample"):
        values = [getattr(plan, name) for plan in plans]
        assert values == sorted(values), name
    sizes = [*map(parameters, plans)]
    assert sizes == sorted(sizes)
    assert plans[0].width == 64 and plans[-1].width == 768


def test_vocabulary_grows_with_the_square_root():
    one, four = (plan_for(counts_of(n * 10**6), 0, RULE) for n in (1, 4))
    assert one.vocab_size == -(-(261 + 3_000) // 8) * 8
    assert four.vocab_size - 261 == pytest.approx(2 * (one.vocab_size - 261), rel=0.01)


def test_large_scripts_keep_frequent_characters():
    plan = plan_for(counts_of(10**6, 6_000), 0, RULE)
    assert plan.coverage == 0.9995
    assert plan.vocab_size > 2 * counts_of(10**6, 6_000)["frequent_characters"]
    assert plan_for(counts_of(10**6, 900), 0, RULE).coverage == 1.0


def test_values_can_be_chosen():
    chosen = Sizes(width=128, updates=7, tokens_per_sample=64)
    plan = plan_for(counts_of(10**6), 0, chosen)
    assert (plan.width, plan.updates, plan.tokens_per_sample) == (128, 7, 64)
    rule = plan_for(counts_of(10**6), 0, RULE)
    assert (plan.lr, plan.layers) == (rule.lr, rule.layers)
    assert "lr_scheduler.warmup_updates=1" in plan.words(0)["train"]
    faster = plan_for(counts_of(10**6), 0, Sizes(lr=0.004))
    assert "optimization.lr=[0.004]" in faster.words(0)["train"]
    # an update of shorter sequences has more of them, and one with fewer more updates
    half = plan_for(counts_of(4 * 10**5), 0, Sizes(batch_size=4))
    full = plan_for(counts_of(4 * 10**5), 0, RULE)
    assert half.updates == pytest.approx(
        min(2000, full.updates * full.batch_size / 4), abs=1
    )


@pytest.mark.parametrize(
    ("chosen", "parts"),
    [
        ({"width": 100}, ["--width", "64, 128", 100]),
        ({"layers": 3}, ["--layers", "2, 4", 3]),
        ({"tokens_per_sample": 2}, ["--tokens-per-sample", "3, 4", 2]),
        ({"vocab_size": 200}, ["--vocab-size", "262", 200]),
    ],
)
def test_values_that_cannot_be(chosen, parts):
    with refuses(ValueError, *parts, alone=True):
        Sizes(**chosen)


def test_gpus_divide_an_update():
    with refuses(ValueError, "--batch-size", "2 GPUs", 5, alone=True):
        plan_for(counts_of(10**6), 2, Sizes(batch_size=5))


def test_too_little_text():
    with refuses(ValueError, "1,999 characters", "2,000 or more", alone=True):
        plan_for(counts_of(1_999), 0, RULE)


@pytest.mark.parametrize("gpus", [0, 3])
def test_the_words_of_training_are_settings(tmp_path, capsys, gpus):
    """What is composed."""
    for name in ("dict.txt", "train.bin", "train.idx", "valid.bin", "valid.idx"):
        (tmp_path / name).write_text("")
    plan = plan_for(counts_of(5 * 10**5, 60), gpus, RULE)
    assert plan.batch_size == (9 if gpus else 8)
    words = ["alm_small", *plan.words(gpus)["train"]]
    assert launch.main([*words, "--data", str(tmp_path), "--dry-run"]) == 0
    printed = capsys.readouterr()
    layout = f"{plan.batch_size} sequences: {gpus or 1} worker"
    assert layout in printed.err
    composed = yaml.safe_load(printed.out)
    half = plan.layers // 2
    for key, value in {
        "model._name": "transnormer_t2",
        "model.attention_types": f"diag*{half},norm*{half}",
        "model.embed_dim": plan.width,
        "optimization.max_update": plan.updates,
        "dataset.batch_size": 3 if gpus else 8,
        "checkpoint.patience": 4,
        "dataset.validate_interval_updates": plan.updates // 20,
        "dataset.validate_interval": plan.updates,  # more than there are epochs
        "common.cpu": not gpus,
    }.items():
        assert get(composed, key) == value, key


def test_openings():
    long = " one two three four five six seven eight nine ten eleven twelve"
    lines = [f"{i}{long}\n" for i in range(9)]
    found = openings([*lines, "\n", "short line\n"], 3)
    assert found == [f"{i} one two three four five six" for i in (0, 3, 6)]
    chinese = "这是一个没有空格的很长的句子" * 5
    assert openings([chinese]) == [chinese[:30]]
    assert openings(["a\n"]) == [""] == openings([])
    verse = ["Shall I compare thee\n", "\n", "to a summer's day\n"]
    assert openings(verse) == ["Shall I", "to a"]


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "a.txt").write_text("\n\n".join(sentences(200)))
    return folder


def test_bash_reads_the_words(folder, tmp_path, capfdbinary):
    """Of a folder whose name is no UTF-8; nothing is written."""
    hostile = '--it\'s "$(rm)"\u2028\u0085 `x` \\ — one two three four five six\n\n'
    (folder / "a.txt").write_text(hostile * 2 + "\n\n".join(sentences(200)))
    (folder / "b.txt").write_text("\n\n".join(f"{i} {hostile}" for i in range(200)))
    named = tmp_path / b"de\xdc x".decode(errors="surrogateescape")
    folder.rename(named)
    dest = tmp_path / "run"
    given = [named, "--dest", dest, "--gpus", 0, "--precision", "bf16", "--dry-run"]
    assert command([str(each) for each in given]) == 0
    words, told = capfdbinary.readouterr()
    assert_names(told.decode(), "plan, for the CPU", "2 *.txt", "by paragraph")
    shows = 'printf "%s\\0" "$folder" "$dest" "$dry_run" "${prompts[@]}" "${train[@]}"'
    done = subprocess.run(
        ["bash", "-uec", f'eval "$1"; {shows}', "bash", words], capture_output=True
    )
    *read, _ = done.stdout.split(b"\0")
    assert read[:3] == [bytes(named), bytes(dest), b"1"]
    prompts = [word.decode() for word in read if word.startswith(b"--prompt=")]
    assert len(prompts) == 4 and any('"$(rm)"' in prompt for prompt in prompts)
    assert read[-4:] == [b"--gpus", b"0", b"--precision", b"bf16"]
    assert [path.name for path in tmp_path.iterdir()] == [named.name]


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        (None, ["no such file"]),
        ({}, ["no *.txt, *.md, *.rst file", "empty"]),
        ({"a.txt": b"one\n\ntwo\n\nthree\n\nfour\n"}, ["characters", "2,000 or more"]),
    ],
)
def test_folders_that_do_not_do(tmp_path, capsys, content, parts):
    folder = tmp_path / "texts"
    if content is not None:
        folder.mkdir()
        for name, written in content.items():
            (folder / name).write_bytes(written)
    words = [folder, "--dest", tmp_path / "run", "--gpus", 0]
    told = command_refuses(command, words, capsys, *parts, alone=True)
    assert "--input" not in told and not (tmp_path / "run").exists()


def test_places_that_do_not_do(folder, capsys, tmp_path):
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "thesis.txt").write_text("years of work")
    for dest, parts in (
        (folder, ["lies in", "read as text"]),
        (folder / "run", ["lies in", "read as text"]),
        (tmp_path, ["no run of own_text.sh"]),
        (tmp_path / "a:b", ["a:b", "two folders"]),
        (foreign, ["foreign", "no run of own_text.sh"]),
        (foreign / "thesis.txt", ["thesis.txt", "no run of own_text.sh"]),
    ):
        words = [folder, "--dest", dest, "--gpus", 0]
        command_refuses(command, words, capsys, "--dest", *parts, alone=True)
    assert not (folder / "run").exists()
