"""Long-Range Arena data in plain PyTorch: what ``data_prep lra`` wrote, mapped in."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from .typed_mappings import MAPPING, POSITIVE, check_values, read_json

MANIFEST = "manifest.json"
FORMAT = "labelled sequences 1"
_MANIFEST_KINDS = {
    "vocabulary": POSITIVE,
    "classes": POSITIVE,
    "sequences": POSITIVE,
    "splits": MAPPING,
}


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
        ValueError: the folder is none, a file is missing or truncated, or the split is
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
        for k in range(self.sequences):
            path = folder / f"{split}.tokens.{k}.bin"
            self._offsets.append(_load(folder / f"{split}.offsets.{k}.npy"))
            if not path.is_file() or path.stat().st_size != self._offsets[k][-1]:
                raise ValueError(f"{path}: missing, or not of the size of its offsets")
            if self._offsets[k][0] != 0 or (np.diff(self._offsets[k]) < 0).any():
                raise ValueError(
                    f"{folder / f'{split}.offsets.{k}.npy'}: allowed: numbers from 0 "
                    "on that do not fall; damaged"
                )
            self._tokens.append(np.memmap(path, np.uint8, "r"))
            _check_largest(path, self._tokens[k], "vocabulary", self.vocabulary)
        path = folder / f"{split}.labels.npy"
        self._labels = _load(path)
        _check_largest(path, self._labels, "classes", self.classes)
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
    return check_values(str(path), manifest, _MANIFEST_KINDS, _MANIFEST_KINDS)


def _check_largest(path: Path, ids: np.ndarray, what: str, size: int) -> None:
    """An id beyond would end training where a batch has it. Reads the whole file."""
    beyond = ids.max() if len(ids) else 0
    if beyond >= size:
        where = int(np.argmax(ids >= size))
        raise ValueError(
            f"{path}: number {where} is {ids[where]}; allowed: 0 to {size - 1} "
            f"({what} of {MANIFEST})"
        )


def _load(path: Path) -> np.ndarray:
    try:
        return np.load(path, mmap_mode="r")
    except (OSError, ValueError) as error:
        raise ValueError(f"{path}: cannot be read: {error}") from error
