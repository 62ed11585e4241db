"""What would be another data set in silence is refused before a file is made."""

import json
import os

import numpy as np
import pytest

from data_prep.folders.hub import HubData, load
from data_prep.labelled_texts.labelled_tables import read_table
from data_prep.long_range_arena import lra_release
from data_prep.long_range_arena.listops_generator import encode
from tests.messages import refuses

from .commands import lra, split_text


@pytest.mark.parametrize(
    "expression", ["", "[MAX 2 3", "[MAX 2 ] [MIN 3 ]", "[FOO 2 ]"]
)
def test_an_expression_that_is_not_whole(expression):
    with refuses(ValueError, "symbol" if "FOO" in expression else "brackets"):
        encode(expression)


def test_a_text_made_below_the_texts_would_be_read_again(tmp_path, fails):
    texts, elsewhere = tmp_path / "texts", tmp_path / "elsewhere"
    texts.mkdir()
    elsewhere.mkdir()
    (texts / "link").symlink_to(elsewhere)
    (texts / "a.txt").write_text("A line.\n" * 9)
    dest = elsewhere / "made"
    fails(split_text, ["--input", texts, "--dest", dest], "would be read", dest=dest)


def test_a_pipe_among_texts_is_no_text(tmp_path):
    texts = tmp_path / "texts"
    texts.mkdir()
    (texts / "a.txt").write_text("".join(f"Line {i}.\n\n" for i in range(99)))
    os.mkfifo(texts / "b.txt")
    assert split_text(["--input", str(texts), "--dest", str(tmp_path / "made")]) == 0


def test_options_that_would_change_nothing(tmp_path, fails):
    dest = tmp_path / "made"
    command = ["listops", "--from-dir", tmp_path, "--dest", dest, "--seed", 7]
    fails(lra, command, "--seed", "--from-dir", dest=dest)


def test_a_picture_with_two_labels(tmp_path):
    metadata = tmp_path / "metadata"
    metadata.mkdir()
    lists = [metadata / "0.npy", metadata / "1.npy"]
    for label, path in enumerate(lists):
        path.write_text(f"imgs/0 a.png 0 {label} 1\n")
    with refuses(ValueError, "a.png", "another label"):
        lra_release.pathfinder_files(lists)


def test_an_empty_text(tmp_path, fails):
    folder = tmp_path / "lra_release/tsv_data"
    folder.mkdir(parents=True)
    for split in ("train", "eval", "test"):
        path = folder / f"new_aan_pairs.{split}.tsv"
        path.write_text("1.0\ta\tb\tone\ttwo\n1.0\ta\tb\t\ttwo\n")
    dest = tmp_path / "made"
    command = ["retrieval", "--from-dir", tmp_path / "lra_release", "--dest", dest]
    fails(lra, command, "example 2", "empty", dest=dest)


def test_half_of_a_download(tmp_path):
    (tmp_path / "train-00000-of-00002.parquet").touch()
    with refuses(ValueError, "1 of 2 parts"):
        load(HubData("a/b", "0"), tmp_path, ["."], ["train"])


def test_a_label_without_a_value_sets_no_type(tmp_path):
    path = tmp_path / "a.jsonl"
    rows = [{"text": "a", "label": label} for label in (None, *[0, 1] * 200)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    split = read_table(path, ["text"], "label", True, True, one_type=True)
    assert (len(split.examples), split.skipped) == (400, 1)
    assert np.all([each.label in "01" for each in split.examples])
