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
from fairseq_transnormer.export.vocabulary import Vocabulary

from fairseq_transnormer.analysis.trained_models import load_trained_model, read_blocks
from fairseq_transnormer.checkpoints.export import export_checkpoint
from fairseq_transnormer.checkpoints.safe_loading import CheckpointError
from fairseq_transnormer.export import ExportError
from fairseq_transnormer.generation import GenerationError, TextGenerator
from fairseq_transnormer.plugin.models import TransNormerLanguageModel
from tests.inference.models import run_fairseq
from tests.messages import refuses

refused = partial(refuses, GenerationError, alone=True)
load = partial(TextGenerator.from_checkpoint, device="cpu")
UNITS = "sentencepiece.bpe.model"


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


def test_files_that_are_no_checkpoint(t2, tmp_path):
    folder = Path(t2.path).parent
    (tmp_path / "text.pt").write_text("not weights")
    (tmp_path / "short.pt").write_bytes(Path(t2.path).read_bytes()[:5000])
    torch.save({"weight": torch.zeros(2)}, tmp_path / "weights.pt")
    for path, *parts in (
        (tmp_path / "none.pt", "no such"),
        (folder, "folder", "checkpoint_last.pt"),
        *((tmp_path / name, "fairseq checkpoint") for name in ("text.pt", "short.pt")),
        (tmp_path / "weights.pt", "fairseq checkpoint"),
    ):
        with refused(path, *parts):
            load(path)


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        ({"model___name": "transformer_lm"}, ["language models"]),
        ({"model___name": "roberta_transnormer_t2_tiny"}, ["language models"]),
        ({"task___name": "associative_recall"}, ["language_modeling"]),
    ],
)
def test_checkpoints_of_another_architecture_or_task(changed, change, parts):
    path, (name,) = changed(**change), change.values()
    with refused(name, "allowed", *parts):
        load(path)


def test_dictionary_that_is_missing_or_beside_the_checkpoint(t2, changed, tmp_path):
    gone = tmp_path / "gone"
    path = changed(task__data=str(gone))
    with refused("dict.txt", gone, tmp_path):
        load(path)
    with refused("dict.txt", gone):
        load(t2.path, data=gone)
    shutil.copy(Path(t2.data) / "dict.txt", tmp_path)
    expected = t2.generator.generate("the river", max_new_tokens=3)
    assert load(path).generate("the river", max_new_tokens=3) == expected
    dictionary = Dictionary()
    dictionary.add_symbol("word")
    dictionary.save(str(tmp_path / "dict.txt"))
    with refused(tmp_path / "dict.txt", 5, "allowed", len(t2.generator.dictionary)):
        load(t2.path, data=tmp_path)


@pytest.fixture
def other(t2, tmp_path) -> Path:
    """A folder whose dictionary has the symbols in another order."""
    lines = (Path(t2.data) / "dict.txt").read_text().splitlines()
    folder = shutil.copytree(t2.data, tmp_path / "other")
    (folder / "dict.txt").write_text("\n".join(reversed(lines)) + "\n")
    return folder


def test_dictionary_of_equal_size(t2, other, tmp_path):
    parts = Path(t2.path), "dictionary_sha256"
    with refuses(GenerationError, *parts, "--data", other):
        load(t2.path, other)
    with refuses(ExportError, *parts, "--data", other):
        export_checkpoint(t2.path, tmp_path / "out", other)
    with refuses(CheckpointError, *parts):
        load_trained_model(Path(t2.path), other)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("command", ["eval_lm", "validate", "generate", "interactive"])
def test_fairseqs_commands(t2, other, command, monkeypatch):
    """A dictionary of equal size, and overrides of what is not there."""
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    main = importlib.import_module(f"fairseq_cli.{command}").cli_main
    more = ["--task", "language_modeling", "--path", t2.path]
    more += ["--batch-size", 1, "--num-workers", 0]
    if command in ("eval_lm", "generate"):
        with refuses(CheckpointError, Path(t2.path), "dictionary_sha256"):
            run_fairseq(main, other, *more)
        return
    overrides = {"dropuot": 0.3, "block_size": 4}
    with refuses(ValueError, "dropuot", Path(t2.path), "dropout"):
        run_fairseq(main, t2.data, *more, "--model-overrides", overrides)
    if command == "interactive":  # nothing to go through
        overrides["dropout"] = overrides.pop("dropuot")
        run_fairseq(main, t2.data, *more, "--model-overrides", overrides)


