"""Rules that need no model, against expressions worked out by hand."""

import json

import numpy as np
import pytest

from data_prep.__main__ import main as data_prep
from data_prep.long_range_arena.listops_generator import SYMBOLS
from fairseq_transnormer.analysis.trivial_rules import digits_under_the_root
from fairseq_transnormer.data.labelled_sequences import LabelledSequences
from tests.commands import command
from tests.messages import command_refuses


def ids(expression: str) -> np.ndarray:
    return np.array([SYMBOLS.index(symbol) for symbol in expression.split()])


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("[MIN 4 7 [MAX 0 9 ] 3 ]", 3),
        ("[MAX [MIN 9 9 ] 2 5 ]", 5),
        ("[SM 7 8 [MED 1 2 ] 9 ]", 4),
        ("[MED 1 8 [SM 1 1 ] ]", 4),
        ("[MIN [MAX 1 2 ] [MAX 3 4 ] ]", 0),
    ],
)
def test_digits_under_the_root(expression, value):
    assert digits_under_the_root(ids(expression)) == value


def test_accuracies_on_generated_expressions(tmp_path, capsys):
    """Between chance and one; without anything nested the last rule is always right."""
    common = ["--counts", "400", "10", "200", "--workers", "1"]
    flat = ["--max-depth", "2", "--max-args", "9", "--shortest", "3", "--longest", "12"]
    assert (
        data_prep(["lra", "listops", "--dest", str(tmp_path / "f"), *common, *flat])
        == 0
    )
    trivial_rules, target = command("analyse", "trivial_rules"), tmp_path / "found"
    assert trivial_rules([tmp_path / "f", "--output", target]) == 0
    assert "100.00 %" in capsys.readouterr().out
    record = json.loads(target.read_text())
    found = record["accuracy"]
    assert record["examples"] == 200 and record["settings"]["data"] == "listops"
    assert found["digits under the root"] == 1.0
    assert found["largest class"] < found["first token"] < 1.0
    test = LabelledSequences(tmp_path / "f", "test")
    labels = [test[index].label for index in range(len(test))]
    train = LabelledSequences(tmp_path / "f", "train")
    largest = np.bincount([train[index].label for index in range(len(train))]).argmax()
    assert found["largest class"] == np.mean(np.array(labels) == largest)
    command_refuses(trivial_rules, [tmp_path], capsys, tmp_path)
