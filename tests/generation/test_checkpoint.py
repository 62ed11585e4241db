"""Checkpoints, dictionaries and sentencepiece models: found, or refused clearly."""

import importlib
import io
import json
import shutil
import sys
import tarfile
from functools import partial
from pathlib import Path

import pytest
import torch
from fairseq.data import Dictionary

from fairseq_transnormer.analysis.trained_models import load_trained_model, read_blocks
from fairseq_transnormer.checkpoints.safe_loading import CheckpointError
from fairseq_transnormer.export import ExportError
from fairseq_transnormer.export.vocabulary import Vocabulary
from fairseq_transnormer.export.writing import export_checkpoint
from fairseq_transnormer.generation import GenerationError, TextGenerator
from fairseq_transnormer.models import TransNormerLanguageModel
from tests.messages import refuses

from .models import run_fairseq


@pytest.fixture
def changed(t2, tmp_path):
    """Make a checkpoint with other values in its configuration."""

    def change(**values) -> Path:
        state = torch.load(t2.path, weights_only=False)
        for name, value in values.items():
            group, key = name.split("__")
            state["cfg"][group][key] = value
        path = tmp_path / "changed.pt"
        torch.save(state, path)
        return path

    return change


refused = partial(refuses, GenerationError, alone=True)


def load(*args, **kwargs) -> None:
    TextGenerator.from_checkpoint(*args, **{"device": "cpu"} | kwargs)


def test_missing_checkpoint(tmp_path):
    with refused(tmp_path / "none.pt", "no such"):
        load(tmp_path / "none.pt")


def test_folder_instead_of_checkpoint(t2):
    folder = Path(t2.path).parent
    with refused(folder, "folder", "checkpoint_last.pt"):
        load(folder)


def test_file_that_is_no_checkpoint(tmp_path):
    path = tmp_path / "text.pt"
    path.write_text("not weights")
    with refused(path, "fairseq checkpoint"):
        load(path)


def test_truncated_checkpoint(t2, tmp_path):
    path = tmp_path / "short.pt"
    path.write_bytes(Path(t2.path).read_bytes()[:5000])
    with refused(path, "fairseq checkpoint"):
        load(path)


def test_file_of_weights_alone(tmp_path):
    path = tmp_path / "weights.pt"
    torch.save({"weight": torch.zeros(2)}, path)
    with refused(path, "fairseq checkpoint"):
        load(path)


@pytest.mark.parametrize("name", ["transformer_lm", "roberta_transnormer_t2_tiny"])
def test_checkpoint_of_another_architecture(changed, name):
    path = changed(model___name=name)
    with refused(path, f"'{name}'", "allowed", "language models"):
        load(path)


def test_checkpoint_of_another_task(changed):
    path = changed(task___name="associative_recall")
    with refused(path, "associative_recall", "allowed", "language_modeling"):
        load(path)


def test_missing_dictionary(t2, changed, tmp_path):
    gone = tmp_path / "gone"
    path = changed(task__data=str(gone))
    with refused("dict.txt", gone, tmp_path):
        load(path)
    with refused("dict.txt", gone):
        load(t2.path, data=gone)


def test_dictionary_beside_the_checkpoint(t2, changed, tmp_path):
    shutil.copy(Path(t2.data) / "dict.txt", tmp_path)
    path = changed(task__data=str(tmp_path / "gone"))
    generator = TextGenerator.from_checkpoint(path, device="cpu")
    expected = t2.generator.generate("the river", max_new_tokens=3)
    assert generator.generate("the river", max_new_tokens=3) == expected


def test_dictionary_of_other_data(t2, tmp_path):
    dictionary = Dictionary()
    dictionary.add_symbol("word")
    dictionary.save(str(tmp_path / "dict.txt"))
    with refused(tmp_path / "dict.txt", 5, "allowed", len(t2.generator.dictionary)):
        load(t2.path, data=tmp_path)


def reversed_dictionary(data, folder) -> Path:
    """A folder whose dictionary has the symbols of another one in another order."""
    lines = (Path(data) / "dict.txt").read_text().splitlines()
    shutil.copytree(data, folder)
    (folder / "dict.txt").write_text("\n".join(reversed(lines)) + "\n")
    return folder


def test_dictionary_of_equal_size(t2, tmp_path):
    other = reversed_dictionary(t2.data, tmp_path / "other")
    with refuses(GenerationError, Path(t2.path), "dictionary_sha256", "--data", other):
        TextGenerator.from_checkpoint(t2.path, other, device="cpu")
    with refuses(ExportError, Path(t2.path), "dictionary_sha256", "--data", other):
        export_checkpoint(t2.path, tmp_path / "out", other)
    with refuses(CheckpointError, Path(t2.path), "dictionary_sha256"):
        load_trained_model(Path(t2.path), other)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("command", ["eval_lm", "validate", "generate", "interactive"])
def test_fairseqs_commands_and_a_dictionary_of_equal_size(
    t2, command, tmp_path, monkeypatch
):
    other = reversed_dictionary(t2.data, tmp_path / "other")
    monkeypatch.setattr(sys, "stdin", io.StringIO("the river\n"))
    main = importlib.import_module(f"fairseq_cli.{command}").cli_main
    arguments = [other, "--task", "language_modeling", "--path", t2.path]
    with refuses(CheckpointError, Path(t2.path), "dictionary_sha256"):
        run_fairseq(main, *arguments, "--batch-size", 1, "--num-workers", 0)


