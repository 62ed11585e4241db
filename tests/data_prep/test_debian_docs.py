"""The corpus of Debian's packages: what is in it, and what is left out."""

import json

import pytest

from data_prep.documentation import debian_docs, markup
from data_prep.documentation.corpus import SPLITS
from data_prep.documentation.debian_documents import PACKAGES

from .debian_copies import write_documentation


@pytest.fixture
def unpacked(tmp_path):
    write_documentation(tmp_path / "root")
    return tmp_path / "root"


def made(dest, *options):
    options = ["--allow-other-versions", "--from-dir", *map(str, options)]
    assert debian_docs.main(["--dest", str(dest), *options]) == 0
    texts = {split: (dest / f"{split}.txt").read_text() for split in SPLITS}
    return texts, json.loads((dest / "manifest.json").read_text())


def test_text_without_markup_and_no_document_in_two_splits(unpacked, tmp_path):
    texts, manifest = made(tmp_path / "text", unpacked)
    everything = "".join(texts.values())
    assert (
        "The function kmalloc takes a size and flags, see the page. It continues here:"
        in everything
    )
    assert "Words of the page 7 with a name are kept in one line." in everything
    assert "1. The thing that Another entry number 007 is about." in everything
    assert "left out" not in everything and "previous page" not in everything
    assert "translation" not in everything and "Webster" not in everything
    names = [name for split in manifest["documents"].values() for name in split]
    assert len(names) == len(set(names)) > 250
    assert {name.split("/")[0] for name in names} == {each.name for each in PACKAGES}
    lines = [line for text in texts.values() for line in text.splitlines() if line]
    assert len(lines) == len(set(lines))


def test_words_are_set_apart_and_the_same_again(unpacked, tmp_path):
    texts, manifest = made(tmp_path / "one", unpacked, "--form", "words")
    assert "takes a size and flags , see the page ." in "".join(texts.values())
    _, again = made(tmp_path / "two", unpacked, "--form", "words")
    assert manifest == again


def test_mistakes(unpacked, tmp_path, fails):
    dest = tmp_path / "dest"
    command = ["--dest", dest, "--allow-other-versions", "--from-dir"]
    none = tmp_path / "none"
    fails(debian_docs.main, [*command, none], none, "no such", dest=dest)
    empty = tmp_path / "empty"
    empty.mkdir()
    fails(debian_docs.main, [*command, empty], empty, "linux-doc-6.1", dest=dest)
    (unpacked / "usr/share/dictd/gcide.dict.dz").unlink()
    fails(debian_docs.main, [*command, unpacked], unpacked, "dict-gcide", dest=dest)


def test_a_long_paragraph_becomes_lines_of_whole_sentences():
    text = " ".join(f"Sentence number {i} has these seven words." for i in range(100))
    lines = list(markup.restructured_text(text))
    assert " ".join(lines) == text
    assert all(len(line.split()) <= markup.MAX_WORDS for line in lines)
    assert all(line.endswith(".") for line in lines)
