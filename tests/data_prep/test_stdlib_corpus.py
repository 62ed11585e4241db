"""The built-in corpus and problems: divided by document, the same in every run."""

import json
import platform
import shutil
import subprocess
import sys
import sysconfig
from collections import Counter
from pathlib import Path

import pytest

from data_prep.documentation.corpus import hashed_split
from data_prep.documentation.prose import (
    FUNCTION_WORDS,
    comparison_key,
    is_prose,
    paragraphs,
)
from data_prep.documentation.stdlib_corpus import (
    HELD_OUT_SHARE,
    SALT,
    document_name,
    module_documents,
    package_documents,
    topic_documents,
)
from data_prep.documentation.stdlib_problems import EXAMPLES, PACKAGES
from fairseq_transnormer.data.fingerprints import file_sha256

from .commands import classification, contents, glue, stdlib_corpus, stdlib_problems
from .glue_copies import report_of, table_of

SPLITS = ("train", "valid", "test")


# the whole library, and a small one
SCRIPT = """
import sys, sysconfig
from data_prep.__main__ import main
whole, library, small = sys.argv[1:]
assert not main(["stdlib_corpus", "--dest", whole])
sysconfig.get_paths = lambda: {"stdlib": library}
assert not main(["stdlib_corpus", "--dest", small])
assert not {'antigravity', 'this', 'turtle', 'asyncio'} & set(sys.modules)
"""


@pytest.fixture(scope="module")
def corpora(tmp_path_factory):
    """What a process made that imported none of what it read: whole, and small."""
    folder = tmp_path_factory.mktemp("corpora")
    for name in ("email", "json", "pydoc_data"):
        stdlib = Path(sysconfig.get_paths()["stdlib"])
        shutil.copytree(stdlib / name, folder / "library" / name)
    names = [str(folder / name) for name in ("whole", "library", "small")]
    command = [sys.executable, "-c", SCRIPT, *names]
    subprocess.run(command, check=True, capture_output=True)
    return folder


@pytest.fixture
def corpus(corpora):
    """The corpus of the running Python."""
    return corpora / "whole"


def manifest_of(folder):
    return json.loads((folder / "manifest.json").read_text())


def read_documents(folder, split):
    """The paragraphs of each document of a split."""
    text = (folder / f"{split}.txt").read_text(encoding="utf-8")
    return [document.splitlines() for document in text.rstrip("\n").split("\n\n")]


def test_size_and_shares(corpus):
    sizes = {split: (corpus / f"{split}.txt").stat().st_size for split in SPLITS}
    total = sum(sizes.values())
    assert 1.5e6 < total < 6e6
    assert 0.03 < sizes["valid"] / total < 0.08
    assert 0.03 < sizes["test"] / total < 0.08
    assert manifest_of(corpus)["splits"]["train"]["bytes"] == sizes["train"]


def test_no_document_and_no_paragraph_in_two_splits(corpus):
    documents = manifest_of(corpus)["documents"]
    names = [name for split in SPLITS for name in documents[split]]
    assert len(names) == len(set(names))
    keys = []
    for split in SPLITS:
        texts = read_documents(corpus, split)
        assert len(texts) == len(documents[split])
        keys += [comparison_key(line) for lines in texts for line in lines]
    assert len(keys) == len(set(keys))
    assert "" not in keys


def test_manifest_counts_and_checksums(corpus):
    manifest = manifest_of(corpus)
    for split in SPLITS:
        texts = read_documents(corpus, split)
        counts = manifest["splits"][split]
        assert counts["documents"] == len(texts)
        assert counts["paragraphs"] == sum(map(len, texts))
        assert manifest["files"][f"{split}.txt"]["sha256"] == file_sha256(
            corpus / f"{split}.txt"
        )


def test_text_is_english(corpus):
    for split in SPLITS:
        lines = [line for lines in read_documents(corpus, split) for line in lines]
        words = " ".join(lines).lower().split()
        assert sum(word in FUNCTION_WORDS for word in words) > 0.35 * len(words)
        assert all(is_prose(line) for line in lines)
        assert not any(">>>" in line for line in lines)


def test_the_same_in_another_process(corpora, tmp_path, monkeypatch):
    paths = {"stdlib": str(corpora / "library")}
    monkeypatch.setattr(sysconfig, "get_paths", lambda: paths)
    assert stdlib_corpus(["--dest", str(tmp_path / "again")]) == 0
    assert contents(corpora / "small") == contents(tmp_path / "again")


