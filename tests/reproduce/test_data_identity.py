"""Runs are told apart by what is in their data, whatever its size and its reports."""

import json
import os
import shutil

import pytest

from fairseq_transnormer.data.labelled_sequences import read_manifest
from fairseq_transnormer.data.labelled_texts import SentenceData
from fairseq_transnormer.reproduce.tables.corpora import (
    LabelledText,
    LabelledTokens,
    Text,
)
from tests.inference.problems import write_problem
from tests.messages import refuses
from tests.tiny_data import write_tiny_data


def make_text(folder):
    write_tiny_data(folder)
    for kind in ("bin", "idx"):
        shutil.copy(folder / f"valid.{kind}", folder / f"test.{kind}")
    return Text(folder, "masked_lm")


def make_labelled_text(folder):
    return LabelledText(write_problem(folder), "sentence_prediction")


def make_labelled_tokens(folder):
    from data_prep.long_range_arena.lra import main

    options = ["--shortest", "20", "--longest", "40", "--counts", "8", "4", "4"]
    options += ["--workers", "1"]  # the others would be processes that import torch
    assert main(["listops", "--dest", str(folder), *options]) == 0
    return LabelledTokens(folder, "long_range_arena")


@pytest.fixture(scope="module")
def originals(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    return {
        make: make(folder / make.__name__)
        for make in (make_text, make_labelled_text, make_labelled_tokens)
    }


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (make_text, "train.bin"),
        (make_text, "train.idx"),
        (make_text, "test.bin"),
        (make_text, "dict.txt"),
        (make_labelled_text, "input0/train.bin"),
        (make_labelled_text, "label/train.bin"),
        (make_labelled_text, "input0/dict.txt"),
        (make_labelled_tokens, "train.tokens.0.bin"),
        (make_labelled_tokens, "train.labels.npy"),
    ],
)
def test_one_byte_of_any_file_counts(originals, make, name, tmp_path):
    """... although the file's size, its times and the folder's report stay."""
    folder = tmp_path / "copy"
    shutil.copytree(originals[make].folder, folder)
    corpus = type(originals[make])(folder, "task")
    # wherever the folder is
    assert corpus.fingerprint() == originals[make].fingerprint()
    path = folder / name
    times, content = path.stat(), bytearray(path.read_bytes())
    content[-2] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert corpus.fingerprint() != originals[make].fingerprint()


DEEP = "[" * 100_000


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"labels": 3}, ("labels", 3)),
        ({"labels": [1]}, ("labels",)),
        ({"splits": {"train": "many"}}, ("splits", "many")),
        ({"splits": {"train": -1}}, ("splits", -1)),
        ({"splits": ["train"]}, ("splits", "train")),
        ({"max_positions": float("inf")}, ("max_positions", "inf")),
        ({"max_positions": True}, ("max_positions", "True")),
        ({"target_scale": 0}, ("target_scale", 0)),
        ({"regression": "no"}, ("regression", "no")),
        ({"task": None}, ("task", "None")),
    ],
)
def test_a_value_of_a_report_that_does_not_do_is_named(tmp_path, changes, parts):
    path = write_problem(tmp_path / "problem") / "report.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    with refuses(ValueError, path, *parts) as caught:
        SentenceData.read(path.parent)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "{", "[]", "3", "{}", "\xff", DEEP])
@pytest.mark.parametrize("name", ["report.json", "manifest.json"])
def test_malformed_reports_are_told_in_a_line(tmp_path, name, text):
    path = tmp_path / name
    path.write_bytes(text.encode("latin-1"))
    read = SentenceData.read if name == "report.json" else read_manifest
    with refuses(ValueError, path) as caught:
        read(tmp_path)
    assert "\n" not in str(caught.value)
