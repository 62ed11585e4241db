"""Checkpoints, dictionaries and sentencepiece models: found, or refused clearly."""

import shutil
from functools import partial
from pathlib import Path

import pytest
import torch
from fairseq.data import Dictionary

from fairseq_transnormer.generation import GenerationError, TextGenerator
from tests.messages import refuses


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
