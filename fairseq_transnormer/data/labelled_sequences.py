"""Long-Range Arena data in plain PyTorch: what ``data_prep lra`` wrote, mapped in."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from . import MANIFEST
from .typed_mappings import MAPPING, POSITIVE, check_values, mapping_of, read_json

FORMAT = "labelled sequences 1"
_MANIFEST_KINDS = {
    "vocabulary": POSITIVE,
    "classes": POSITIVE,
    "sequences": POSITIVE,
    "settings": MAPPING,
    "splits": mapping_of(MAPPING),
}
# of each split
_SPLIT_KINDS = {"examples": POSITIVE, "longest": POSITIVE}


class Example(NamedTuple):
    """tokens: int64 (N,), one tensor a sequence; lengths: their N; label: the class."""

    tokens: tuple[Tensor, ...]
    lengths: tuple[int, ...]
    label: int


class Batch(NamedTuple):
    """tokens: int64 (B, N), zeros after a row's end; lengths: int64 (B,); labels:
    int64 (B,). Zero is a token too: masks come from the lengths."""

    tokens: tuple[Tensor, ...]
    lengths: tuple[Tensor, ...]
    labels: Tensor


class LabelledSequences(Dataset):
    """One split of a folder; nothing is read before it is asked for.

    Args:
        folder: what ``python -m data_prep lra`` made.
        split: "train", "valid" or "test".

    Attributes:
        vocabulary, classes, sequences: token ids, labels, and sequences an example.
        lengths: int64 (examples, sequences).

    Raises:
        ValueError: the folder is none, a file is missing or damaged, or the split is
            unknown.
    """

    def __init__(self, folder: str | Path, split: str):
        folder = Path(folder)
        manifest = read_manifest(folder)
        if split not in manifest["splits"]:
            allowed = ", ".join(manifest["splits"])
            raise ValueError(f"split={split!r} of {folder}; allowed: {allowed}")
        self.vocabulary, self.classes = manifest["vocabulary"], manifest["classes"]
        self.sequences = manifest["sequences"]
        self._tokens, self._offsets = [], []
        count = manifest["splits"][split]["examples"]
        for k in range(self.sequences):
            path = folder / f"{split}.tokens.{k}.bin"
            self._offsets.append(_load_offsets(folder, split, k, count))
            if not path.is_file() or path.stat().st_size != self._offsets[k][-1]:
                raise ValueError(f"{path}: missing, or not of the size of its offsets")
            self._tokens.append(np.memmap(path, np.uint8, "r"))
            _check_range(path, "token", self._tokens[k], "vocabulary", self.vocabulary)
        path = folder / f"{split}.labels.npy"
        self._labels = _load(path)
        if len(self._labels) != count:
            raise ValueError(
                f"{path}: {len(self._labels)} labels; allowed: {count}, the examples "
                f"of {MANIFEST}"
            )
        _check_range(path, "label", self._labels, "classes", self.classes)
        self.lengths = np.stack([np.diff(each) for each in self._offsets], 1)

    def __len__(self) -> int:
        return len(self._labels)

    def __getitem__(self, index: int) -> Example:
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        index %= len(self)
        tokens = tuple(
            torch.from_numpy(each[offsets[index] : offsets[index + 1]].astype(np.int64))
            for each, offsets in zip(self._tokens, self._offsets, strict=True)
        )
        lengths = tuple(len(each) for each in tokens)
        return Example(tokens, lengths, int(self._labels[index]))


def collate(examples: list[Example]) -> Batch:
    """Pads at the right; for ``DataLoader(collate_fn=collate)``."""
    columns = zip(*(example.tokens for example in examples), strict=True)
    tokens = tuple(
        torch.nn.utils.rnn.pad_sequence(list(column), batch_first=True)
        for column in columns
    )
    lengths = torch.tensor([example.lengths for example in examples])
    labels = torch.tensor([example.label for example in examples])
    return Batch(tokens, tuple(lengths.unbind(1)), labels)


def read_manifest(folder: str | Path) -> dict:
    """The folder's manifest.

    Raises:
        ValueError: there is none, or it is of another kind.
    """
    path = Path(folder) / MANIFEST
    try:
        manifest = read_json(path, {})
    except (OSError, ValueError) as error:
        raise ValueError(
            f"{path}: cannot be read ({error}); python -m data_prep lra makes it"
        ) from error
    if manifest.get("format") != FORMAT:
        raise ValueError(
            f"{path}: format {manifest.get('format')!r}; allowed: {FORMAT!r}"
        )
    check_values(str(path), manifest, _MANIFEST_KINDS, _MANIFEST_KINDS)
    if "train" not in manifest["splits"]:
        raise ValueError(f"{path}: splits: train is missing")
    for split, counts in manifest["splits"].items():
        check_values(f"{path}: splits: {split}", counts, _SPLIT_KINDS, _SPLIT_KINDS)
    return manifest


def _load_offsets(folder: Path, split: str, k: int, count: int) -> np.ndarray:
    """Where each of ``count`` sequences starts, and the last ends."""
    path = folder / f"{split}.offsets.{k}.npy"
    offsets = _load(path)
    if len(offsets) != count + 1:
        raise ValueError(
            f"{path}: {len(offsets)} offsets; allowed: {count + 1}, one more than the "
            f"examples of {MANIFEST}"
        )
    if offsets[0] != 0 or (np.diff(offsets) < 1).any():
        raise ValueError(f"{path}: allowed: from 0 on, numbers that rise; damaged")
    return offsets


def _check_range(path: Path, noun: str, ids: np.ndarray, what: str, size: int) -> None:
    """An id beyond would end training where a batch has it. Reads the whole file."""
    if len(ids) and (ids.max() >= size or ids.min() < 0):
        where = int(np.argmax((ids >= size) | (ids < 0)))
        raise ValueError(
            f"{path}: {noun} number {where} is {ids[where]}; allowed: 0 to {size - 1} "
            f"(below {size}, the {what} of {MANIFEST})"
        )


def _load(path: Path) -> np.ndarray:
    """A .npy file of integers from 0 in one dimension, mapped into memory."""
    try:
        array = np.load(path, mmap_mode="r")
    except (OSError, ValueError, EOFError) as error:
        raise ValueError(f"{path}: cannot be read: {error}") from error
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise ValueError(
            f"{path}: {array.dtype} of shape {array.shape}; allowed: integers in one "
            "dimension"
        )
    return array
