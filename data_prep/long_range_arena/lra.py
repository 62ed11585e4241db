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
from typing import Any

import numpy as np

from data_prep.folders.command import (
    add_counts,
    add_destination,
    add_integer,
    add_other_sizes,
    add_seed,
    add_source,
    add_workers,
    command,
)
from data_prep.folders.hub import HubData, labelled_data
from data_prep.folders.pictures import (
    CIFAR10,
    SHOWN,
    add_pictures,
    cifar10_pictures,
    write_sheet,
)
from data_prep.folders.sequence_folder import Example, Recipe, prepare_sequences
from data_prep.long_range_arena import lra_release
from data_prep.long_range_arena.generated_examples import (
    Generator,
    generated_examples,
    listops_block,
    pathfinder_block,
)
from data_prep.long_range_arena.listops_generator import LIMITS, SYMBOLS, ListOpsLaw
from data_prep.long_range_arena.lra_release import label_of
from fairseq_transnormer.data import SPLITS
from fairseq_transnormer.data.fingerprints import file_sha256

BYTES = 256
TEXT_BYTES = 4000
COUNTS = {"listops": (96_000, 2_000, 2_000), "pathfinder": (160_000, 20_000, 20_000)}
IMDB = HubData(
    "stanfordnlp/imdb",
    "e6281661ce1c48d982bc483cf8a173c1bbeb5d31",
    files={
        "train-00000-of-00001.parquet": (
            "db47d16b5c297cc0dd625e519c81319c24c9149e70e8496de5475f6fa928342c"
        ),
        "test-00000-of-00001.parquet": (
            "b52e26e2f872d282ffac460bf9770b25ac6f102cda0e6ca7158df98c94e8b3da"
        ),
    },
    labels={"train": (12_500,) * 2, "test": (12_500,) * 2},
)
# ITU-R BT.601, as the benchmark's own conversion
GREY = np.array([0.2989, 0.5870, 0.1140])


def _listops(options: argparse.Namespace) -> Recipe:
    if options.from_dir:
        files = lra_release.files(options.from_dir, lra_release.LISTOPS)
        return Recipe(
            {"data": "listops", "files": _sha256(files)},
            lambda split: lra_release.listops_examples(files[split]),
            vocabulary=len(SYMBOLS),
            classes=10,
        )
    law = ListOpsLaw(**{name: getattr(options, name) for name in LIMITS})
    settings = {"law": vars(law)}
    return _generated(options, settings, partial(listops_block, law), len(SYMBOLS), 10)


def _pathfinder(options: argparse.Namespace) -> Recipe:
    if not options.from_dir:
        return _generated(options, {}, pathfinder_block, BYTES, 2)
    folder = lra_release.pathfinder_folder(options.from_dir)
    pictures = lra_release.pathfinder_files(folder)
    metadata = sorted((folder / "metadata").glob("*.npy"))

    def examples(split: str) -> Iterator[Example]:
        chosen = lra_release.pathfinder_split(pictures, split)
        return lra_release.pathfinder_examples(chosen)

    settings = {
        "data": "pathfinder",
        "pictures": len(pictures),
        "metadata": _sha256({path.name: path for path in metadata}),
    }
    return Recipe(settings, examples, BYTES, classes=2)


def _retrieval(options: argparse.Namespace) -> Recipe:
    files = lra_release.files(options.from_dir, lra_release.RETRIEVAL)
    settings = {"data": "retrieval", "files": _sha256(files), "bytes": TEXT_BYTES}
    return Recipe(
        settings,
        lambda split: lra_release.retrieval_examples(files[split], TEXT_BYTES),
        BYTES,
        classes=2,
        sequences=2,
    )


def _text(options: argparse.Namespace) -> Recipe:
    """IMDB's reviews; its test split is both valid and test, as in the benchmark."""
    loaded = labelled_data(IMDB, options.from_dir, options.allow_other_sizes)

    def examples(split: str) -> Iterator[Example]:
        name = "train" if split == "train" else "test"
        for number, (text, label) in enumerate(loaded.rows(name, "text", "label")):
            where = f"{loaded.where}: {name}, row {number}"
            if not text:
                raise ValueError(f"{where}: an empty text")
            sequence = np.frombuffer(text.encode("utf-8")[:TEXT_BYTES], np.uint8)
            yield (sequence,), label_of(str(label), 2, where)

    settings = {"data": "text", "bytes": TEXT_BYTES, "source": loaded.identity}
    return Recipe(settings, examples, BYTES, classes=2)


def _image(options: argparse.Namespace) -> Recipe:
    """CIFAR-10's pictures, 32 x 32 levels of grey, row by row."""
    loaded = labelled_data(CIFAR10, options.from_dir, options.allow_other_sizes)

    def examples(split: str) -> Iterator[Example]:
        for pixels, label in cifar10_pictures(loaded, split):
            grey = np.rint(pixels @ GREY).clip(0, 255).astype(np.uint8)
            yield (grey.reshape(-1),), label_of(str(label), 10, loaded.where)

    settings = {"data": "image", "source": loaded.identity}
    return Recipe(settings, examples, BYTES, classes=10)


RECIPES: dict[str, Callable[[argparse.Namespace], Recipe]] = {
    "listops": _listops,
    "pathfinder": _pathfinder,
    "text": _text,
    "image": _image,
    "retrieval": _retrieval,
}


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
    return Recipe(settings, examples, vocabulary, classes, counts=counts)


def _sha256(files: dict) -> dict[str, str]:
    return {name: file_sha256(path) for name, path in files.items()}


def _add_options(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(dest="data", required=True, metavar="DATA")
    for name in RECIPES:
        each = commands.add_parser(name, allow_abbrev=False)
        add_destination(each)
        add_source(each, "the original data", required=name == "retrieval")
        if name in COUNTS:
            _add_generation(each, name)
        if name in ("text", "image"):
            add_other_sizes(each, "the published files and numbers of each label")
        if name in ("pathfinder", "image"):
            add_pictures(each)


def _generation_defaults(name: str) -> dict[str, Any]:
    law = vars(ListOpsLaw()) if name == "listops" else {}
    return {"seed": 1, "counts": COUNTS[name]} | law


def _add_generation(parser: argparse.ArgumentParser, name: str) -> None:
    add_workers(parser)
    add_seed(parser, "another seed, other data", 1)
    text = "examples of each split (default: %(default)s, the benchmark's)"
    add_counts(parser, COUNTS[name], text)
    if name == "listops":
        for field, default in vars(ListOpsLaw()).items():
            option, text = f"--{field.replace('_', '-')}", "of the benchmark's law"
            add_integer(parser, option, LIMITS[field], text, default)


def _prepare(options: argparse.Namespace) -> None:
    if options.data in COUNTS and options.from_dir:
        for name, default in _generation_defaults(options.data).items():
            if getattr(options, name) != default:
                option = "--" + name.replace("_", "-")
                raise ValueError(f"{option}: allowed without --from-dir only")
    prepare_sequences(options.dest, RECIPES[options.data](options), options.overwrite)
    if getattr(options, "pictures", None):
        labels = np.load(options.dest / "train.labels.npy")[:SHOWN]
        tokens = np.memmap(options.dest / "train.tokens.0.bin", np.uint8, "r")
        pictures = tokens[: len(labels) * 1024].reshape(-1, 32, 32)
        write_sheet(pictures, labels, options.pictures, options.overwrite)


main = command("lra", __doc__, _add_options, _prepare)
