"""Text divided by document, or by paragraph where there are few documents."""

import json
import os
from collections import Counter, defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_prep.own_text.division import Wanted, divide, sizes_of_splits
from data_prep.own_text.documents import find_files
from tests.messages import assert_names, lines_naming, refuses

from .binary_reading import read_text
from .commands import split_text, text, verify


def write_documents(folder, count, paragraphs=40, suffix=".txt"):
    """Documents whose every paragraph names its document."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        content = "\n\n".join(
            f"doc{number:03} part {i} begins\nand ends with word{i % 7}"
            for i in range(paragraphs)
        )
        (folder / f"{number:03}{suffix}").write_text(content + "\n")
    return folder


def split_of(dest):
    """Lines of each split that was written."""
    return {
        name: (dest / f"{name}.txt").read_text().splitlines()
        for name in ("train", "valid", "test")
    }


def documents_of(lines):
    return Counter(line.split()[0] for line in lines if line.startswith("doc"))


def run(dest, folder, *more):
    words = ["--dest", dest, "--input", folder, *more]
    return split_text([str(word) for word in words])


def test_each_of_few_documents_is_in_every_split(tmp_path, capsys):
    """One file a language: no language may be alone in a split, or missing from one."""
    folder = write_documents(tmp_path / "in", 4)
    assert run(tmp_path / "out", folder) == 0
    splits = split_of(tmp_path / "out")
    for lines in splits.values():
        assert len(documents_of(lines)) == 4
    counts = {name: sum(documents_of(x).values()) for name, x in splits.items()}
    assert counts == {"train": 144, "valid": 8, "test": 8}
    assert set(documents_of(splits["valid"]).values()) == {2}
    err = capsys.readouterr().err
    assert lines_naming(err, "by paragraph", "4 different documents")
    assert lines_naming(err, "valid", "4 documents", "8 paragraphs")
    assert lines_naming(err, "warning", "fewer than 20", "valid 4", "test 4")


@pytest.mark.parametrize("way", ["document", "paragraph"])
def test_copies_of_a_document_are_one(tmp_path, way):
    folder = write_documents(tmp_path / "in", 30)
    assert run(tmp_path / "out", folder, "--split-by", way) == 0
    for path in list(folder.iterdir()):
        content = path.read_bytes()
        for name, copy in {
            "copy": content,
            "windows": content.replace(b"\n", b"\r\n"),
            "mark": b"\xef\xbb\xbf" + content,
            "end": content + b" \n\n",
        }.items():
            (folder / f"z{name}{path.name}").write_bytes(copy)
    assert run(tmp_path / "copies", folder, "--split-by", way) == 0
    assert split_of(tmp_path / "copies") == split_of(tmp_path / "out")


def test_paragraphs_stay_whole_and_none_is_lost(tmp_path):
    folder = write_documents(tmp_path / "in", 3)
    assert run(tmp_path / "out", folder) == 0
    found = []
    for name in ("train", "valid", "test"):
        content = (tmp_path / f"out/{name}.txt").read_text()
        found += content.rstrip("\n").split("\n\n")
    given = []
    for path in sorted(folder.iterdir()):
        given += path.read_text().rstrip("\n").split("\n\n")
    assert sorted(found) == sorted(given)


def test_many_documents_stay_whole(tmp_path, capsys):
    folder = write_documents(tmp_path / "in", 100, paragraphs=2)
    assert run(tmp_path / "out", folder) == 0
    homes = defaultdict(set)
    for name, lines in split_of(tmp_path / "out").items():
        for document in documents_of(lines):
            homes[document].add(name)
    assert Counter(map(tuple, homes.values())) == {
        ("train",): 90,
        ("valid",): 5,
        ("test",): 5,
    }
    err = capsys.readouterr().err
    assert lines_naming(err, "by document") and lines_naming(err, "test", "5 documents")
    assert lines_naming(err, "warning", "valid 5", "test 5")
    assert run(tmp_path / "more", write_documents(tmp_path / "all", 400, 1)) == 0
    assert "warning" not in capsys.readouterr().err
    # names and places do not matter, the seed does
    moved = tmp_path / "moved/deeper"
    moved.mkdir(parents=True)
    for number, path in enumerate(sorted(folder.iterdir(), reverse=True)):
        (moved / f"{number}.txt").write_bytes(path.read_bytes())
    for name, more in (("same", []), ("other", ["--seed", "2"])):
        assert run(tmp_path / name, moved.parent, *more) == 0
        test = documents_of(split_of(tmp_path / name)["test"])
        assert ({*test} == {x for x in homes if "test" in homes[x]}) == (name == "same")


@pytest.mark.parametrize("way", ["document", "paragraph"])
def test_the_way_can_be_chosen(tmp_path, capsys, way):
    folder = write_documents(tmp_path / "in", 30)
    assert run(tmp_path / "out", folder, "--split-by", way) == 0
    valid = documents_of(split_of(tmp_path / "out")["valid"])
    assert (len(valid) == 2) == (way == "document")
    err = capsys.readouterr().err
    assert lines_naming(err, f"by {way}")
    told = lines_naming(err, "warning", "other paragraphs", "in train")
    assert bool(told) == (way == "paragraph")


@pytest.mark.parametrize(
    ("count", "fractions", "sizes"),
    [(30, (0.02, 0.49, 0.49), [1, 14, 15]), (3, (0.02, 0.97, 0.01), [1, 1, 1])],
)
def test_no_split_is_empty_if_there_are_documents_for_all(count, fractions, sizes):
    assert [*sizes_of_splits(count, fractions).values()] == sizes


def test_lines_where_no_blank_line_divides(tmp_path):
    """A sentence a line, and Chinese, whose words no space divides."""
    (tmp_path / "in").mkdir()
    lines = [f"第{i}句话没有空格" for i in range(200)]
    (tmp_path / "in/zh.txt").write_text("\n".join(lines), encoding="utf-8")
    assert run(tmp_path / "out", tmp_path / "in") == 0
    splits = split_of(tmp_path / "out")
    assert 8 <= len(splits["valid"]) <= 12 and "" not in splits["valid"]
    assert sorted(sum(splits.values(), [])) == sorted(lines)


@pytest.mark.parametrize("per_line", [False, True])
@pytest.mark.parametrize("seed", range(1, 6))
def test_long_paragraphs_fill_each_split(tmp_path, per_line, seed):
    """A title and a body without blank lines: no split has titles alone."""
    (tmp_path / "in").mkdir()
    for i in range(10):
        lines = [f"{i} {number} " + "word " * 5 for number in range(60)]
        body = (" " if per_line else "\n").join(lines)
        (tmp_path / f"in/{i}.txt").write_text(f"Title {i}\n\n{body}\n")
    (tmp_path / "in/empty.txt").touch()
    assert run(tmp_path / "out", tmp_path / "in", "--seed", seed) == 0
    sizes = {x: len("".join(lines)) for x, lines in split_of(tmp_path / "out").items()}
    total = sum(sizes.values())
    for split in ("valid", "test"):
        assert 0.025 < sizes[split] / total < (0.11 if per_line else 0.06)


def test_a_header_is_no_paragraph_that_fills_a_split(tmp_path):
    (tmp_path / "in").mkdir()
    body = [f"sentence {i}" for i in range(400)]
    text = "\n".join(["A title", "", *body, "", "The end", ""])
    (tmp_path / "in/a.txt").write_text(text)
    assert run(tmp_path / "out", tmp_path / "in") == 0
    splits = split_of(tmp_path / "out")
    assert 350 <= len(splits["train"]) <= 370
    lines = [line for lines in splits.values() for line in lines if line]
    assert sorted(lines) == sorted(["A title", *body, "The end"])


def test_empty_files_are_no_documents(tmp_path):
    folder = write_documents(tmp_path / "in", 4)
    (folder / "empty.txt").write_text(" \n")
    for seed in range(1, 6):
        dest = tmp_path / f"out{seed}"
        assert run(dest, folder, "--split-by", "document", "--seed", seed) == 0
        assert all(documents_of(lines) for lines in split_of(dest).values())


@given(
    sizes=st.lists(st.integers(1, 30), min_size=1, max_size=12),
    seed=st.integers(0, 2**63 - 1),
    copies=st.booleans(),
)
@settings(max_examples=12, deadline=None)
def test_any_division_by_paragraph(tmp_path_factory, sizes, seed, copies):
    """Parts to a paragraph a split, copies together, names of no matter."""
    folder = tmp_path_factory.mktemp("in")
    for number, size in enumerate(sizes):
        same = ["the same everywhere"] * copies
        parts = [*same, *(f"{number} {i} " + "x" * (i * 7 % 50) for i in range(size))]
        (folder / f"{number}.txt").write_text("\n\n".join(parts))
    files, _ = find_files("--input", [folder], [".txt"], folder.parent / "out")
    different = sum(sizes) + copies
    if different < 3:
        with refuses(ValueError, "different paragraphs", different):
            divide(files, Wanted("paragraph", (0.8, 0.1, 0.1), seed))
        return
    division = divide(files, Wanted("paragraph", (0.8, 0.1, 0.1), seed))
    found = {split.name: [*split.lines()] for split in division.splits}
    kept = {name: {x for x in lines if x.strip()} for name, lines in found.items()}
    assert sum(map(len, kept.values())) == different == len(set().union(*kept.values()))
    assert all(kept.values())
    total = sum(len(x.strip()) for lines in found.values() for x in lines)
    if different > 40 and not copies:
        valid = sum(len(x.strip()) for x in found["valid"])
        assert abs(valid - 0.1 * total) < 70
    again = divide(files[::-1], Wanted("paragraph", (0.8, 0.1, 0.1), seed))
    for split in again.splits:
        assert {x for x in split.lines() if x.strip()} == kept[split.name]


def test_text_divides_alike(tmp_path, capsys):
    """``data_prep text --input``, with what it says."""
    folder = write_documents(tmp_path / "in", 4)
    dest = tmp_path / "bin"
    words = ["--dest", dest, "--tokenizer", "word", "--input", folder]
    assert text([str(word) for word in words]) == 0
    err = capsys.readouterr().err
    assert lines_naming(err, "by paragraph") and lines_naming(err, "warning", "valid 4")
    assert run(tmp_path / "out", folder) == 0
    for name, lines in split_of(tmp_path / "out").items():
        assert read_text(dest, name) == lines
    assert verify([str(dest)]) == 0
    other = [*words, "--seed", "7"]
    capsys.readouterr()
    assert text([str(word) for word in other]) == 2
    assert_names(capsys.readouterr().err, "split_seed", 1, 7, "--overwrite")


def test_suffixes_and_what_is_left_out(tmp_path, capsys):
    folder = write_documents(tmp_path / "in", 3, suffix=".TXT")
    (folder / "notes.md").write_text("a note\n\nand another\n")
    (folder / "page.html").write_text("<p>left out</p>\n")
    (folder / "README").write_text("left out\n")
    (folder / ".hidden.txt").write_text("left out\n")
    (folder / ".git").mkdir()
    (folder / ".git/x.txt").write_text("left out\n")
    os.mkfifo(folder / "pipe.txt")  # whoever reads it waits
    assert run(tmp_path / "out", folder) == 0
    written = "".join(sum(split_of(tmp_path / "out").values(), []))
    assert "a note" in written and "left out" not in written
    (line,) = lines_naming(capsys.readouterr().err, "read", "left out")
    assert_names(line, "3 *.txt", "1 *.md", "1 *.html", "1 without suffix")
    assert run(tmp_path / "some", folder, "--suffixes", ".HTML", ".txt", "none") == 0
    written = "".join(sum(split_of(tmp_path / "some").values(), []))
    assert "left out" in written and "a note" not in written
    manifest = json.loads((tmp_path / "some/manifest.json").read_text())
    for name, counts in manifest["splits"].items():
        content = (tmp_path / f"some/{name}.txt").read_bytes()
        assert counts["bytes"] == len(content)
        assert counts["words"] == len(content.split())


def test_links_to_folders_are_followed_once(tmp_path, capsys, fails):
    folder, elsewhere = write_documents(tmp_path / "in", 3), tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "far.txt").write_text("from afar\n\nand further\n")
    (folder / "linked").symlink_to(elsewhere)
    (folder / "gone.png").symlink_to("nothing")
    (elsewhere / "back").symlink_to(folder)
    assert run(tmp_path / "out", folder) == 0
    (line,) = lines_naming(capsys.readouterr().err, "read")
    assert_names(line, "4 *.txt")
    assert "from afar" in "".join(sum(split_of(tmp_path / "out").values(), []))
    (folder / "gone.txt").symlink_to("nothing")
    given = ["--dest", tmp_path / "new", "--input", folder]
    fails(split_text, given, "gone.txt", dest=tmp_path / "new")


@pytest.mark.parametrize(
    ("files", "parts"),
    [
        ({}, ["no *.txt, *.md, *.rst file", "empty"]),
        ({"a.png": b"\x89PNG"}, ["no *.txt, *.md, *.rst file", "1 *.png"]),
        ({"a.txt": b"PK\0\0 binary\0"}, ["a.txt", "binary", "NUL", "line 1"]),
        ({"a.txt": b"\x89PNG\r\n"}, ["a.txt", "not UTF-8", "0x89"]),
        ({"a.txt": b"\xef\xbb\xbfabc \xe9 d\n"}, ["a.txt", "not UTF-8", "0xe9"]),
        ({"a.txt": b"\n\n  \n"}, ["no text in", "a.txt"]),
        ({"a.txt": b"one\n\ntwo\n"}, ["2 different paragraphs", "3 splits"]),
    ],
)
def test_folders_that_are_no_text(tmp_path, fails, files, parts):
    folder = tmp_path / "in"
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    dest = tmp_path / "out"
    fails(split_text, ["--dest", dest, "--input", folder], *parts, dest=dest)
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


@pytest.mark.parametrize(
    ("make", "more"),
    [(split_text, []), (text, ["--tokenizer", "word"])],
    ids=["split_text", "text"],
)
def test_a_place_among_the_texts(tmp_path, fails, make, more):
    """The next run would read the splits of this one, the test split for training."""
    folder, elsewhere = write_documents(tmp_path / "in", 3), tmp_path / "elsewhere"
    elsewhere.mkdir()
    (folder / "link").symlink_to(elsewhere)
    for dest in (folder / "out", folder / "deeper" / "out", elsewhere / "made"):
        given = ["--dest", dest, *more, "--input", folder]
        fails(make, given, f"--dest {dest}", folder, "allowed", dest=dest)