def test_complete_corpus_is_kept(corpus, capsys, fails, monkeypatch):
    assert stdlib_corpus(["--dest", str(corpus)]) == 0
    assert "already complete" in capsys.readouterr().out
    monkeypatch.setattr(platform, "python_version", lambda: "3.99.0")
    fails(stdlib_corpus, ["--dest", corpus], corpus, "python", "'3.99.0'")


def test_split_depends_on_the_name_alone():
    for name, split in {"argparse": "valid", "csv": "test", "logging": "train"}.items():
        assert hashed_split(name, SALT, HELD_OUT_SHARE) == split


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("_pydecimal.py", "decimal"),
        ("_pyio.py", "io"),
        ("pyclbr.py", "pyclbr"),
        ("ntpath.py", "path"),
        ("_collections_abc.py", "collections"),
        ("email", "email"),
    ],
)
def test_forms_of_one_module_are_one_document(file, name):
    assert document_name(file) == name


@pytest.fixture
def other_library(tmp_path, monkeypatch):
    """An empty folder in the place of the standard library."""
    folder = tmp_path / "library"
    folder.mkdir()
    monkeypatch.setattr(sysconfig, "get_paths", lambda: {"stdlib": str(folder)})
    return folder


def test_stripped_installation(other_library, tmp_path, fails):
    dest = tmp_path / "text"
    fails(stdlib_corpus, ["--dest", dest], other_library, "topics.py", dest=dest)


def test_what_is_read_of_a_source_file(other_library):
    (other_library / "thing.py").write_text(
        '"""It is the first of all of them."""\n'
        "# This is a comment that is on\n# more than one line of the file.\n"
        "# A comment of one line is not of use.\n\n"
        "x = '''\n# This is not a comment but\n# a part of the string.\n'''\n"
        "class A:\n"
        "    '''This is what the class is for.'''\n"
        "    def f(self):\n"
        '        """And this is what it does."""\n'
    )
    (other_library / "test").mkdir()
    (other_library / "test" / "data.py").write_text('"""This is not to be in it."""')
    (other_library / "broken.py").write_text("def (")
    documents = module_documents(other_library)
    assert documents == {
        "thing": [
            "It is the first of all of them.",
            "This is a comment that is on more than one line of the file. "
            "A comment of one line is not of use.",
            "This is what the class is for.",
            "And this is what it does.",
        ]
    }


def test_topics_that_quote_one_another_are_one_document(other_library):
    shared = "This is a paragraph that is in two of the topics."
    topics = {"a": f"One of the three is this.\n\n{shared}", "b": shared}
    topics["c"] = "That is on its own and in no other."
    (other_library / "pydoc_data").mkdir()
    path = other_library / "pydoc_data" / "topics.py"
    path.write_text(f"topics = {topics!r}")
    assert set(topic_documents(other_library)) == {"topic:a", "topic:c"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Return the name\n   of it.", ["Return the name of it."]),
        ("x = f(a, b)\ny = x[1:2]", []),
        (">>> print('it is the end of it')\nit is the end of it", []),
        (
            "- the first of the items\n- the second\n  of the items",
            ["the first of the items", "the second of the items"],
        ),
        (
            "Use ``x`` with :class:`~a.B` for the *rest* of it::",
            ["Use x with a.B for the rest of it:"],
        ),
        ("XXX This is to be done by one of us.", ["This is to be done by one of us."]),
        ("name      what it is for\nother     what that is for", []),
        ("1234 5678 ----", []),
        ("Licensed to the PSF under an agreement of the owners", []),
    ],
)
def test_prose(text, expected):
    assert list(paragraphs(text)) == expected


@pytest.fixture(scope="module")
def problems(tmp_path_factory):
    folder = tmp_path_factory.mktemp("problems") / "text"
    assert stdlib_problems(["--dest", str(folder)]) == 0
    return folder


def test_the_same_again_and_no_file_in_two_splits(problems, tmp_path):
    assert stdlib_problems(["--dest", str(tmp_path / "again")]) == 0
    made = contents(problems)
    assert contents(tmp_path / "again") == made
    manifest = manifest_of(problems)
    assert {*manifest["files"], "manifest.json"} == {*made}
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
    assert glue(arguments) == 0
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
    assert classification(arguments) == 0
    assert report_of(tmp_path / "topics")["labels"] == list(PACKAGES)
