"""A small binarised corpus of real English, and fairseq's tools as functions."""

import importlib
import json
import pydoc_data.topics
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from fairseq.data import Dictionary

from tests.binary_data import write_binary_data
from tests.paths import USER_DIR


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
def fairseq_tool(monkeypatch):
    """Run a fairseq command in this process: fairseq_tool("train", DATA, ...)."""

    def run(name: str, *arguments) -> None:
        argv = [f"fairseq-{name}", *map(str, arguments)]
        argv += ["--user-dir", str(USER_DIR)]
        monkeypatch.setattr(sys, "argv", argv)
        torch.manual_seed(0)
        importlib.import_module(f"fairseq_cli.{name}").cli_main()

    return run


def fairseq_command(name: str, *arguments) -> str:
    """Run a fairseq command in a process of its own; returns what it printed."""
    done = subprocess.run(
        [
            sys.executable, "-m", f"fairseq_cli.{name}", *map(str, arguments),
            "--user-dir", str(USER_DIR),
        ],
        capture_output=True,
        text=True,
    )  # fmt: skip
    text = done.stdout + done.stderr
    assert done.returncode == 0, text
    return text


def training_arguments(arch: str, save_dir: Path, **options) -> list[str]:
    """Flags of a short training run on the CPU; ``options`` come on top."""
    flags = {
        "task": "language_modeling",
        "arch": arch,
        "optimizer": "adam",
        "adam-betas": "(0.9, 0.98)",
        "lr": 0.003,
        "lr-scheduler": "inverse_sqrt",
        "warmup-updates": 20,
        "tokens-per-sample": 64,
        "batch-size": 8,
        "required-batch-size-multiple": 1,
        "max-update": 40,
        "seed": 1,
        "save-dir": save_dir,
        "log-format": "json",
        "log-interval": 1,
        "num-workers": 0,
    }
    if arch.startswith("roberta"):
        flags |= {"task": "masked_lm", "criterion": "masked_lm"}
    flags |= {key.replace("_", "-"): value for key, value in options.items()}
    words = [str(part) for key, value in flags.items() for part in (f"--{key}", value)]
    return [*words, "--cpu"]


def logged(text: str, kind: str) -> list[dict]:
    """The JSON records of ``kind`` (train_inner, valid, ...) in a fairseq log."""
    marker = f"| INFO | {kind} | "
    lines = [line.split(marker)[1] for line in text.splitlines() if marker in line]
    return [json.loads(line) for line in lines]
