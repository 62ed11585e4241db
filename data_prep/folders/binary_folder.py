"""The course that every preparation of binary data takes, from text to DEST."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from data_prep.folders.encoders import WordEncoder
from data_prep.folders.fairseq_format import (
    load_dictionary,
    symbol_dictionary,
    write_split,
)
from data_prep.folders.staging import Record, Work, publish
from data_prep.folders.text_files import TextFile
from data_prep.folders.verify import verify_folder
from fairseq_transnormer.data import REPORT

Counts = dict[str, int]
Encoder = Callable[[list[str]], list[np.ndarray]]


@dataclass(frozen=True)
class Split:
    """One split's lines, which can be read again and again.

    ``line_count`` is for progress bars; ``counts`` are those of what is divided: the
    documents that it has text of and, where these are divided, paragraphs.
    """

    name: str
    lines: Callable[[], Iterator[str]]
    line_count: int | None = None
    counts: Counts = field(default_factory=dict)


@dataclass(frozen=True)
class Recipe:
    """What differs between one preparation and another.

    ``prepare_tokenizer`` writes dict.txt and the tokenizer's files, ``encoder`` makes
    the encoder of that folder and its dictionary, and ``check`` raises ValueError if a
    split's counts are not what they should be. ``files`` are the user's that the lines
    stand in, if any.
    """

    settings: dict[str, Any]
    splits: list[Split]
    prepare_tokenizer: Callable[[Work], None]
    encoder: Callable[[Path, Any], Encoder]
    check: Callable[[str, Counts], None] = lambda split, counts: None
    files: Sequence[TextFile] = ()


def word_encoder(folder: Path, dictionary: Any) -> Encoder:
    """The encoder of a folder whose dictionary has words."""
    return WordEncoder(dictionary.indices)


def symbol_recipe(
    settings: dict[str, Any], splits: list[Split], symbols: Iterable[str]
) -> Recipe:
    """Of lines of known symbols between blanks; the dictionary has them in order."""

    def prepare_tokenizer(work: Work) -> None:
        symbol_dictionary(symbols).save(str(work.file("dict.txt")))

    return Recipe(settings, splits, prepare_tokenizer, word_encoder)


def prepare_folder(dest: Path, recipe: Recipe, workers: int, overwrite: bool) -> None:
    """Makes ``dest`` by ``recipe``."""

    def make(work: Work) -> Record:
        recipe.prepare_tokenizer(work)
        dictionary = load_dictionary(work.folder / "dict.txt")
        encoder = recipe.encoder(work.folder, dictionary)
        counts = {}
        # The small splits first: a wrong corpus shows before hours are spent.
        for split in sorted(recipe.splits, key=lambda split: split.name == "train"):
            counts[split.name] = write_split(
                work,
                split.name,
                split.lines,
                encoder,
                dictionary,
                workers,
                split.line_count,
                recipe.files,
            )
            recipe.check(split.name, counts[split.name])
        verify_folder(work.folder)
        return {
            "dictionary_size": len(dictionary),
            "splits": {split.name: counts[split.name] for split in recipe.splits},
        }

    publish(dest, recipe.settings, REPORT, overwrite, make)
