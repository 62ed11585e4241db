"""Small problems of the standard library, as GLUE's and the user's files are read."""

import json
import sysconfig
from collections import Counter
from pathlib import Path

import pytest

from data_prep.documentation import stdlib_problems
from data_prep.documentation.stdlib_documents import package_documents
from data_prep.documentation.stdlib_problems import EXAMPLES, PACKAGES
from data_prep.labelled_texts import classification, glue

from .glue_copies import report_of, table_of


@pytest.fixture(scope="module")
def problems(tmp_path_factory):
    folder = tmp_path_factory.mktemp("problems") / "text"
    assert stdlib_problems.main(["--dest", str(folder)]) == 0
    return folder


def test_the_same_again_and_no_file_in_two_splits(problems, tmp_path):
    assert stdlib_problems.main(["--dest", str(tmp_path / "again")]) == 0
    for path in problems.rglob("*.tsv"):
        other = tmp_path / "again" / path.relative_to(problems)
        assert path.read_bytes() == other.read_bytes()
    manifest = json.loads((problems / "manifest.json").read_text())
    made = {
        str(path.relative_to(problems))
        for path in problems.rglob("*")
        if path.is_file()
    }
    assert {*manifest["files"], "manifest.json"} == made
    files = [name for each in manifest["documents"].values() for name in each]
    assert len(files) == len(set(files))


def test_labels_are_what_they_say(problems):
    stdlib = Path(sysconfig.get_paths()["stdlib"])
    documents = package_documents(stdlib, PACKAGES)
    homes = {}
    for name, texts in documents.items():
        for text in texts:
            homes.setdefault(text, set()).add(name)

    def rows(name):
        lines = (problems / name).read_text().splitlines()
        return [line.split("\t") for line in lines]

    for _, text, package in rows("topics/dev.tsv")[1:]:
        assert any(name.startswith(f"{package}/") for name in homes[text])
    assert Counter(row[2] for row in rows("topics/dev.tsv")[1:]) == dict.fromkeys(
        PACKAGES, EXAMPLES["valid"] // len(PACKAGES)
    )
    for _, label, _, text in rows("CoLA/train.tsv"):
        assert (text in homes) == (label == "1") or len(text.split()) < 9
    for _, one, other, label in rows("MNLI/dev_mismatched.tsv")[1:]:
        files = [(a, b) for a in homes[one] for b in homes[other]]
        same = any(a == b for a, b in files)
        near = any(a.split("/")[0] == b.split("/")[0] for a, b in files)
        # a text may stand in several files
        fits = {"entailment": same, "neutral": near, "contradiction": True}
        assert fits[label]


def test_they_are_prepared_as_glue_and_own_texts_are(
    problems, pretraining_data, tmp_path
):
    common = ["--data", str(pretraining_data), "--workers", "1"]
    arguments = ["MNLI", "CoLA", "--dest", str(tmp_path / "glue"), *common]
    arguments += ["--from-dir", str(problems), "--allow-other-sizes"]
    assert glue.main(arguments) == 0
    report = report_of(tmp_path / "glue/MNLI")
    assert report["splits"] == {
        "train": EXAMPLES["train"],
        **dict.fromkeys(("valid", "valid1"), EXAMPLES["valid"]),
        **dict.fromkeys(("test", "test1"), EXAMPLES["test"]),
    }
    labels = {row[3] for row in table_of(tmp_path / "glue/CoLA", "train")}
    assert labels == {"0", "1"}
    arguments = ["--dest", str(tmp_path / "topics"), *common, "--text-column"]
    arguments += ["sentence", "--train", str(problems / "topics/train.tsv")]
    arguments += ["--valid", str(problems / "topics/dev.tsv")]
    assert classification.main(arguments) == 0
    assert report_of(tmp_path / "topics")["labels"] == list(PACKAGES)
