"""Models that are trained once for all tests of scoring, and the text they score."""

import os

import pytest

import fairseq_transnormer  # noqa: F401 (registers the models)
from tests.generation import models

MASKED = ("--task", "masked_lm", "--criterion", "masked_lm")


@pytest.fixture(scope="session")
def word_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("words")
    models.word_data(folder)
    return folder


@pytest.fixture(scope="session")
def checkpoint_of(word_folder, tmp_path_factory):
    """The checkpoint of an architecture, trained a little on words."""
    known = {}

    def train(arch, data=word_folder, *more):
        if (arch, data, more) not in known:
            save_dir = tmp_path_factory.mktemp(arch)
            options = [*(MASKED if arch.startswith("roberta") else ())]
            if arch == "transformer_lm":
                options += ["--decoder-layers", 2, "--decoder-embed-dim", 32]
                options += ["--decoder-ffn-embed-dim", 32]
                options += ["--decoder-attention-heads", 2]
            options += ["--max-update", 12, *more]
            known[arch, data, more] = models.train(data, save_dir, arch, *options)
        return known[arch, data, more]

    return train


@pytest.fixture(scope="session")
def piece_folder(tmp_path_factory):
    data = tmp_path_factory.mktemp("pieces") / "data"
    models.sentencepiece_data(data)
    return data


@pytest.fixture
def text_file(tmp_path):
    """Lines as the models know them, blank ones and an unknown word among them."""
    lines = models.sentences(23)
    lines[4:4] = [""]
    lines[11:11] = ["", "the xyzzy river crosses"]
    path = tmp_path / "text.txt"
    path.write_text("".join(f"{line}{os.linesep}" for line in lines), encoding="utf-8")
    return path
