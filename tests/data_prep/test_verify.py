"""verify finds each fault that fairseq would meet late or explain badly."""

import json

import numpy as np
import pytest
from fairseq.data.indexed_dataset import MMapIndexedDataset

from data_prep.documentation.corpus import prepare_corpus
from data_prep.folders import verify
from fairseq_transnormer.data import SPLITS

from .binary_reading import read_ids


def without_report(folder):
    (folder / "report.json").unlink()
    return folder


def change(path, position, content):
    with open(path, "r+b") as file:
        file.seek(position)
        file.write(content)


def test_good_folder(word_folder, capsys):
    counts = verify.verify_folder(word_folder)
    report = json.loads((word_folder / "report.json").read_text())
    for split, found in counts.items():
        dataset = MMapIndexedDataset(str(word_folder / split))
        assert found == {"lines": len(dataset), "tokens": int(dataset.sizes.sum())}
        assert found["tokens"] == report["splits"][split]["tokens"]
    capsys.readouterr()
    assert verify.main([str(word_folder)]) == 0
    assert f"train: {counts['train']['lines']:,} lines" in capsys.readouterr().out


def test_folder_of_other_origin_is_good_too(word_folder):
    assert verify.main([str(without_report(word_folder))]) == 0


def test_truncated_bin(word_folder, fails):
    path = without_report(word_folder) / "train.bin"
    size = path.stat().st_size
    path.write_bytes(path.read_bytes()[:-6])
    parts = [path, f"{size - 6} bytes", size]
    fails(verify.main, [word_folder], *parts, code=1)


def test_wrong_magic(word_folder, fails):
    path = without_report(word_folder) / "valid.idx"
    change(path, 0, b"TNTIDX\0\0\0")
    fails(verify.main, [word_folder], path, "mmap", "TNTIDX", "MMIDIDX", code=1)


@pytest.mark.parametrize(
    ("position", "content", "parts"),
    [
        (9, b"\x02", ["version 2", 1]),
        (17, b"\x63", ["number type 99"]),
        (17, b"\x06", ["float64"]),
        (18, b"\xff", ["truncated", "damaged"]),
        (26, b"\x63", ["line 2", "starts"]),
    ],
)
def test_damaged_index(word_folder, fails, position, content, parts):
    path = without_report(word_folder) / "test.idx"
    change(path, position, content)
    fails(verify.main, [word_folder], path, *parts, code=1)


@pytest.mark.parametrize("size", [0, 20, 100])
def test_truncated_index(word_folder, fails, size):
    path = without_report(word_folder) / "test.idx"
    path.write_bytes(path.read_bytes()[:size])
    fails(verify.main, [word_folder], path, "truncated", f"{size} bytes", code=1)


@pytest.mark.parametrize("beyond", [0, 900])
def test_id_beyond_the_dictionary(word_folder, fails, beyond):
    path = without_report(word_folder) / "valid.bin"
    entries = len((word_folder / "dict.txt").read_text().splitlines()) + 4
    change(path, 2 * 5, np.uint16(entries + beyond).tobytes())
    parts = [path, f"id {entries + beyond}", "token 5", "dict.txt"]
    parts.append(f"{entries} entries")
    fails(verify.main, [word_folder], *parts, code=1)


@pytest.mark.parametrize("token", [0, 1, 2])
def test_a_control_token_within_a_line(word_folder, fails, token):
    path = without_report(word_folder) / "valid.bin"
    assert read_ids(word_folder, "valid")[0][1] > 3
    change(path, 2 * 1, np.uint16(token).tobytes())
    fails(verify.main, [word_folder], path, "token 1", "line 1", token, code=1)


def test_shorter_dictionary(word_folder, fails):
    path = without_report(word_folder) / "dict.txt"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:10]))
    fails(verify.main, [word_folder], "dict.txt", "14 entries", code=1)


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (b"a 3\na 2\n", "Duplicate"),
        (b"just words\n", "format"),
        (b"caf\xe9 1\n", "dictionary"),
        (None, "no such file"),
    ],
)
def test_broken_dictionary(word_folder, fails, content, part):
    path = without_report(word_folder) / "dict.txt"
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    fails(verify.main, [word_folder], path, part, code=1)


@pytest.mark.parametrize("ends", [0, 3])
def test_empty_split(word_folder, fails, ends):
    index = without_report(word_folder) / "test.idx"
    with MMapIndexedDataset.Index.writer(str(index), np.uint16) as writer:
        writer.write([1] * ends)
    (word_folder / "test.bin").write_bytes(np.full(ends, 2, np.uint16).tobytes())
    fails(verify.main, [word_folder], "test.bin", "empty split", code=1)


def test_flipped_byte(word_folder, fails):
    path = word_folder / "train.bin"
    content = bytearray(path.read_bytes())
    content[1000] ^= 1
    path.write_bytes(content)
    fails(verify.main, [word_folder], path, "sha256", "report.json", code=1)


@pytest.mark.parametrize("name", ["train.bin", "valid.idx"])
def test_missing_file(word_folder, fails, name):
    (word_folder / name).unlink()
    fails(verify.main, [word_folder], word_folder / name, "no such file", code=1)


def test_missing_split_that_the_report_lists(word_folder, fails):
    for end in ("bin", "idx"):
        (word_folder / f"test.{end}").unlink()
    missing = word_folder / "test.bin"
    fails(verify.main, [word_folder], missing, "no such", "report.json", code=1)


def test_unreadable_report(word_folder, fails):
    (word_folder / "report.json").write_text('{"files": [')
    fails(verify.main, [word_folder], word_folder / "report.json", "report", code=1)


def test_texts_that_are_no_binary_data_yet(tmp_path, fails, capsys):
    folder = tmp_path / "texts"
    documents = {"one": ["a b", "c"], "two": ["d"]}
    prepare_corpus(folder, {}, False, lambda: dict.fromkeys(SPLITS, documents))
    assert verify.main([str(folder)]) == 0
    assert "good" in capsys.readouterr().out
    content = (folder / "valid.txt").read_bytes()
    (folder / "valid.txt").write_bytes(content[:-2])
    parts = [folder / "valid.txt", f"{len(content) - 2} bytes", len(content)]
    fails(verify.main, [folder], *parts, code=1)
    (folder / "valid.txt").write_bytes(content.replace(b"c", b"d"))
    fails(verify.main, [folder], folder / "valid.txt", "sha256", code=1)
    (folder / "valid.txt").unlink()
    fails(verify.main, [folder], folder / "valid.txt", "no such file", code=1)


def test_no_folder_and_no_split(tmp_path, fails):
    nowhere = tmp_path / "nowhere"
    fails(verify.main, [nowhere], nowhere, "no such", code=1)
    (tmp_path / "dict.txt").write_text("a 1\n")
    fails(verify.main, [tmp_path], tmp_path, "no split", code=1)
