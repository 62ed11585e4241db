"""Exported models, of which the trained ones are those of tests/generation."""

import os
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from torch import nn

# read when huggingface_hub is imported: nothing here is to be looked for elsewhere
os.environ.setdefault("HF_HUB_OFFLINE", "1")

from fairseq_transnormer.export.writing import export_checkpoint
from fairseq_transnormer.generation import TextGenerator
from tests.data_prep.conftest import gpt2_dir
from tests.generation.conftest import pieces, t1, word_folder

from .checkpoints import CAUSAL, ENCODERS, write

__all__ = ["gpt2_dir", "pieces", "t1", "word_folder"]


class Both(NamedTuple):
    """A model of fairseq and the folder of its export."""

    model: nn.Module
    folder: Path


class Texts(NamedTuple):
    """A trained model in our generator and in transformers."""

    generator: TextGenerator
    model: nn.Module
    tokenizer: object
    folder: Path


@pytest.fixture(scope="session")
def exports(tmp_path_factory) -> dict[str, Both]:
    """Tiny untrained models by their architecture; "classifier" and "regression"."""
    root, found = tmp_path_factory.mktemp("exports"), {}
    torch.manual_seed(0)
    for name in (*CAUSAL, *ENCODERS, "classifier", "regression"):
        checkpoint, model = write(root / name, name)
        export_checkpoint(checkpoint, root / name / "out")
        found[name] = Both(model, root / name / "out")
    return found


@pytest.fixture(scope="session")
def words(t1, tmp_path_factory) -> Texts:
    """A word-level T1."""
    return exported_texts(t1, tmp_path_factory.mktemp("words") / "out")


@pytest.fixture(scope="session", params=["words", "pieces"])
def texts(request, tmp_path_factory) -> Texts:
    """A T1 with words and a T2 with sentencepiece."""
    if request.param == "words":
        return request.getfixturevalue("words")
    trained = request.getfixturevalue("pieces")
    return exported_texts(trained, tmp_path_factory.mktemp("pieces") / "out")


def exported_texts(trained, folder: Path) -> Texts:
    """A trained model and its export."""
    # each test file skips itself without them
    from transformers import AutoModelForCausalLM, AutoTokenizer

    import fairseq_transnormer.hf  # noqa: F401 (registers the classes)

    export_checkpoint(trained.path, folder)
    return Texts(
        trained.generator,
        AutoModelForCausalLM.from_pretrained(folder),
        AutoTokenizer.from_pretrained(folder),
        folder,
    )
