"""The course that every preparation of binary data takes, from text to DEST."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from data_prep.folders.encoders import WordEncoder
from data_prep.folders.fairseq_format import (
    load_dictionary,
    symbol_dictionary,
    write_split,
)
from data_prep.folders.report import make_report, print_report
from data_prep.folders.staging import Staging
from data_prep.folders.text_files import TextFile
from data_prep.folders.verify import verify_folder
from fairseq_transnormer.data import REPORT

Counts = dict[str, int]
Encoder = Callable[[list[str]], list[np.ndarray]]


@dataclass(frozen=True)
class Split:
    """One split's lines, which can be read again and again."""

    name: str
    lines: Callable[[], Iterator[str]]
    line_count: int | None = None


@dataclass(frozen=True)
class Recipe:
    """What differs between one preparation and another.

    ``prepare_tokenizer`` writes dict.txt and ``tokenizer_files`` into a folder,
    ``encoder`` makes the encoder of that folder and its dictionary, and ``check``
    raises InputError if a split's counts are not what they should be. ``files`` are
    the user's that the lines stand in, if any.
    """

    settings: dict[str, Any]
    splits: list[Split]
    tokenizer_files: list[str]
    prepare_tokenizer: Callable[[Path], None]
    encoder: Callable[[Path, Any], Encoder]
    check: Callable[[str, Counts], None] = lambda split, counts: None
    files: Sequence[TextFile] = ()


def symbol_recipe(
    settings: dict[str, Any], splits: list[Split], symbols: Iterable[str]
) -> Recipe:
    """Of lines of known symbols between blanks; the dictionary has them in order."""
    known = list(symbols)
    return Recipe(
        settings=settings,
        splits=splits,
        tokenizer_files=[],
        prepare_tokenizer=lambda folder: symbol_dictionary(known).save(
            str(folder / "dict.txt")
        ),
        encoder=lambda folder, dictionary: WordEncoder(dictionary.indices),
    )


def prepare_folder(dest: Path, recipe: Recipe, workers: int, overwrite: bool) -> None:
    """Makes ``dest`` by ``recipe``, resuming an unfinished earlier run."""
    staging = Staging(dest, recipe.settings, REPORT, overwrite)
    if staging.is_complete():
        return
    with staging:
        folder = staging.folder
        outputs = ["dict.txt", *recipe.tokenizer_files]
        staging.stage("tokenizer", outputs, lambda: _result(recipe, folder))
        dictionary = load_dictionary(folder / "dict.txt")
        encoder = recipe.encoder(folder, dictionary)
        counts = {}
        # The small splits first: a wrong corpus shows before hours are spent.
        for split in sorted(recipe.splits, key=lambda split: split.name == "train"):
            counts[split.name] = staging.stage(
                f"encode {split.name}",
                [f"{split.name}.bin", f"{split.name}.idx"],
                lambda split=split: write_split(
                    folder,
                    split.name,
                    split.lines,
                    encoder,
                    dictionary,
                    workers,
                    split.line_count,
                    recipe.files,
                ),
            )
            recipe.check(split.name, counts[split.name])
        verify_folder(folder)
        counts = {split.name: counts[split.name] for split in recipe.splits}
        report = make_report(
            recipe.settings, len(dictionary), counts, folder, staging.files()
        )
        staging.write_report(report)
        staging.publish()
    print_report(report, dest)


def _result(recipe: Recipe, folder: Path) -> dict[str, Any]:
    recipe.prepare_tokenizer(folder)
    return {}
