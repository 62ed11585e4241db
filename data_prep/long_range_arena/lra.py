"""``data_prep lra``: one of the Long-Range Arena's five data sets (Tay et al., 2021).

listops and pathfinder are generated. A seed gives the same data with any number of
workers: block b of a split has its own random numbers, of (seed, split, b).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro

from fairseq_transnormer.cli import Subcommand, run
from fairseq_transnormer.data import SPLITS
from fairseq_transnormer.data.fingerprints import file_sha256

from ..folders.hub import HubData, labelled_data
from ..folders.options import (
    CORES,
    Counts,
    Directory,
    Pictures,
    Place,
    Seed,
    Source,
    Workers,
    refuse_given,
)
from ..folders.parallel import map_batches
from ..folders.pictures import (
    CIFAR10,
    CIFAR10_FORM,
    SHOWN,
    hub_pictures,
    write_sheet,
)
from ..folders.sequence_folder import Example, prepare_sequences
from ..folders.staging import Record
from . import listops_generator, lra_release, pathfinder_generator
from .listops_generator import SYMBOLS, ListOpsLaw

BYTES = 256
TEXT_BYTES = 4000
LISTOPS_COUNTS = (96_000, 2_000, 2_000)
PATHFINDER_COUNTS = (160_000, 20_000, 20_000)
BLOCK = 1000
IMDB = HubData(
    "stanfordnlp/imdb",
    "e6281661ce1c48d982bc483cf8a173c1bbeb5d31",
    files={
        "train": "db47d16b5c297cc0dd625e519c81319c24c9149e70e8496de5475f6fa928342c",
        "test": "b52e26e2f872d282ffac460bf9770b25ac6f102cda0e6ca7158df98c94e8b3da",
    },
    labels={"train": (12_500,) * 2, "test": (12_500,) * 2},
)
# ITU-R BT.601, as in the benchmark, whose TensorFlow computes in float32
GREY = np.array([0.2989, 0.5870, 0.1140], np.float32)
COMMANDS = {
    name: Subcommand(f"{__name__}:{name}", summary)
    for name, summary in {
        "listops": "expressions and their values, generated",
        "pathfinder": "dashed contours, generated",
        "text": "IMDB's reviews, as bytes",
        "image": "CIFAR-10's pictures, as grey pixels",
        "retrieval": "AAN's pairs of documents, as bytes",
    }.items()
}

Release = Annotated[
    Path | None,
    tyro.conf.arg(metavar="DIR", help="the folder lra_release; None: they are made"),
]
Examples = Callable[[str], Iterator[Example]]
# (count, random=...) -> sequences or pictures, their labels, and what else there is
Generator = Callable[..., Sequence[Any]]


def main(arguments: list[str] | None = None) -> int:
    """Make a data set; returns the exit code."""
    return run(
        "python -m data_prep lra",
        "Prepares one of the Long-Range Arena's five data sets (Tay et al., 2021).",
        COMMANDS,
        arguments,
    )


def listops(
    place: Place,
    law: ListOpsLaw,
    from_dir: Release = None,
    seed: Seed = 1,
    counts: Counts = LISTOPS_COUNTS,
    workers: Workers = CORES,
) -> None:
    """Generate ListOps by the benchmark's law, or read the benchmark's own files."""
    if from_dir:
        changed = dict(vars(law).items() - vars(ListOpsLaw()).items())
        changed |= {"seed": seed != 1, "counts": counts != LISTOPS_COUNTS}
        refuse_given("without --from-dir", **changed)
        files = lra_release.files(from_dir, lra_release.LISTOPS)
        settings = {"files": _sha256(files)}
        examples = partial(lra_release.listops_examples, files)
    else:
        generator = partial(listops_generator.generate, law=law)
        settings, examples = _generated(generator, seed, counts, workers)
        settings["generated"] = {"law": vars(law)}
    settings["data"] = "listops"
    prepare_sequences(place, settings, examples, len(SYMBOLS), 10)


def pathfinder(
    place: Place,
    from_dir: Release = None,
    seed: Seed = 1,
    counts: Counts = PATHFINDER_COUNTS,
    workers: Workers = CORES,
    pictures: Pictures = None,
) -> None:
    """Generate Pathfinder's hard set, 32 x 32, or read the benchmark's own files."""
    if from_dir:
        others = counts != PATHFINDER_COUNTS
        refuse_given("without --from-dir", seed=seed != 1, counts=others)
        lists = lra_release.pathfinder_lists(from_dir)
        files = lra_release.pathfinder_files(lists)
        settings = {
            "pictures": len(files),
            "metadata": _sha256({path.name: path for path in sorted(lists)}),
        }
        examples = partial(lra_release.pathfinder_examples, files)
    else:
        generator = pathfinder_generator.generate
        settings, examples = _generated(generator, seed, counts, workers)
        settings["generated"] = {}
    settings["data"] = "pathfinder"
    prepare_sequences(place, settings, examples, BYTES, 2)
    _show(place, pictures)


def retrieval(place: Place, from_dir: Directory) -> None:
    """Read AAN's pairs of documents, of each the first 4,000 bytes.

    Args:
        from_dir: the folder lra_release.
    """
    files = lra_release.files(from_dir, lra_release.RETRIEVAL)
    settings = {"data": "retrieval", "files": _sha256(files), "bytes": TEXT_BYTES}
    examples = partial(lra_release.retrieval_examples, files, TEXT_BYTES)
    prepare_sequences(place, settings, examples, BYTES, 2, sequences=2)


def text(place: Place, copy: Source) -> None:
    """Read IMDB's reviews, of each the first 4,000 bytes.

    They are the hub's, or its parquet files in --from-dir. The test split is both valid
    and test, as in the benchmark.
    """
    loaded = labelled_data(IMDB, copy)

    def examples(split: str) -> Iterator[Example]:
        name = "train" if split == "train" else "test"
        for text, label in loaded.rows(name, "text", "label"):
            # a row without a text is refused as an empty one
            yield (np.frombuffer((text or "").encode()[:TEXT_BYTES], np.uint8),), label

    settings = {"data": "text", "bytes": TEXT_BYTES, "source": loaded.identity}
    prepare_sequences(place, settings, examples, BYTES, 2)


def image(place: Place, copy: Source, pictures: Pictures = None) -> None:
    """Read CIFAR-10's pictures, 32 x 32 levels of grey, row by row.

    They are the hub's, or its parquet files in --from-dir.
    """
    loaded = labelled_data(CIFAR10, copy)

    def examples(split: str) -> Iterator[Example]:
        for pixels, label in hub_pictures(loaded, split, CIFAR10_FORM):
            grey = (pixels.astype(np.float32) * (1 / 255) * GREY).sum(-1) * 255.5
            yield (grey.astype(np.uint8).ravel(),), label  # cut off, not rounded

    settings = {"data": "image", "source": loaded.identity}
    prepare_sequences(place, settings, examples, BYTES, 10)
    _show(place, pictures)


def _generated(
    generator: Generator, seed: int, numbers: tuple[int, int, int], workers: int
) -> tuple[Record, Examples]:
    counts = dict(zip(SPLITS, numbers, strict=True))

    def examples(split: str) -> Iterator[Example]:
        work = partial(_block, generator, seed, SPLITS.index(split))
        for block in map_batches(work, range(counts[split]), workers, BLOCK):
            for sequence, label in zip(*block, strict=True):
                yield (sequence.ravel(),), int(label)

    return {"seed": seed, "counts": counts}, examples


def _block(
    generator: Generator, seed: int, split: int, numbers: list[int]
) -> Sequence[Any]:
    """Sequences and labels of the examples of these numbers."""
    random = np.random.default_rng([seed, split, numbers[0] // BLOCK])
    return generator(len(numbers), random=random)[:2]


def _sha256(files: dict[str, Path]) -> dict[str, str]:
    return {name: file_sha256(path) for name, path in files.items()}


def _show(place: Place, sheet: Path | None) -> None:
    """A sheet of the first pictures of train, of 32 x 32 grey pixels, if wanted."""
    if sheet:
        labels = np.load(place.dest / "train.labels.npy")[:SHOWN]
        tokens = np.memmap(place.dest / "train.tokens.0.bin", np.uint8, "r")
        pictures = tokens[: len(labels) * 1024].reshape(-1, 32, 32)
        write_sheet(pictures, labels, sheet, place.overwrite)
