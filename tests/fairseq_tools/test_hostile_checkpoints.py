"""No code from a checkpoint, in whatever way it is hidden and whoever reads it."""

import io
import sys
from contextlib import suppress

import pytest
import torch
from fairseq import checkpoint_utils

from fairseq_transnormer.analysis import context_use
from fairseq_transnormer.checkpoints.files import check_last_checkpoint
from fairseq_transnormer.checkpoints.pretrained import PretrainedCheckpoint
from fairseq_transnormer.checkpoints.safe_loading import (
    CheckpointError,
    read_checkpoint,
)
from fairseq_transnormer.classification import command_line as classification
from fairseq_transnormer.export import command_line as export
from fairseq_transnormer.generation import command_line as generation
from fairseq_transnormer.models import TransNormerLanguageModel
from tests.classification.problems import write_problem
from tests.tiny_data import write_tiny_data

from .conftest import training_arguments
from .hostile_checkpoints import EVALUATED, HOSTILE, stock_cfg, stock_state

# through each entry point: one of each kind
SOME = (
    "os.system in extra_state",
    "a setting with a call",
    "all, older torch",
    "cfg as YAML with a comment",
    "args with a backslash",
    "code behind an attribute",
)


@pytest.fixture(scope="module")
def cfg():
    return stock_cfg()


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_tiny_data(tmp_path_factory.mktemp("data"), lines=20)


@pytest.fixture(scope="module")
def problem(tmp_path_factory):
    return write_problem(tmp_path_factory.mktemp("problem"))


def written(name, folder, cfg):
    """The hostile file, and what it would make."""
    path, made = folder / "checkpoint_last.pt", folder / "made"
    HOSTILE[name].write(path, made, cfg)
    return path, made


def test_the_list_is_long():
    assert len(HOSTILE) >= 60 and set(SOME) <= HOSTILE.keys()


@pytest.mark.parametrize("name", HOSTILE)
def test_the_readers_refuse_it(name, cfg, tmp_path):
    path, made = written(name, tmp_path, cfg)
    with pytest.raises(CheckpointError, match="refused|not a fairseq checkpoint"):
        # all of fairseq's commands read with it, and it with ours
        checkpoint_utils.load_checkpoint_to_cpu(str(path))
    assert not made.exists()
    if "backslash" not in name:  # these are plain values until Hydra has read them
        with pytest.raises(CheckpointError, match="refused|not a fairseq checkpoint"):
            read_checkpoint(path, mmap=True)
    assert not made.exists()


@pytest.mark.parametrize("name", [n for n, each in HOSTILE.items() if each.effect])
def test_the_attack_works_where_nobody_looks(name, cfg, tmp_path, monkeypatch):
    """Otherwise the tests above would pass for another reason."""
    path, made = written(name, tmp_path, cfg)
    load = torch.load
    if HOSTILE[name].effect == "pickle":
        # an older format begins with another object; the call comes first
        with suppress(RuntimeError):
            load(path, weights_only=False)
    else:
        monkeypatch.setattr(
            torch, "load", lambda file, **_: load(file, weights_only=False)
        )
        unprotected = checkpoint_utils.load_checkpoint_to_cpu.__wrapped__
        eval(unprotected(str(path))["cfg"]["model"][EVALUATED])
    assert made.exists()


def fairseq_command(name, *arguments):
    def run(path, data, problem, tool, folder):
        options = ["--cpu", "--task", "language_modeling", "--path", path]
        tool(name, data, *options, *arguments)

    return run


def training(option):
    def run(path, data, problem, tool, folder):
        arguments = training_arguments(
            "transnormer_t2_tiny", folder / "run", max_update=1
        )
        tool("train", data, *arguments, option, path)

    return run


def ours(main, *arguments):
    """A command of this package: exit code 2 and one line."""

    def run(path, data, problem, tool, folder):
        places = {"PATH": path, "DATA": data, "PROBLEM": problem, "OUT": folder / "out"}
        status = main([str(places.get(each, each)) for each in arguments])
        assert status == 2
        raise SystemExit(status)

    return run


def data_preparation(path, data, problem, tool, folder):
    from data_prep.labelled_texts import classification as command

    table = folder / "texts.tsv"
    table.write_text("text\tlabel\na b\tyes\n")
    arguments = ["--dest", folder / "out", "--train", table, "--valid", table]
    arguments += ["--checkpoint", path, "--data", data]
    raise SystemExit(command.main([*map(str, arguments)]))


