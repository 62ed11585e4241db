"""What export writes, and folders that are none, or not what they were."""

import hashlib
import os
import shutil
from functools import partial
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from safetensors import SafetensorError

from fairseq_transnormer.checkpoints.export import _temporary, export_checkpoint
from fairseq_transnormer.checkpoints.load import load
from fairseq_transnormer.checkpoints.safe_loading import CheckpointError
from tests.checkpoints.writing import changed_section, write_checkpoint
from tests.commands import command
from tests.inference.problems import write_problem
from tests.messages import assert_names, command_refuses, refuses
from tests.training.test_damaged_files import flip
from tests.zoo import CAUSAL, fine_tuning, save

WEIGHTS = "model.safetensors"
refused = partial(refuses, CheckpointError, alone=True)


@pytest.fixture
def exported(zoo):
    """A model, its checkpoint, and its export with a dictionary."""
    return zoo.untrained[CAUSAL[0]]


@pytest.fixture
def copy(exported, tmp_path):
    return shutil.copytree(exported.folder, tmp_path / "copy")


def replace(folder, name, content: bytes):
    """A file and its SHA-256 in config.json."""
    (folder / name).write_bytes(content)
    with changed_section(folder) as section:
        section["files"][name] = hashlib.sha256(content).hexdigest()


def test_the_files(exported):
    names = sorted(path.name for path in exported.folder.iterdir())
    assert names == [
        *("config.json", "dict.txt", "generation_config.json", WEIGHTS),
        "tokenizer_config.json",
    ]
    assert len({path.stat().st_mode for path in exported.folder.iterdir()}) == 1
    assert load(exported.folder).words.symbols[4:6] == ["w0", "w1"]


def test_what_is_returned_is_the_folder_loaded(zoo, tmp_path):
    found = export_checkpoint(zoo.checkpoints["pieces"], tmp_path / "out")
    trained = load(tmp_path / "out")
    assert (found.path, found.manifest) == (trained.path, trained.manifest)
    assert found.words.encode("the river") == trained.words.encode("the river")


def test_without_its_dictionary_it_names_the_one_of_the_checkpoint(zoo, tmp_path):
    data = write_problem(tmp_path / "data")
    path, _ = save(tmp_path / "c.pt", data, *fine_tuning(), identity=True)
    export_checkpoint(path, tmp_path / "whole")
    data.rename(tmp_path / "moved")
    export_checkpoint(path, tmp_path / "out")
    whole, found = (load(tmp_path / each).manifest for each in ("whole", "out"))
    assert "dict.txt" in whole.files and "dict.txt" not in found.files
    assert found.dictionary_sha256 == whole.dictionary_sha256 is not None


@pytest.mark.parametrize("name", ["config.json", WEIGHTS, "dict.txt"])
def test_missing_truncated_and_changed_files(name, copy):
    path = copy / name
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with refused(path):
        load(copy)
    if name != "config.json":
        path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        with refused(path, "changed", "SHA-256"):
            load(copy)
    path.unlink()
    with refused(path, "missing"):
        load(copy)


def test_a_dictionary_that_is_another(copy):
    lines = (copy / "dict.txt").read_bytes().splitlines(keepends=True)
    for content in (b"", b"".join(lines[:-3]), b"w one\n", b"\xe9 1\n"):
        replace(copy, "dict.txt", content)
        with refused(copy / "dict.txt"):
            load(copy)


def test_an_existing_folder_is_kept(exported, tmp_path, capsys):
    (tmp_path / "mine").mkdir()
    arguments = [exported.checkpoint, "--dest", tmp_path / "mine"]
    command_refuses(command("export"), arguments, capsys, tmp_path / "mine", "exists")
    assert list(tmp_path.rglob("*")) == [tmp_path / "mine"]


@pytest.mark.parametrize(
    ("place", "error"),
    [
        ("shutil.copyfile", OSError(28, "No space left on device")),
        ("safetensors.torch.save_file", SafetensorError("No space left on device")),
    ],
)
def test_a_failure_leaves_nothing_behind(place, error, exported, tmp_path, monkeypatch):
    monkeypatch.setattr(place, Mock(side_effect=error))
    with refused(tmp_path / "out", "No space left"):
        export_checkpoint(exported.checkpoint, tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_a_killed_export_is_made_again(exported, tmp_path):
    """... and what it left behind is gone."""
    (tmp_path / ".out.partial").mkdir()
    (tmp_path / ".out.partial" / WEIGHTS).write_bytes(b"old")
    export_checkpoint(exported.checkpoint, tmp_path / "out")
    load(tmp_path / "out")
    assert [each.name for each in tmp_path.iterdir()] == ["out"]


def test_a_file_of_others_is_no_litter(exported, tmp_path):
    """... where a killed export would have left its own."""
    (tmp_path / ".out.partial").mkdir()
    (tmp_path / ".out.partial/mine").touch()
    with refused(tmp_path / ".out.partial/mine"):
        export_checkpoint(exported.checkpoint, tmp_path / "out")
    assert (tmp_path / ".out.partial/mine").exists()


def test_a_second_export_at_once(exported, tmp_path):
    """... is refused, and the first one goes on."""
    with _temporary(tmp_path / "out") as folder:
        (folder / "half").touch()
        with refused(tmp_path / "out", "another process"):
            export_checkpoint(exported.checkpoint, tmp_path / "out")
        assert (folder / "half").exists()
    export_checkpoint(exported.checkpoint, tmp_path / "out")
    assert [each.name for each in tmp_path.iterdir()] == ["out"]


def test_malicious_and_damaged_checkpoints(exported, tmp_path):
    class Payload:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "made"),)

    torch.save({"cfg": Payload(), "model": {}}, tmp_path / "malicious.pt")
    flip(Path(shutil.copy(exported.checkpoint, tmp_path / "flipped.pt")))
    for name, parts in (
        ("malicious", ["refused", "mkdir"]),
        ("flipped", ["damaged", "CRC-32"]),
    ):
        path = tmp_path / f"{name}.pt"
        with refused(path, *parts):
            export_checkpoint(path, tmp_path / "out")
    assert not (tmp_path / "made").exists() and not (tmp_path / "out").exists()


def test_a_folder_of_data_that_is_gone_is_a_note(tmp_path, capsys):
    write_checkpoint(tmp_path / "model.pt", "roberta_transnormer_t2_tiny", "/gone")
    arguments = [str(tmp_path / "model.pt"), "--dest", str(tmp_path / "out")]
    assert command("export")(arguments) == 0
    assert_names(capsys.readouterr().err, "note", "dict.txt", "/gone")
    assert load(tmp_path / "out").vocabulary is None
