"""The corpus of Debian's packages: where it comes from, and what is left out."""

import gzip
import json
import shutil
import subprocess

import pytest

from data_prep.documentation import debian_docs, markup
from data_prep.documentation.corpus import SPLITS
from data_prep.documentation.debian_documents import PACKAGES

RST = """.. _label:

Heading of the page
===================

The function :c:func:`kmalloc` takes a *size* and ``flags``, see `the page <x.html>`_.
It goes on here::

    code that is left out of the text

A paragraph behind the code, number {number}, which is kept here.
"""
HTML = """<html><head><title>No title in the text here</title></head><body>
<div class="navheader"><p>Go to the previous page of this book</p></div>
<p>Words of the page {number} with <code>a name</code> are<br/> kept in one line.</p>
<pre>SELECT code FROM page that is left out;</pre></body></html>
"""
ENTRY = """Word{number} \\Word"{number}\\, n. [OE. word.]
   1. The thing that {{Another}} entry number {number} is about.
      [1913 Webster]

"""


@pytest.fixture
def unpacked(tmp_path):
    """usr/share as the packages have it, with 300 documents."""
    root = tmp_path / "root"
    doc = root / "usr/share/doc"
    linux = doc / "linux-doc-6.1/Documentation"
    python = doc / "python3.11/html/_sources"
    postgresql = doc / "postgresql-doc-15/html"
    dictionary = root / "usr/share/dictd"
    for folder in (linux / "translations", python, postgresql, dictionary):
        folder.mkdir(parents=True)
    for number in range(100):
        text = RST.format(number=number)
        (linux / f"page{number}.rst.gz").write_bytes(gzip.compress(text.encode()))
        text = RST.format(number=number + 1000)
        (python / f"page{number}.rst.txt").write_text(text)
        (postgresql / f"page{number}.html").write_text(HTML.format(number=number))
    foreign = gzip.compress(b"Text of a translation that is not kept at all.\n")
    (linux / "translations/page.rst.gz").write_bytes(foreign)
    entries = "".join(ENTRY.format(number=f"{i:03}") for i in range(50))
    licence = "   A licence in front of the entries that is left out.\n\n"
    content = (licence + entries).encode() + b"   A byte \x92 of another encoding.\n"
    (dictionary / "gcide.dict.dz").write_bytes(gzip.compress(content))
    return root


def made(dest, *options):
    assert debian_docs.main(["--dest", str(dest), *map(str, options)]) == 0
    texts = {split: (dest / f"{split}.txt").read_text() for split in SPLITS}
    return texts, json.loads((dest / "manifest.json").read_text())


def test_text_without_markup_and_no_document_in_two_splits(unpacked, tmp_path):
    texts, manifest = made(tmp_path / "text", "--from-dir", unpacked)
    everything = "".join(texts.values())
    assert (
        "The function kmalloc takes a size and flags, see the page. It goes on here:"
        in everything
    )
    assert "Words of the page 7 with a name are kept in one line." in everything
    assert "1. The thing that Another entry number 007 is about." in everything
    assert "left out" not in everything and "previous page" not in everything
    assert "translation" not in everything and "Webster" not in everything
    names = [name for split in manifest["documents"].values() for name in split]
    assert len(names) == len(set(names)) > 250
    assert {name.split("/")[0] for name in names} == set(PACKAGES)
    lines = [line for text in texts.values() for line in text.splitlines() if line]
    assert len(lines) == len(set(lines))


def test_words_are_set_apart_and_the_same_again(unpacked, tmp_path):
    texts, manifest = made(tmp_path / "one", "--from-dir", unpacked, "--form", "words")
    assert "takes a size and flags , see the page ." in "".join(texts.values())
    _, again = made(tmp_path / "two", "--from-dir", unpacked, "--form", "words")
    assert manifest == again


def test_deb_files_give_what_their_content_gives(unpacked, tmp_path):
    debs = tmp_path / "debs"
    debs.mkdir()
    for package in PACKAGES:
        build = tmp_path / package
        (build / "DEBIAN").mkdir(parents=True)
        control = f"Package: {package}\nVersion: 1\nArchitecture: all\n"
        control += "Maintainer: nobody <nobody@example.org>\nDescription: text\n"
        (build / "DEBIAN/control").write_text(control)
    shutil.copytree(unpacked / "usr", tmp_path / PACKAGES[0] / "usr")
    for package in PACKAGES:
        subprocess.run(
            ["dpkg-deb", "--build", tmp_path / package, debs / f"{package}_1_all.deb"],
            check=True,
            capture_output=True,
        )
    texts, _ = made(tmp_path / "of-debs", "--from-dir", debs)
    assert texts == made(tmp_path / "of-folder", "--from-dir", unpacked)[0]


def test_mistakes(unpacked, tmp_path, fails):
    dest = tmp_path / "dest"
    command = ["--dest", dest, "--from-dir"]
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
