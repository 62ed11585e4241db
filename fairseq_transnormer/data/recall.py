"""Associative recall as tensors: what ``data_prep recall`` wrote, read without fairseq.

Letters: N places of a line, P pairs.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from . import REPORT
from .binary_data import read_binary_data
from .fingerprints import file_sha256
from .subword_files import DICTIONARY, PAD, dictionary_symbols

BLANK, BAR = ".", "|"


def read_settings(folder: str | Path, pairs: int = 0) -> dict[str, Any]:
    """What ``data_prep recall`` noted of a folder: length, pairs and more.

    Args:
        folder: the folder.
        pairs: refuse one with other pairs in a line; 0: any.

    Raises:
        ValueError: it is of other data.
    """
    path = Path(folder) / REPORT
    settings = json.loads(path.read_text(encoding="utf-8"))["settings"]
    if settings.get("data") != "recall":
        raise ValueError(f"{path} must be of data_prep recall")
    if pairs not in (0, settings["pairs"]):
        raise ValueError(
            f"pairs must be 0 or {settings['pairs']}, those of {folder}, got {pairs}"
        )
    return settings


def mixed_folders(folder: str | Path, mixture: str) -> dict[int, Path]:
    """The folders of a mixture of lines, each with another number of pairs a line.

    Args:
        folder: has a folder for each number, DIR/4 and DIR/16.
        mixture: the numbers, as "4,16".

    Raises:
        ValueError: the numbers are none, a folder is none of ``data_prep recall`` with
            its number of pairs, or folders differ in their dictionaries.
    """
    numbers = [int(word) for word in mixture.split(",")]
    if min(numbers) < 1 or len(set(numbers)) < len(numbers):
        raise ValueError(
            f"mixture must be different numbers of pairs, as 4,16, got {mixture!r}"
        )
    # whatever their order, a line has the same place among all
    folders = {number: Path(folder) / str(number) for number in sorted(numbers)}
    for number, each in folders.items():
        read_settings(each, number)
    known = {file_sha256(each / DICTIONARY) for each in folders.values()}
    if len(known) > 1:
        raise ValueError(
            f"the {DICTIONARY} of {folder} must be of one --vocabulary for {mixture!r}"
        )
    return folders


class RecallLines:
    """A split's lines, as inputs and what is to be told at each place.

    Args:
        folder: what ``data_prep recall`` made.
        split: "train", "valid" or "test".
        stacked: let a key and its value share a place, so that no layer has to bring
            them together first. The 2 P places of the pairs become P.

    Attributes:
        inputs: int64 (lines, N); stacked (lines, N - P, 2), where a place that is no
            pair has padding for the second.
        targets: int64, (lines, N) or (lines, N - P); padding where nothing is told.

    Raises:
        ValueError: the folder is of other data.
    """

    def __init__(self, folder: str | Path, split: str, stacked: bool = False) -> None:
        folder, settings = Path(folder), read_settings(folder)
        length, pairs = settings["length"], settings["pairs"]
        # inputs, a bar, what is told, the end
        ids = read_binary_data(folder / split).ids().astype(np.int64)
        ids = ids.reshape(-1, 2 * length + 2)
        told = ids[:, length + 1 : -1]
        blank = dictionary_symbols(folder).index(BLANK)
        self.inputs = ids[:, :length]
        self.targets = np.where(told == blank, PAD, told)
        if stacked:
            together = self.inputs[:, : 2 * pairs].reshape(-1, pairs, 2)
            alone = self.inputs[:, 2 * pairs :, None]
            rest = np.concatenate([alone, np.full_like(alone, PAD)], axis=2)
            self.inputs = np.concatenate([together, rest], axis=1)
            self.targets = self.targets[:, pairs:]

    def __len__(self) -> int:
        return len(self.inputs)
