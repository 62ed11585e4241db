"""verify finds each fault that fairseq would meet late or explain badly."""

import json

import numpy as np
import pytest
from fairseq.data.indexed_dataset import MMapIndexedDataset

from data_prep.documentation.corpus import prepare_corpus
from data_prep.folders.options import Place
from data_prep.folders.verify import verify_folder
from fairseq_transnormer.data import SPLITS

from .binary_reading import read_ids
from .commands import verify


@pytest.fixture
def bare(word_folder):
    """A folder of another program, without a report."""
    (word_folder / "report.json").unlink()
    return word_folder


def change(path, position, content):
    with open(path, "r+b") as file:
        file.seek(position)
        file.write(content)


def test_good_folder(word_folder, capsys):
    counts = verify_folder(word_folder)
    report = json.loads((word_folder / "report.json").read_text())
    for split, found in counts.items():
        dataset = MMapIndexedDataset(str(word_folder / split))
        assert found == {"lines": len(dataset), "tokens": int(dataset.sizes.sum())}
        assert found["tokens"] == report["splits"][split]["tokens"]
    capsys.readouterr()
    assert verify([str(word_folder)]) == 0
    assert f"train: {counts['train']['lines']:,} lines" in capsys.readouterr().out


def test_folder_of_other_origin_is_good_too(bare):
    assert verify([str(bare)]) == 0


@pytest.mark.parametrize(
    ("name", "position", "content", "parts"),
    [
        ("valid.idx", 0, b"TNTIDX\0\0\0", ["mmap", "TNTIDX", "MMIDIDX"]),
        ("test.idx", 9, b"\x02", ["version 2"]),
        ("test.idx", 17, b"\x63", ["type 99"]),
        ("test.idx", 17, b"\x06", ["type 6"]),
        ("test.idx", 18, b"\xff", ["truncated", "damaged"]),
        ("test.idx", 26, b"\x63", ["line 2", "start"]),
        # within a line, where no control token belongs
        *(
            ("valid.bin", 2, bytes([token, 0]), ["token 1", "line 1", token])
            for token in (0, 1, 2)
        ),
    ],
)
def test_changed_bytes(bare, fails, name, position, content, parts):
    assert read_ids(bare, "valid")[0][1] > 3
    change(bare / name, position, content)
    fails(verify, [bare], bare / name, *parts, code=1)


@pytest.mark.parametrize(
    ("name", "size"), [("train.bin", -6), *(("test.idx", n) for n in (0, 20, 100))]
)
def test_truncated_files(bare, fails, name, size):
    path = bare / name
    whole = path.read_bytes()
    path.write_bytes(whole[:size])
    parts = [len(whole)] if name == "train.bin" else ["truncated"]
    parts.append(f"{path.stat().st_size} bytes")
    fails(verify, [bare], path, *parts, code=1)


@pytest.mark.parametrize("beyond", [0, 900])
def test_id_beyond_the_dictionary(bare, fails, beyond):
    entries = len((bare / "dict.txt").read_text().splitlines()) + 4
    change(bare / "valid.bin", 2 * 5, np.uint16(entries + beyond).tobytes())
    parts = [f"id {entries + beyond}", "token 5", "dict.txt", f"{entries} entries"]
    fails(verify, [bare], bare / "valid.bin", *parts, code=1)


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (b"".join(b"w%d 1\n" % i for i in range(10)), "14 entries"),
        (b"a 3\na 2\n", "Duplicate"),
        (b"just words\n", "format"),
        (b"caf\xe9 1\n", "dictionary"),
        (None, "no such file"),
    ],
)
def test_broken_dictionary(bare, fails, content, part):
    path = bare / "dict.txt"
    path.unlink()
    if content:
        path.write_bytes(content)
    fails(verify, [bare], "dict.txt", part, code=1)


@pytest.mark.parametrize("ends", [0, 3])
def test_empty_split(bare, fails, ends):
    with MMapIndexedDataset.Index.writer(str(bare / "test.idx"), np.uint16) as writer:
        writer.write([1] * ends)
    (bare / "test.bin").write_bytes(np.full(ends, 2, np.uint16).tobytes())
    fails(verify, [bare], "test.bin", "empty split", code=1)


def test_what_the_report_says(word_folder, fails):
    """A byte of a file, files that it lists, and the report itself."""

    def refused(name, *parts):
        fails(verify, [word_folder], word_folder / name, *parts, code=1)

    for name in ("train.bin", "valid.idx"):
        (word_folder / name).rename(word_folder / "away")
        refused(name, "no such file")
        (word_folder / "away").rename(word_folder / name)
    path = word_folder / "train.bin"
    whole = path.read_bytes()
    change(path, 1000, bytes([whole[1000] ^ 1]))
    refused("train.bin", "sha256", "report.json")
    path.write_bytes(whole)
    for end in ("bin", "idx"):
        (word_folder / f"test.{end}").unlink()
    refused("test.bin", "no such", "report.json")
    (word_folder / "report.json").write_text('{"files": [')
    refused("report.json", "report")


def test_texts_that_are_no_binary_data_yet(tmp_path, fails, capsys):
    folder = tmp_path / "texts"
    documents = {"one": ["a b", "c"], "two": ["d"]}
    prepare_corpus(Place(folder), {}, lambda: dict.fromkeys(SPLITS, documents))
    assert verify([str(folder)]) == 0
    assert "good" in capsys.readouterr().out
    content = (folder / "valid.txt").read_bytes()
    (folder / "valid.txt").write_bytes(content[:-2])
    fails(verify, [folder], folder / "valid.txt", "truncated", code=1)
    (folder / "valid.txt").write_bytes(content.replace(b"c", b"d"))
    fails(verify, [folder], folder / "valid.txt", "sha256", code=1)
    (folder / "valid.txt").unlink()
    fails(verify, [folder], folder / "valid.txt", "no such file", code=1)


def test_no_folder_and_no_split(tmp_path, fails):
    nowhere = tmp_path / "nowhere"
    fails(verify, [nowhere], nowhere, "no such", code=1)
    (tmp_path / "dict.txt").write_text("a 1\n")
    fails(verify, [tmp_path], tmp_path, "no split", code=1)
