"""Rules that need no model, against expressions worked out by hand."""

import json

import numpy as np
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer

from data_prep.__main__ import main as data_prep
from data_prep.long_range_arena.listops_generator import SYMBOLS
from fairseq_transnormer.analysis.trivial_rules import _words, digits_under_the_root
from fairseq_transnormer.data.labelled_sequences import LabelledSequences
from fairseq_transnormer.data.labelled_texts import SentenceData
from tests.commands import command
from tests.inference.problems import write_problem
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
    assert "accuracy 100.00" in capsys.readouterr().out
    record = json.loads(target.read_text())
    found = {name: each["accuracy"] for name, each in record["percent"].items()}
    assert record["settings"]["data"] == "listops"
    assert found["digits under the root"] == 100
    assert found["largest class"] < found["first token"] < 100
    test = LabelledSequences(tmp_path / "f", "test")
    labels = [test[index].label for index in range(len(test))]
    train = LabelledSequences(tmp_path / "f", "train")
    largest = np.bincount([train[index].label for index in range(len(train))]).argmax()
    assert found["largest class"] == 100 * np.mean(np.array(labels) == largest)
    command_refuses(trivial_rules, [tmp_path], capsys, tmp_path)


@pytest.mark.parametrize("pairs", [False, True])
@pytest.mark.parametrize("labels", [("no", "yes"), ("a", "b", "c"), ()])
def test_rules_of_texts(labels, pairs, tmp_path):
    """Each text names its class or score; a quotation mark quotes nothing."""
    data = SentenceData.read(write_problem(tmp_path, labels, pairs=pairs))
    for split in ("train", "valid"):
        rows = [f'0\t"the word{x}\t{"the" * pairs}\t{x}' for x in data.targets(split)]
        text = "\n".join(["index\ttext\tpair\tlabel", *rows, ""])
        (tmp_path / f"{split}.tsv").write_text(text)
    target = tmp_path / "found"
    assert command("analyse", "trivial_rules")([tmp_path, "--output", target]) == 0
    record = json.loads(target.read_text())
    assert record["split"] == "valid" and record["data"] == data.fingerprint()
    constant, words = record["percent"].values()
    if not labels:
        assert constant["correlation"] == 0 and words["correlation"] > 99
        return
    assert words["accuracy"] == words["mcc"] == 100
    train, valid = map(data.targets, ("train", "valid"))
    share = np.mean(np.array(valid) == max({*train}, key=train.count))
    assert constant["accuracy"] == pytest.approx(100 * share) and constant["mcc"] == 0


def test_the_bag_of_single_texts_is_scikit_learns(tmp_path):
    data = SentenceData.read(write_problem(tmp_path, ("no", "yes")))
    texts = {
        name: [f"w{i % 3} w{i % 7}" for i, _ in enumerate(data.targets(name))]
        for name in ("train", "valid")
    }
    for name, each in texts.items():
        rows = "".join(f"0\t{text}\t\tno\n" for text in each)
        (tmp_path / f"{name}.tsv").write_text("index\ttext\tpair\tlabel\n" + rows)
    expected = TfidfVectorizer().fit(texts["train"]).transform(texts["valid"])
    assert abs(_words(data, "valid")["valid"] - expected).max() < 1e-12
