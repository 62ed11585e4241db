"""The text that models of words score."""

import os

import pytest

from tests.inference import models


@pytest.fixture
def text_file(tmp_path):
    """Lines as the models know them, blank ones and an unknown word among them."""
    lines = models.sentences(23)
    lines[4:4] = [""]
    lines[11:11] = ["", "the xyzzy river crosses"]
    path = tmp_path / "text.txt"
    path.write_text("".join(f"{line}{os.linesep}" for line in lines), encoding="utf-8")
    return path
