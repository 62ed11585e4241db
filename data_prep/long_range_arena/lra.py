"""Prepares one of the Long-Range Arena's five data sets (Tay et al., 2021).

listops and pathfinder are generated, all of them, on every core; a seed gives the same
data with any number of workers. text (IMDB) and image (CIFAR-10) come from the Hugging
Face hub or a local copy, retrieval (AAN) from the benchmark's own files. --from-dir
reads listops, pathfinder and retrieval as the folder lra_release has them. Texts are
bytes, cut off at 4,000.
"""

import argparse
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from data_prep.folders.arguments import (
    add_destination,
    add_other_sizes,
    add_pictures,
    add_workers,
    command_parser,
    refuse_given,
    usable_cores,
)
from data_prep.folders.cifar10_source import cifar10_rows
from data_prep.folders.dataset_rows import data_rows
from data_prep.folders.errors import InputError, run_command
from data_prep.folders.picture_sheet import make_sheet, write_sheet
from data_prep.folders.sequence_folder import Example, Recipe, prepare_sequences
from data_prep.long_range_arena import lra_hub, lra_release
from data_prep.long_range_arena.generated_examples import (
    Generator,
    generated_examples,
    listops_block,
    pathfinder_block,
)
from data_prep.long_range_arena.listops_generator import (
    LIMITS,
    MAX_MEAN_NODES,
    SYMBOLS,
    ListOpsLaw,
)
from fairseq_transnormer.argument_types import integer_between, seed
from fairseq_transnormer.data import SPLITS
from fairseq_transnormer.data.fingerprints import file_sha256

BYTES = 256
TEXT_BYTES = 4000
PICTURES_SHOWN = 32
MAX_EXAMPLES = 10**8
UNKNOWN_COUNTS = dict.fromkeys(SPLITS)
FROM_THE_HUB = ("text", "image")
COUNTS = {"listops": (96_000, 2_000, 2_000), "pathfinder": (160_000, 20_000, 20_000)}


def _listops(options: argparse.Namespace) -> Recipe:
    if options.from_dir:
        files = _release_files(options.from_dir, lra_release.LISTOPS)
        settings = _fingerprints("listops", files)
        return _recipe(
            settings, lambda s: lra_release.listops_examples(files[s]), len(SYMBOLS), 10
        )
    law = ListOpsLaw(
        options.max_depth, options.max_args, options.shortest, options.longest
    )
    if law.longest - law.shortest < 2:
        raise InputError(f"--longest {law.longest}; allowed: from {law.shortest + 2}")
    if law.mean_nodes() > MAX_MEAN_NODES:
        raise InputError(
            f"--max-depth {law.max_depth} with --max-args {law.max_args}: trees of "
            f"{law.mean_nodes():.3g} symbols on average; allowed: up to "
            f"{MAX_MEAN_NODES}, by less of either"
        )
    settings = {"law": vars(law)}
    return _generated(options, settings, partial(listops_block, law), len(SYMBOLS), 10)


def _pathfinder(options: argparse.Namespace) -> Recipe:
    if options.from_dir:
        folder = lra_release.pathfinder_folder(options.from_dir)
        files = lra_release.pathfinder_files(folder)
        settings = {
            "data": "pathfinder",
            "pictures": len(files),
            "metadata": {
                path.name: file_sha256(path)
                for path in sorted((folder / "metadata").glob("*.npy"))
            },
        }

        def examples(split: str) -> Iterator[Example]:
            chosen = lra_release.pathfinder_split(files, split)
            return lra_release.pathfinder_examples(chosen)

        return _recipe(settings, examples, BYTES, 2)
    return _generated(options, {}, pathfinder_block, BYTES, 2)


def _retrieval(options: argparse.Namespace) -> Recipe:
    files = _release_files(options.from_dir, lra_release.RETRIEVAL)
    return _recipe(
        _fingerprints("retrieval", files) | {"bytes": TEXT_BYTES},
        lambda split: lra_release.retrieval_examples(files[split], TEXT_BYTES),
        BYTES,
        2,
        sequences=2,
    )


def _text(options: argparse.Namespace) -> Recipe:
    rows = data_rows(lra_hub.IMDB, options.from_dir, options.allow_other_sizes)
    settings = {"data": "text", "bytes": TEXT_BYTES, "source": rows.identity}
    return _recipe(
        settings,
        lambda split: lra_hub.text_examples(rows, split, TEXT_BYTES),
        BYTES,
        2,
    )


