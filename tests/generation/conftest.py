"""Models that are trained once for all tests of generation."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from fairseq.hub_utils import GeneratorHubInterface

import fairseq_transnormer  # noqa: F401 (registers the models)
from fairseq_transnormer.generation import TextGenerator
from fairseq_transnormer.models import TransNormerLanguageModel

from . import models


class Trained(NamedTuple):
    """A checkpoint behind fairseq's interface and behind ours."""

    path: str
    data: str
    hub: GeneratorHubInterface
    generator: TextGenerator


def load(path, data) -> Trained:
    units = {}
    if (data / "sentencepiece.bpe.model").exists():
        units["bpe"] = "sentencepiece"
        units["sentencepiece_model"] = str(data / "sentencepiece.bpe.model")
    hub = TransNormerLanguageModel.from_pretrained(
        str(path.parent), path.name, str(data), **units
    )
    generator = TextGenerator.from_checkpoint(path, device="cpu")
    return Trained(str(path), str(data), hub, generator)


# Other rooms import these fixtures, and pytest makes those anew for each room.
made: dict[str, Trained | Path] = {}


def once(name: str, make: Callable[[], Trained | Path]) -> Trained | Path:
    """What ``make`` returned first in this process under this name."""
    if name not in made:
        made[name] = make()
    return made[name]


@pytest.fixture(scope="session")
def word_folder(tmp_path_factory):
    def make() -> Path:
        folder = tmp_path_factory.mktemp("words")
        models.word_data(folder)
        return folder

    return once("words", make)


@pytest.fixture(scope="session")
def t1(word_folder, tmp_path_factory) -> Trained:
    """A word-level T1."""
    return once("t1", lambda: _word_level(word_folder, tmp_path_factory, "t1"))


@pytest.fixture(scope="session")
def t2(word_folder, tmp_path_factory) -> Trained:
    """A word-level T2, where the variant does not matter."""
    return once("t2", lambda: _word_level(word_folder, tmp_path_factory, "t2"))


@pytest.fixture(params=["t1", "t2"])
def trained(request) -> Trained:
    """Word-level models of both variants."""
    return request.getfixturevalue(request.param)


@pytest.fixture(scope="session")
def pieces(tmp_path_factory) -> Trained:
    """A T2 with sentencepiece and byte fallback."""

    def make() -> Trained:
        data = tmp_path_factory.mktemp("pieces") / "data"
        models.sentencepiece_data(data)
        save_dir = tmp_path_factory.mktemp("pieces_model")
        path = models.train(data, save_dir, "transnormer_t2_tiny", "--max-update", 150)
        return load(path, data)

    return once("pieces", make)


def _word_level(data: Path, tmp_path_factory, variant: str) -> Trained:
    save_dir = tmp_path_factory.mktemp(variant)
    return load(models.train(data, save_dir, f"transnormer_{variant}_tiny"), data)