def test_dictionary_that_was_changed_after_the_data_was_prepared(
    changed, other, tmp_path
):
    """A checkpoint of another program does not name its dictionary; the data do."""
    path = changed()
    state = torch.load(path, weights_only=False)
    del state["extra_state"]["dictionary_sha256"]
    torch.save(state, path)
    load(path, other)
    report = {"files": {"dict.txt": {"sha256": "0" * 64}}}
    (other / "report.json").write_text(json.dumps(report))
    with refuses(GenerationError, other / "dict.txt", "report.json", "0" * 64):
        load(path, other)
    with refuses(ExportError, other / "dict.txt", "report.json", "0" * 64):
        export_checkpoint(path, tmp_path / "out", other)


def test_dictionaries_that_are_none(t2, tmp_path):
    path = tmp_path / "dict.txt"
    for content, named in (
        (b"the 3\nthe 2\n", "the"),
        (b"the three\n", "dict.txt"),
        (b"the\n", "dict.txt"),
        ("caf\u00e9 3\n".encode("latin-1"), "dict.txt"),
    ):
        path.write_bytes(content)
        with refuses(GenerationError, path, named, "allowed"):
            load(t2.path, tmp_path)
        with refuses(ExportError, path, named, "allowed"):
            export_checkpoint(t2.path, tmp_path / "out", tmp_path)
        with refuses(ValueError, path):
            read_blocks(tmp_path, "valid", 1, 8)


@pytest.mark.parametrize("content", [None, b"", b"root:x:0:0\n" * 99, b"\0" * 999])
def test_files_that_are_no_sentencepiece_model(t2, content, tmp_path):
    path = tmp_path / UNITS
    if content is None:
        with refused(path, "no such", "sentencepiece"):
            load(t2.path, sentencepiece_model=path)
        return
    path.write_bytes(content)
    with refuses(GenerationError, path, "sentencepiece"):
        load(t2.path, sentencepiece_model=path).generate("the river", max_new_tokens=1)
    vocabulary = Vocabulary.read(Path(t2.data) / "dict.txt", path)
    with refuses(ExportError, path, "sentencepiece"):
        vocabulary.encode("the river")


def test_without_sentencepiece(pieces, monkeypatch):
    monkeypatch.setitem(sys.modules, "sentencepiece", None)
    with refuses(GenerationError, "sentencepiece", "install"):
        load(pieces.path)


def test_sentencepiece_model_beside_the_checkpoint(pieces, tmp_path):
    for name in (pieces.path, Path(pieces.data) / UNITS):
        shutil.copy(name, tmp_path)
    (tmp_path / "data").mkdir()
    shutil.copy(Path(pieces.data) / "dict.txt", tmp_path / "data")
    generator = load(tmp_path / Path(pieces.path).name, tmp_path / "data")
    expected = pieces.generator.generate("the river", max_new_tokens=9)
    assert generator.generate("the river", max_new_tokens=9) == expected


def test_ensembles_and_unknown_devices_are_refused(t2, monkeypatch):
    for device in ("cuda:99", "abacus"):
        with refused(f"device={device}"):
            load(t2.path, device=device)
    models = torch.nn.ModuleList([*t2.hub.models, *t2.hub.models])
    monkeypatch.setitem(t2.hub._modules, "models", models)
    with refused("2 models", "one"):
        TextGenerator(t2.hub)


def test_an_archive_of_a_model(t2, tmp_path):
    path = tmp_path / "model.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        archive.add(t2.path, "model/model.pt")
        archive.add(Path(t2.data) / "dict.txt", "model/dict.txt")
    hub = TransNormerLanguageModel.from_pretrained(str(path))
    assert hub.sample("the river", beam=1) == t2.hub.sample("the river", beam=1)
    assert [each.name for each in tmp_path.iterdir()] == ["model.tar.gz"]