def _image(options: argparse.Namespace) -> Recipe:
    rows = cifar10_rows(options.from_dir, options.allow_other_sizes)
    settings = {"data": "image", "source": rows.identity}
    return _recipe(
        settings, lambda split: lra_hub.image_examples(rows, split), BYTES, 10
    )


RECIPES: dict[str, Callable[[argparse.Namespace], Recipe]] = {
    "listops": _listops,
    "pathfinder": _pathfinder,
    "text": _text,
    "image": _image,
    "retrieval": _retrieval,
}


def _recipe(
    settings: dict,
    examples: Callable[[str], Iterator[Example]],
    vocabulary: int,
    classes: int,
    sequences: int = 1,
    counts: dict[str, int | None] = UNKNOWN_COUNTS,
) -> Recipe:
    return Recipe(settings, sequences, vocabulary, classes, examples, counts)


def _generated(
    options: argparse.Namespace,
    settings: dict,
    generator: Generator,
    vocabulary: int,
    classes: int,
) -> Recipe:
    counts = dict(zip(SPLITS, options.counts, strict=True))

    def examples(split: str) -> Iterator[Example]:
        return generated_examples(
            generator, split, counts[split], options.seed, options.workers
        )

    settings = {"data": options.data, "generated": settings} | {
        "seed": options.seed,
        "counts": counts,
    }
    return _recipe(settings, examples, vocabulary, classes, counts=counts)


def _release_files(folder: Path, names: dict[str, str]) -> dict[str, Path]:
    place = lra_release.located(folder, list(names.values()))
    return {split: place / name for split, name in names.items()}


def _fingerprints(data: str, files: dict[str, Path]) -> dict:
    files_of = {split: file_sha256(path) for split, path in files.items()}
    return {"data": data, "files": files_of}


def main(arguments: list[str] | None = None) -> int:
    """The command line; returns the exit code."""
    parser = command_parser("lra", __doc__)
    commands = parser.add_subparsers(dest="data", required=True, metavar="DATA")
    for name in RECIPES:
        command = commands.add_parser(name, allow_abbrev=False)
        add_destination(command)
        command.add_argument(
            "--from-dir",
            type=Path,
            required=name == "retrieval",
            metavar="SRC",
            help="a copy of the original data",
        )
        if name in COUNTS:
            _add_generation(command, name)
        if name in FROM_THE_HUB:
            add_other_sizes(command, "the published files and numbers of each label")
        if name in ("pathfinder", "image"):
            add_pictures(command)
    options = parser.parse_args(arguments)
    return run_command(parser.prog, lambda: _prepare(options))


def _add_generation(command: argparse.ArgumentParser, name: str) -> None:
    defaults = _generation_defaults(name)
    add_workers(command)
    # None tells what was not given from what must be refused beside --from-dir
    command.set_defaults(workers=None)
    command.add_argument(
        "--seed", type=seed, metavar="N", help=f"(default: {defaults['seed']})"
    )
    command.add_argument(
        "--counts",
        type=integer_between(1, MAX_EXAMPLES),
        nargs=3,
        metavar=("TRAIN", "VALID", "TEST"),
        help=f"examples of each split (default: {defaults['counts']}, the benchmark's)",
    )
    if name == "listops":
        for field, default in vars(ListOpsLaw()).items():
            command.add_argument(
                f"--{field.replace('_', '-')}",
                type=integer_between(*LIMITS[field]),
                metavar="N",
                help=f"(default: {default}, the benchmark's; shortest and longest "
                "are excluded themselves)",
            )


def _generation_defaults(name: str) -> dict[str, Any]:
    law = vars(ListOpsLaw()) if name == "listops" else {}
    return {"workers": usable_cores(), "seed": 1, "counts": COUNTS[name]} | law


def _settle_generation(options: argparse.Namespace) -> None:
    """Fills in what was not given; refuses what was beside ``--from-dir``."""
    defaults = _generation_defaults(options.data)
    if options.from_dir:
        refuse_given(options, defaults, "without --from-dir")
    for name, default in defaults.items():
        if getattr(options, name) is None:
            setattr(options, name, default)


def _prepare(options: argparse.Namespace) -> None:
    if options.data in COUNTS:
        _settle_generation(options)
    prepare_sequences(options.dest, RECIPES[options.data](options), options.overwrite)
    if getattr(options, "pictures", None):
        labels = np.load(options.dest / "train.labels.npy")[:PICTURES_SHOWN]
        tokens = np.memmap(options.dest / "train.tokens.0.bin", np.uint8, "r")
        pictures = tokens[: len(labels) * 1024].reshape(-1, 32, 32)
        sheet = make_sheet(pictures, labels)
        write_sheet(sheet, options.pictures, options.overwrite)
