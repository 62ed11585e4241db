"""The corpora of Debian's packages: what is in them, and what is left out."""

import gzip
import json

import pytest

from data_prep.documentation import markup
from data_prep.documentation.corpus import SPLITS
from data_prep.documentation.debian_docs import READERS
from data_prep.documentation.debian_packages import LINUX
from data_prep.documentation.documentation_topics import (
    FILES,
    SECTIONS,
    without_giveaways,
)

from .commands import contents, debian_docs, documentation_topics
from .debian_copies import documentation, write_packages


def test_text_without_markup_and_no_document_in_two_splits(tmp_path):
    write_packages(tmp_path)
    dest = tmp_path / "text"
    options = ["--allow-other-versions", "--from-dir", tmp_path]
    assert debian_docs(["--dest", dest, *options]) == 0
    texts = {split: (dest / f"{split}.txt").read_text() for split in SPLITS}
    manifest = json.loads((dest / "manifest.json").read_text())
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
    assert {name.split("/")[0] for name in names} == {each.name for each in READERS}
    lines = [line for text in texts.values() for line in text.splitlines() if line]
    assert len(lines) == len(set(lines))


def test_mistakes(tmp_path, fails):
    dest, empty = tmp_path / "dest", tmp_path / "empty"
    empty.mkdir()
    command = ["--dest", dest, "--allow-other-versions", "--from-dir", empty]
    fails(debian_docs, command, empty, "linux-doc-6.1_*.deb", dest=dest)
    files = documentation()
    del files["usr/share/dictd/gcide.dict.dz"]
    write_packages(empty, files)
    fails(debian_docs, command, "dict-gcide", dest=dest)


def test_a_long_paragraph_becomes_lines_of_whole_sentences():
    text = " ".join(f"Sentence number {i} has these seven words." for i in range(100))
    lines = list(markup.restructured_text(text))
    assert " ".join(lines) == text
    assert all(len(line.split()) <= markup.MAX_WORDS for line in lines)
    assert all(line.endswith(".") for line in lines)


PARAGRAPH = (
    "The {section} of number {number} takes words, as drivers/{section}/core.c does, "
    "and goes on with enough others that it is a paragraph, {place}, of its own page."
)


def section_files():
    """The package's documentation: 30 pages in each section, and other folders."""
    files = {}
    for section in (*SECTIONS, "powerpc"):
        for number in range(30):
            text = "\n\n".join(
                PARAGRAPH.format(
                    section=section, number=f"{section}{number}", place=place
                )
                for place in range(80 if number == 0 else 3)
            )
            name = f"{LINUX.documents}/{section}/page{number}.rst.gz"
            files[name] = gzip.compress(text.encode())
    return files


@pytest.fixture
def sections(tmp_path):
    write_packages(tmp_path, section_files())
    return tmp_path


def rows_of(dest):
    return {
        split: [line.split("\t") for line in (dest / name).read_text().splitlines()]
        for split, name in FILES.items()
    }


def test_labels_documents_and_the_same_again(sections, tmp_path):
    command = ["--from-dir", str(sections), "--allow-other-versions", "--dest"]
    assert documentation_topics([*command, str(tmp_path / "one")]) == 0
    rows = rows_of(tmp_path / "one")
    manifest = json.loads((tmp_path / "one/manifest.json").read_text())
    assert {*manifest["files"], "manifest.json"} == {*contents(tmp_path / "one")}
    pages = {}
    for split, (header, *examples) in rows.items():
        assert header == ["index", "sentence", "label"]
        assert [row[0] for row in examples] == [str(i) for i in range(len(examples))]
        assert {row[2] for row in examples} == set(SECTIONS)
        assert manifest["splits"][split]["examples"] == len(examples)
        assert not any("/" in row[1] for row in examples)
        pages[split] = {row[1].split("number ")[1].split()[0] for row in examples}
        # of a page of 80 paragraphs, 60
        largest = max(len(examples) for examples in by_page(examples).values())
        assert largest <= 60
    assert sum(map(len, pages.values())) == len(set.union(*pages.values()))
    documents = [name for each in manifest["documents"].values() for name in each]
    assert len(documents) == len(set(documents)) == 30 * len(SECTIONS)
    assert documentation_topics([*command, str(tmp_path / "two")]) == 0
    assert rows_of(tmp_path / "two") == rows
    fewer = [*command, str(tmp_path / "fewer"), "--paragraphs-per-document", "2"]
    assert documentation_topics(fewer) == 0
    for _, *examples in rows_of(tmp_path / "fewer").values():
        assert {len(each) for each in by_page(examples).values()} == {2}


def by_page(examples):
    pages = {}
    for _, text, _ in examples:
        pages.setdefault(text.split("number ")[1].split()[0], []).append(text)
    return pages


@pytest.mark.parametrize(
    ("text", "section", "kept"),
    [
        ("The SCSI layer of scsi hosts", "scsi", "The layer of hosts"),
        ("see net/core for Networking here", "networking", "see for here"),
        ("a filesystem and filesystems", "filesystems", "a and"),
        ("the driver API, a driver-api, driver", "driver-api", "the , a , driver"),
        ("retrace and trace.", "trace", "retrace and ."),
    ],
)
def test_giveaways_are_taken_out(text, section, kept):
    assert without_giveaways(text, section) == kept


def test_a_section_without_text_is_an_error(tmp_path, fails):
    files = section_files()
    write_packages(tmp_path, {n: files[n] for n in files if "/virt/" not in n})
    dest = tmp_path / "dest"
    arguments = ["--from-dir", tmp_path, "--dest", dest, "--allow-other-versions"]
    fails(documentation_topics, arguments, "section 'virt'", dest=dest)
