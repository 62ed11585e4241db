"""Labelled sequences as arrays that can be mapped into memory.

A split has ``SPLIT.tokens.K.bin``, all tokens of its K-th sequences one after the
other (uint8), ``SPLIT.offsets.K.npy``, where each one starts and the last ends (int64,
one more than there are examples), and ``SPLIT.labels.npy`` (uint8). K is 0, and 1 too
for pairs of documents. manifest.json has settings, counts and SHA-256 of every file;
``fairseq_transnormer.data.labelled_sequences`` reads the folder.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from data_prep.folders.destination import listed_files
from data_prep.folders.errors import InputError
from data_prep.folders.report import check_files, file_records
from data_prep.folders.staging import Staging
from fairseq_transnormer.data import MANIFEST, SPLITS
from fairseq_transnormer.data.labelled_sequences import (
    FORMAT,
    LabelledSequences,
    read_manifest,
)

# a byte each, and pairs at most
HIGHEST = {"sequences": 2, "vocabulary": 256, "classes": 256}

# the sequences of an example, uint8 each, and its label
Example = tuple[tuple[np.ndarray, ...], int]


@dataclass(frozen=True)
class Recipe:
    """What is written: ``examples`` gives a split's, ``counts`` how many, if known.

    ``settings`` identify the data; ``vocabulary`` is the number of token ids.
    """

    settings: dict[str, Any]
    sequences: int
    vocabulary: int
    classes: int
    examples: Callable[[str], Iterator[Example]]
    counts: dict[str, int | None]


def prepare_sequences(dest: Path, recipe: Recipe, overwrite: bool) -> None:
    """Makes ``dest``, resuming after the last split that an earlier run finished."""
    staging = Staging(dest, recipe.settings, MANIFEST, overwrite)
    if staging.is_complete():
        return
    with staging:
        splits = {
            split: staging.stage(
                split,
                file_names(split, recipe.sequences),
                lambda split=split: _write_split(staging.folder, split, recipe),
            )
            # the small splits first: a fault shows before the long one
            for split in reversed(SPLITS)
        }
        manifest = {
            "format": FORMAT,
            "settings": recipe.settings,
            "sequences": recipe.sequences,
            "vocabulary": recipe.vocabulary,
            "classes": recipe.classes,
            "splits": {split: splits[split] for split in SPLITS},
            "files": file_records(staging.folder, staging.files()),
        }
        staging.write_report(manifest)
        verify_sequences(staging.folder)
        staging.publish()
    for split in SPLITS:
        print(f"{dest} {split}: {splits[split]}")


def file_names(split: str, sequences: int) -> list[str]:
    """The files of a split."""
    each = ((_tokens(split, k), _offsets(split, k)) for k in range(sequences))
    return [*chain.from_iterable(each), _labels(split)]


def _tokens(split: str, k: int) -> str:
    return f"{split}.tokens.{k}.bin"


def _offsets(split: str, k: int) -> str:
    return f"{split}.offsets.{k}.npy"


def _labels(split: str) -> str:
    return f"{split}.labels.npy"


def _write_split(folder: Path, split: str, recipe: Recipe) -> dict[str, Any]:
    from tqdm import tqdm

    lengths: list[list[int]] = [[] for _ in range(recipe.sequences)]
    labels: list[int] = []
    files = [open(folder / _tokens(split, k), "wb") for k in range(recipe.sequences)]
    try:
        for sequences, label in tqdm(
            recipe.examples(split),
            total=recipe.counts[split],
            desc=split,
            unit=" examples",
            disable=None,
        ):
            labels.append(label)
            for file, sequence, each in zip(files, sequences, lengths, strict=True):
                file.write(sequence.astype(np.uint8, copy=False).tobytes())
                each.append(len(sequence))
    finally:
        for file in files:
            file.close()
    if not labels:
        raise InputError(f"{split}: no example at all")
    for k, each in enumerate(lengths):
        np.save(folder / _offsets(split, k), np.cumsum([0, *each]))
    np.save(folder / _labels(split), np.array(labels, np.uint8))
    every = np.array(lengths)
    return {
        "examples": len(labels),
        "labels": np.bincount(labels, minlength=recipe.classes).tolist(),
        "shortest": int(every.min()),
        "longest": int(every.max()),
        "tokens": int(every.sum()),
    }


def verify_sequences(folder: Path) -> dict[str, Any]:
    """The manifest; raises InputError naming the file and its first fault."""
    path = folder / MANIFEST
    try:
        manifest = read_manifest(folder)
        _check_manifest(path, manifest)
        check_files(folder, listed_files(manifest, path), MANIFEST)
        for split in SPLITS:
            LabelledSequences(folder, split)
    except ValueError as error:
        raise InputError(str(error)) from error
    return manifest


def _check_manifest(path: Path, manifest: dict[str, Any]) -> None:
    """What a folder that is prepared here has, besides what reading one needs."""
    for name, highest in HIGHEST.items():
        if manifest[name] > highest:
            raise InputError(
                f"{path}: {name}: {manifest[name]!r}; allowed are integers from 1 to "
                f"{highest}"
            )
    for split in SPLITS:
        if split not in manifest["splits"]:
            raise InputError(
                f"{path}: splits: {split}: allowed is an object with the number of "
                "examples"
            )
