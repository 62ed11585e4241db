"""Binary data that fairseq wrote are read as fairseq reads them."""

import numpy as np
import pytest
import torch
from fairseq.data import indexed_dataset
from fairseq.data.indexed_dataset import MMapIndexedDataset

from fairseq_transnormer.data import binary_data
from fairseq_transnormer.data.binary_data import (
    DTYPES,
    MAGIC,
    AnotherFormatError,
    bin_file,
    read_binary_data,
)
from tests.messages import assert_names, refuses


def write(prefix, lines, dtype):
    """Lines of 0, 1, 2, ... as fairseq writes them; returns the prefix."""
    builder = indexed_dataset.MMapIndexedDatasetBuilder(f"{prefix}.bin", dtype)
    for count in lines:
        builder.add_item(torch.arange(count))
    builder.finalize(f"{prefix}.idx")
    return prefix


def test_the_format_is_fairseqs():
    assert MAGIC == MMapIndexedDataset.Index._HDR_MAGIC
    fairseqs = indexed_dataset._code_to_dtype
    assert DTYPES == {code: np.dtype(kind) for code, kind in fairseqs.items()}


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.int32, np.int64])
@pytest.mark.parametrize("lines", [(3, 1, 4), (0, 2, 0, 5, 0), (7,)])
def test_lines_and_ids_are_fairseqs(tmp_path, dtype, lines):
    prefix = write(tmp_path / "train", lines, dtype)
    found, fairseqs = read_binary_data(prefix), MMapIndexedDataset(str(prefix))
    assert found.dtype == dtype and found.tokens == sum(lines)
    assert found.sizes.tolist() == fairseqs.sizes.tolist() == list(lines)
    each = [fairseqs[i].tolist() for i in range(len(fairseqs))]
    assert [line.tolist() for line in found.lines()] == each
    assert found.ids().tolist() == sum(each, [])
    of_tokens = np.repeat(np.arange(len(lines)), lines)
    assert [found.line_of(token) for token in range(sum(lines))] == of_tokens.tolist()


def test_no_line_at_all(tmp_path):
    found = read_binary_data(write(tmp_path / "train", (), np.uint16))
    assert found.tokens == len(found.sizes) == len(found.ids()) == 0


def test_parts_are_all_of_it(tmp_path, monkeypatch):
    monkeypatch.setattr(binary_data, "IDS_AT_ONCE", 3)
    ids = read_binary_data(write(tmp_path / "train", (5, 2), np.uint16)).ids()
    parts = [(first, part.tolist()) for first, part in binary_data.in_parts(ids)]
    assert parts == [(0, [0, 1, 2]), (3, [3, 4, 0]), (6, [1])]


def test_another_format_is_told_from_damage(tmp_path):
    prefix = write(tmp_path / "train", (5, 2), np.uint16)
    index = prefix.with_suffix(".idx")
    content = index.read_bytes()
    index.write_bytes(b"TNTIDX\0\0\0" + content[9:])
    with refuses(AnotherFormatError, index, "TNTIDX", "MMIDIDX"):
        read_binary_data(prefix)
    for size in (0, 5, 12, 20, 40, len(content) - 1):
        index.write_bytes(content[:size])
        with refuses(ValueError, index, f"{size} bytes", "truncated") as caught:
            read_binary_data(prefix)
        assert not isinstance(caught.value, AnotherFormatError)
    index.write_bytes(content)
    for size in (12, 15):
        bin_file(prefix).write_bytes(b"\0" * size)
        with refuses(ValueError, bin_file(prefix), f"{size} bytes", 14, ".idx"):
            read_binary_data(prefix)


@pytest.mark.parametrize(
    ("position", "byte", "parts"),
    [
        (9, 2, ["version 2"]),
        (17, 99, ["type 99"]),
        (18, 255, ["truncated", "damaged"]),
        (26 + 12 + 8, 99, ["line 2", "start"]),
    ],
)
def test_damage_is_named(tmp_path, position, byte, parts):
    path = write(tmp_path / "train", (3, 1, 4), np.uint16).with_suffix(".idx")
    whole = bytearray(path.read_bytes())
    whole[position] = byte
    path.write_bytes(whole)
    with refuses(ValueError, path, *parts):
        read_binary_data(tmp_path / "train")


@pytest.mark.parametrize("at_once", [4, 99])
def test_ids_that_no_text_has(tmp_path, monkeypatch, at_once):
    monkeypatch.setattr(binary_data, "IDS_AT_ONCE", at_once)
    data = read_binary_data(write(tmp_path / "train", (3, 7), np.uint16))

    def fault(ids, size=12):
        np.array(ids, np.uint16).tofile(bin_file(data.prefix))
        return data.fault(size, (0, 1, 2))

    assert fault([4, 5, 2, 6, 7, 11, 4, 4, 4, 2]) is None
    for ids, parts in (
        ([4, 5, 2, 6, 12, 4, 4, 4, 4, 2], ["token 4", "line 2", "id 12", "0 to 11"]),
        ([4, 2, 2, 6, 7, 4, 4, 4, 4, 2], ["token 1", "line 1", "id 2"]),
        ([4, 5, 2, 1, 7, 4, 4, 4, 4, 2], ["token 3", "line 2", "id 1"]),
    ):
        assert_names(fault(ids), *parts)
