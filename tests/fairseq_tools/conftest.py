"""A small binarised corpus of real English, and fairseq's tools as functions."""

import importlib
import pydoc_data.topics
import tempfile
from pathlib import Path

import pytest
import torch
from fairseq.data import Dictionary

from tests.binary_data import write_binary_data
from tests.forked_trainings import logged, start_command, training_arguments, wait_for
from tests.inference.models import run_fairseq

__all__ = ["logged", "training_arguments"]


def words_of_documentation() -> list[list[str]]:
    """Paragraphs of the language reference that comes with Python."""
    topics = pydoc_data.topics.topics
    text = "\n\n".join(topics[name] for name in sorted(topics))
    paragraphs = [paragraph.split() for paragraph in text.split("\n\n")]
    return [words for words in paragraphs if len(words) > 5][:1200]


@pytest.fixture(scope="session")
def data_bin(tmp_path_factory) -> Path:
    """Word-level train, valid and test splits with a dictionary of some 1,500 words."""
    folder = tmp_path_factory.mktemp("data-bin")
    paragraphs = words_of_documentation()
    splits = {
        "train": paragraphs[:1000],
        "valid": paragraphs[1000:1100],
        "test": paragraphs[1100:],
    }
    dictionary = Dictionary()
    for words in splits["train"]:
        for word in words:
            dictionary.add_symbol(word)
    dictionary.finalize(threshold=3, padding_factor=8)
    lines = {name: [" ".join(words) for words in rows] for name, rows in splits.items()}
    return write_binary_data(folder, dictionary, lines)


@pytest.fixture
def fairseq_tool():
    """Run a fairseq command in this process: fairseq_tool("train", DATA, ...)."""

    def run(name: str, *arguments) -> None:
        torch.manual_seed(0)
        main = importlib.import_module(f"fairseq_cli.{name}").cli_main
        run_fairseq(main, *arguments)

    return run


def fine_tuning_arguments(arch: str, save_dir: Path, **options) -> list[str]:
    """``training_arguments`` of sentence_prediction with two classes."""
    given = {
        "task": "sentence_prediction",
        "criterion": "sentence_prediction",
        "num_classes": 2,
        "init_token": 0,
        "separator_token": 2,
        "max_positions": 512,
        "max_epoch": 100,
        "tokens_per_sample": None,
        "best_checkpoint_metric": "accuracy",
        "maximize_best_checkpoint_metric": True,
        "no_epoch_checkpoints": True,
    }
    return training_arguments(arch, save_dir, **given | options)


def fairseq_command(name: str, *arguments) -> str:
    """Run a fairseq command in a process of its own; returns what it printed."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        codes = wait_for([start_command(name, arguments, log)])
        text = log.read_text()
    assert codes == [0], text
    return text