ENTRIES = {
    "fairseq-train --restore-file": training("--restore-file"),
    "fairseq-train --finetune-from-model": training("--finetune-from-model"),
    "fairseq-validate": fairseq_command("validate", "--batch-size", 2),
    "fairseq-eval-lm": fairseq_command("eval_lm", "--batch-size", 2),
    "fairseq-generate": fairseq_command("generate", "--batch-size", 2),
    "fairseq-interactive": fairseq_command("interactive"),
    "from_pretrained": lambda path, data, *_: TransNormerLanguageModel.from_pretrained(
        str(path.parent), path.name, str(data)
    ),
    "fine-tuning": lambda path, *_: PretrainedCheckpoint.read(path),
    "resuming": lambda path, *_: check_last_checkpoint("t2", path.parent),
    "context_use": ours(
        context_use.main, "PATH", "--data", "DATA", "--tokens", "32", "--lengths", "8"
    ),
    "generation": ours(
        generation.main, "--path", "PATH", "--data", "DATA", "--prompt", "word1"
    ),
    "export": ours(export.main, "PATH", "--dest", "OUT", "--data", "DATA"),
    "classification": ours(
        classification.main, "--path", "PATH", "--data", "PROBLEM", "--text", "w1"
    ),
    "data_prep.labelled_texts.classification": data_preparation,
}
# these take none of the settings, and what they read has no code in it
UNAFFECTED = {
    ("resuming", "all, older torch"),  # a damaged one is taken for granted
    ("resuming", "args with a backslash"),
}


def entries_and_kinds():
    """fairseq's commands have one reader, which test_the_readers_refuse_it asks all."""
    for entry in ENTRIES:
        for name in SOME:
            again = entry.startswith("fairseq-") and name not in SOME[:2]
            yield pytest.param(entry, name, marks=[pytest.mark.slow] * again)


@pytest.mark.parametrize(("entry", "name"), entries_and_kinds())
def test_entry_points_refuse_it(
    entry, name, cfg, data, problem, fairseq_tool, tmp_path, monkeypatch, capsys
):
    path, made = written(name, tmp_path, cfg)
    monkeypatch.setattr(sys, "stdin", io.StringIO("word1 word2\n"))
    run = ENTRIES[entry]
    if (entry, name) in UNAFFECTED:
        run(path, data, problem, fairseq_tool, tmp_path)
    else:
        with pytest.raises((ValueError, SystemExit)) as error:
            run(path, data, problem, fairseq_tool, tmp_path)
        told = str(error.value) + capsys.readouterr().err
        assert path.name in told
    assert not made.exists()
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
@pytest.mark.parametrize("entry", ENTRIES)
def test_every_one_of_them_at_every_entry_point(
    entry, cfg, data, problem, fairseq_tool, tmp_path, monkeypatch
):
    loaded = []
    for name in HOSTILE:
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        folder.mkdir()
        path, made = written(name, folder, cfg)
        monkeypatch.setattr(sys, "stdin", io.StringIO("word1 word2\n"))
        try:
            ENTRIES[entry](path, data, problem, fairseq_tool, folder)
            loaded.append(name)
        except (ValueError, SystemExit):
            pass
        assert not made.exists() and not (folder / "out").exists(), name
    # that one looks at the settings alone, and leaves other formats to the loader
    assert entry == "resuming" or not loaded


def test_what_is_not_hostile_is_loaded(cfg, tmp_path):
    """Also as fairseq before 1.0 saved it, which Hydra reads."""
    import argparse

    torch.save(stock_state(cfg), tmp_path / "cfg.pt")
    values = {"arch": "transformer_lm", "task": "language_modeling", "data": "a (1)"}
    values |= {EVALUATED: "[(1, 64), (2, 128)]", "adaptive_softmax_cutoff": "10,20"}
    torch.save(stock_state(None, argparse.Namespace(**values)), tmp_path / "args.pt")
    for name in ("cfg.pt", "args.pt"):
        path = str(tmp_path / name)
        state = checkpoint_utils.load_checkpoint_to_cpu(path, {"data": "(x).y()"})
        assert state["cfg"]["task"]["data"] == "(x).y()"
        assert state["cfg"]["model"][EVALUATED].startswith("[(1, 64)")
