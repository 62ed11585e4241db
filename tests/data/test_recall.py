"""Associative recall as tensors, against the lines of text that they stand for."""

import json

import pytest

from data_prep.symbols.series import recalled
from fairseq_transnormer.data import REPORT
from fairseq_transnormer.data.recall import RecallLines, mixed_folders, read_settings
from fairseq_transnormer.data.subword_files import PAD, dictionary_symbols
from tests.data_prep.commands import recall
from tests.messages import refuses

LAW = {"vocabulary": 24, "length": 30, "pairs": 3, "power": 0.5}


@pytest.fixture
def folder(tmp_path):
    words = [word for name, value in LAW.items() for word in (f"--{name}", str(value))]
    words += ["--counts", "40", "5", "5", "--dest", str(tmp_path / "data")]
    assert recall(words) == 0
    return tmp_path / "data"


def expected_lines():
    return [
        [part.split() for part in line.split(" | ")]
        for line in recalled(40, **LAW, seed=[1, 0])
    ]


def test_side_by_side(folder):
    symbols, lines = dictionary_symbols(folder), RecallLines(folder, "train")
    assert len(lines) == 40
    for number, (inputs, told) in enumerate(expected_lines()):
        assert [symbols[i] for i in lines.inputs[number]] == inputs
        found = ["." if i == PAD else symbols[i] for i in lines.targets[number]]
        assert found == told


def test_stacked(folder):
    symbols = dictionary_symbols(folder)
    lines = RecallLines(folder, "train", stacked=True)
    assert lines.inputs.shape == (40, 27, 2) and lines.targets.shape == (40, 27)
    for number, (inputs, told) in enumerate(expected_lines()):
        pairs = [*zip(inputs[:6:2], inputs[1:6:2], strict=True)]
        alone = [(symbol, "<pad>") for symbol in inputs[6:]]
        found = [(symbols[a], symbols[b]) for a, b in lines.inputs[number]]
        assert found == pairs + alone
        found = ["." if i == PAD else symbols[i] for i in lines.targets[number]]
        assert found == told[3:]


def test_mistakes_are_named(folder, tmp_path):
    with refuses(ValueError, "pairs", 4, str(folder), "3"):
        read_settings(folder, 4)
    with refuses(OSError, REPORT):
        RecallLines(tmp_path, "train")
    report = json.loads((folder / REPORT).read_text())
    report["settings"]["data"] = "copy_task"
    (folder / REPORT).write_text(json.dumps(report))
    with refuses(ValueError, REPORT, "data_prep recall"):
        RecallLines(folder, "train")


def test_a_mixture_is_of_folders_of_one_dictionary(tmp_path):
    for pairs, vocabulary in ((2, 24), (4, 24), (5, 26)):
        words = ["--pairs", str(pairs), "--vocabulary", str(vocabulary)]
        words += ["--counts", "4", "2", "2", "--dest", str(tmp_path / str(pairs))]
        assert recall(words) == 0
    expected = [(2, tmp_path / "2"), (4, tmp_path / "4")]
    for mixture in ("2,4", "4,2"):
        assert [*mixed_folders(tmp_path, mixture).items()] == expected
    for wrong in ("4,4", "4,0", "-4"):
        with refuses(ValueError, "mixture", wrong, "4,16"):
            mixed_folders(tmp_path, wrong)
    with refuses(ValueError, tmp_path, "dict.txt", "--vocabulary"):
        mixed_folders(tmp_path, "4,5")
    with refuses(OSError, tmp_path / "3"):
        mixed_folders(tmp_path, "4,3")
    (tmp_path / "4").rename(tmp_path / "3")
    with refuses(ValueError, "pairs", 3, 4):
        mixed_folders(tmp_path, "3,2")