@pytest.mark.parametrize("command", ["eval_lm", "validate", "generate", "interactive"])
def test_fairseqs_commands_and_overrides_of_nothing(t2, command, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    main = importlib.import_module(f"fairseq_cli.{command}").cli_main
    arguments = [t2.data, "--task", "language_modeling", "--path", t2.path]
    arguments += ["--batch-size", 1, "--num-workers", 0, "--model-overrides"]
    with refuses(ValueError, "dropuot", Path(t2.path), "dropout"):
        run_fairseq(main, *arguments, {"dropuot": 0.3, "block_size": 4})
    if command == "interactive":  # nothing to go through
        run_fairseq(main, *arguments, {"dropout": 0.3, "block_size": 4})


def test_dictionary_that_was_changed_after_the_data_was_prepared(changed, t2, tmp_path):
    """A checkpoint of another program does not name its dictionary; the data do."""
    other = reversed_dictionary(t2.data, tmp_path / "other")
    path = changed()
    state = torch.load(path, weights_only=False)
    del state["extra_state"]["dictionary_sha256"]
    torch.save(state, path)
    TextGenerator.from_checkpoint(path, other, device="cpu")
    report = {"files": {"dict.txt": {"sha256": "0" * 64}}}
    (other / "report.json").write_text(json.dumps(report))
    with refuses(GenerationError, other / "dict.txt", "report.json", "0" * 64):
        TextGenerator.from_checkpoint(path, other, device="cpu")
    with refuses(ExportError, other / "dict.txt", "report.json", "0" * 64):
        export_checkpoint(path, tmp_path / "out", other)


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (b"the 3\nthe 2\n", "the"),
        (b"the three\n", "dict.txt"),
        (b"the\n", "dict.txt"),
        ("caf\u00e9 3\n".encode("latin-1"), "dict.txt"),
    ],
)
def test_dictionaries_that_are_none(t2, content, named, tmp_path):
    (tmp_path / "dict.txt").write_bytes(content)
    with refuses(GenerationError, tmp_path / "dict.txt", named, "allowed"):
        TextGenerator.from_checkpoint(t2.path, tmp_path, device="cpu")
    with refuses(ExportError, tmp_path / "dict.txt", named, "allowed"):
        export_checkpoint(t2.path, tmp_path / "out", tmp_path)
    with refuses(ValueError, tmp_path / "dict.txt"):
        read_blocks(tmp_path, "valid", 1, 8)


@pytest.mark.parametrize("content", [b"", b"root:x:0:0\n" * 99, b"\0" * 999])
def test_files_that_are_no_sentencepiece_model(t2, content, tmp_path):
    path = tmp_path / "sentencepiece.bpe.model"
    path.write_bytes(content)
    with refuses(GenerationError, path, "sentencepiece"):
        TextGenerator.from_checkpoint(
            t2.path, device="cpu", sentencepiece_model=path
        ).generate("the river", max_new_tokens=1)
    export_checkpoint(t2.path, tmp_path / "exported")
    shutil.copy(path, tmp_path / "exported")
    vocabulary = Vocabulary.read(tmp_path / "exported/dict.txt", path)
    with refuses(ExportError, path, "sentencepiece"):
        vocabulary.encode("the river")


def test_without_sentencepiece(pieces, monkeypatch):
    monkeypatch.setitem(sys.modules, "sentencepiece", None)
    with refuses(GenerationError, "sentencepiece", "install"):
        TextGenerator.from_checkpoint(pieces.path, device="cpu")


def test_missing_sentencepiece_model(t2, tmp_path):
    path = tmp_path / "none.model"
    with refused(path, "no such", "sentencepiece"):
        load(t2.path, sentencepiece_model=path)


def test_sentencepiece_model_beside_the_checkpoint(pieces, tmp_path):
    for name in (pieces.path, Path(pieces.data) / "sentencepiece.bpe.model"):
        shutil.copy(name, tmp_path)
    data = tmp_path / "data"
    data.mkdir()
    shutil.copy(Path(pieces.data) / "dict.txt", data)
    path = tmp_path / Path(pieces.path).name
    generator = TextGenerator.from_checkpoint(path, data, device="cpu")
    expected = pieces.generator.generate("the river", max_new_tokens=9)
    assert generator.generate("the river", max_new_tokens=9) == expected


@pytest.mark.parametrize("device", ["cuda:99", "abacus"])
def test_unknown_device(t2, device):
    with refused(f"device={device}"):
        load(t2.path, device=device)


def test_ensembles_are_refused(t2):
    hub = t2.hub
    models = hub.models
    try:
        hub.models = torch.nn.ModuleList([*models, *models])
        with refused("2 models", "one"):
            TextGenerator(hub)
    finally:
        hub.models = models


def test_an_archive_of_a_model(t2, tmp_path):
    path = tmp_path / "model.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        archive.add(t2.path, "model/model.pt")
        archive.add(Path(t2.data) / "dict.txt", "model/dict.txt")
    hub = TransNormerLanguageModel.from_pretrained(str(path))
    assert hub.sample("the river", beam=1) == t2.hub.sample("the river", beam=1)
    assert [each.name for each in tmp_path.iterdir()] == ["model.tar.gz"]
