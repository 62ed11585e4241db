"""No code from a checkpoint, in whatever way it is hidden and whoever reads it."""

import argparse
import io
import re
import sys
from contextlib import suppress

import pytest
import torch
from fairseq import checkpoint_utils

from fairseq_transnormer.checkpoints.pretrained import PretrainedCheckpoint
from fairseq_transnormer.checkpoints.safe_loading import (
    CheckpointError,
    read_checkpoint,
)
from fairseq_transnormer.plugin.models import TransNormerLanguageModel
from tests.commands import command
from tests.inference.problems import write_problem
from tests.messages import refuses
from tests.tiny_data import write_tiny_data

from .conftest import training_arguments
from .hostile_checkpoints import EVALUATED, HOSTILE, stock_cfg, stock_state

# through each entry point; what they read with is asked all
PICKLE, SETTING = "os.system in extra_state", "a setting with a call"


@pytest.fixture(scope="module")
def cfg():
    return stock_cfg()


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_tiny_data(tmp_path_factory.mktemp("data"), lines=20)


@pytest.fixture(scope="module")
def problem(tmp_path_factory):
    return write_problem(tmp_path_factory.mktemp("problem"))


def written(folder, cfg, names=HOSTILE):
    """Of each hostile file: its name, its path, and what it would make."""
    for number, name in enumerate(names):
        place = folder / str(number)
        place.mkdir()
        path, made = place / "checkpoint_last.pt", place / "made"
        HOSTILE[name].write(path, made, cfg)
        yield name, path, made


def test_the_readers_refuse_all(cfg, tmp_path):
    assert len(HOSTILE) >= 60
    for name, path, made in written(tmp_path, cfg):
        # all of fairseq's commands read with the first, and it with ours
        readers = [lambda path: checkpoint_utils.load_checkpoint_to_cpu(str(path))]
        if "backslash" not in name:  # these are plain values until Hydra has read them
            readers.append(lambda path: read_checkpoint(path, mmap=True))
        for read in readers:
            with refuses(CheckpointError, path) as error:
                read(path)
            assert re.search("refused|not a fairseq checkpoint", str(error.value)), name
            assert "weights_only=False" not in str(error.value)
        assert not made.exists(), name


def test_the_attacks_work_where_nobody_looks(cfg, tmp_path, monkeypatch):
    """Otherwise the tests above would pass for another reason."""
    load = torch.load
    monkeypatch.setattr(torch, "load", lambda file, **_: load(file, weights_only=False))
    unprotected = checkpoint_utils.load_checkpoint_to_cpu.__wrapped__
    effective = [name for name, each in HOSTILE.items() if each.effect]
    assert len(effective) >= 55
    for name, path, made in written(tmp_path, cfg, effective):
        if HOSTILE[name].effect == "pickle":
            # an older format begins with another object; the call comes first
            with suppress(RuntimeError):
                torch.load(path)
        else:
            eval(unprotected(str(path))["cfg"]["model"][EVALUATED])
        assert made.exists(), name


def fairseq_command(name, *arguments):
    def run(path, data, problem, tool, folder):
        options = ["--cpu", "--task", "language_modeling", "--path", path]
        tool(name, data, *options, *arguments)

    return run


def training(option=None):
    """With an option that names the file, or in its folder."""

    def run(path, data, problem, tool, folder):
        save_dir = folder / "run" if option else path.parent
        arguments = training_arguments("transnormer_t2_tiny", save_dir, max_update=1)
        tool("train", data, *arguments, *([option, path] if option else []))

    return run


def ours(name, *arguments):
    """A command of this package: exit code 2 and one line."""

    def run(path, data, problem, tool, folder):
        places = {"PATH": path, "DATA": data, "PROBLEM": problem, "OUT": folder / "out"}
        status = command(*name.split())(places.get(each, each) for each in arguments)
        assert status == 2
        raise SystemExit(status)

    return run


def data_preparation(path, data, problem, tool, folder):
    from tests.data_prep.commands import classification

    table = folder / "texts.tsv"
    table.write_text("text\tlabel\na b\tyes\n")
    arguments = ["--dest", folder / "out", "--train", table, "--valid", table]
    arguments += ["--checkpoint", path, "--data", data]
    raise SystemExit(classification([*map(str, arguments)]))


ENTRIES = {
    "fairseq-train": training(),
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
    "context_use": ours(
        "analyse context_use",
        "PATH",
        "--data",
        "DATA",
        "--tokens",
        "32",
        "--lengths",
        "8",
    ),
    "generation": ours(
        "generate", "--path", "PATH", "--data", "DATA", "--prompt", "word1"
    ),
    "export": ours("export", "PATH", "--dest", "OUT", "--data", "DATA"),
    "classification": ours(
        "classify", "--path", "PATH", "--data", "PROBLEM", "--text", "w1"
    ),
    "data_prep.labelled_texts.classification": data_preparation,
}
CASES = [(entry, PICKLE) for entry in ENTRIES]
CASES += [(e, SETTING) for e in ENTRIES if not e.startswith("fairseq-")]


@pytest.mark.parametrize(("entry", "name"), CASES)
def test_entry_points_refuse_it(
    entry, name, cfg, data, problem, fairseq_tool, tmp_path, monkeypatch, capsys
):
    ((_, path, made),) = written(tmp_path, cfg, [name])
    monkeypatch.setattr(sys, "stdin", io.StringIO("word1 word2\n"))
    with pytest.raises((ValueError, SystemExit)) as error:
        ENTRIES[entry](path, data, problem, fairseq_tool, tmp_path)
    told = str(error.value) + capsys.readouterr().err
    assert path.name in told and "refused" in told
    assert not made.exists()
    assert not (tmp_path / "out").exists()


def test_what_is_not_hostile_is_loaded(cfg, tmp_path):
    """Also as fairseq before 1.0 saved it, which Hydra reads."""
    torch.save(stock_state(cfg), tmp_path / "cfg.pt")
    values = {"arch": "transformer_lm", "task": "language_modeling", "data": "a (1)"}
    values |= {EVALUATED: "[(1, 64), (2, 128)]", "adaptive_softmax_cutoff": "10,20"}
    torch.save(stock_state(None, argparse.Namespace(**values)), tmp_path / "args.pt")
    for name in ("cfg.pt", "args.pt"):
        path = str(tmp_path / name)
        state = checkpoint_utils.load_checkpoint_to_cpu(path, {"data": "(x).y()"})
        assert state["cfg"]["task"]["data"] == "(x).y()"
        assert state["cfg"]["model"][EVALUATED].startswith("[(1, 64)")
