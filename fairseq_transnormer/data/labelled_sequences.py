"""Long-Range Arena data in plain PyTorch: what ``data_prep lra`` wrote, mapped in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from . import MANIFEST

FORMAT = "labelled sequences 1"


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
        OSError: there is no such split.
        ValueError: a file is not as long as its offsets say.
    """

    def __init__(self, folder: str | Path, split: str):
        folder = Path(folder)
        manifest = read_manifest(folder)
        self.vocabulary, self.classes = manifest["vocabulary"], manifest["classes"]
        self.sequences = manifest["sequences"]
        self._labels = np.load(folder / f"{split}.labels.npy", mmap_mode="r")
        self._tokens, self._offsets = [], []
        for k in range(self.sequences):
            path = folder / f"{split}.tokens.{k}.bin"
            offsets = np.load(folder / f"{split}.offsets.{k}.npy", mmap_mode="r")
            size = path.stat().st_size
            if (size, len(offsets)) != (offsets[-1], len(self._labels) + 1):
                raise ValueError(f"{path}: not of the size of its offsets; damaged")
            self._offsets.append(offsets)
            self._tokens.append(np.memmap(path, np.uint8, "r"))
        self.lengths = np.stack([np.diff(each) for each in self._offsets], 1)

    def __len__(self) -> int:
        return len(self._labels)

    def __getitem__(self, index: int) -> Example:
        label = int(self._labels[index])
        index %= len(self)
        tokens = tuple(
            torch.from_numpy(each[offsets[index] : offsets[index + 1]].astype(np.int64))
            for each, offsets in zip(self._tokens, self._offsets, strict=True)
        )
        lengths = tuple(len(each) for each in tokens)
        return Example(tokens, lengths, label)


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
    """The folder's manifest; ValueError if it is of other data."""
    path = Path(folder) / MANIFEST
    manifest = json.loads(path.read_text(encoding="utf-8"))
    if manifest.get("format") != FORMAT:
        raise ValueError(f"{path}: format must be {FORMAT!r}, of data_prep lra")
    return manifest
