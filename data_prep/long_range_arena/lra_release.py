"""The folder ``lra_release`` of the Long-Range Arena, read as it is.

    listops-1000/basic_{train,val,test}.tsv      with a header: expression TAB value
    lra_release/tsv_data/new_aan_pairs.{train,eval,test}.tsv    no header: label, two
                                                 ids, two texts; quotes mean nothing
    pathfinder32/curv_contour_length_14/         metadata/*.npy (text: folder, file,
                                                 number, label, ...) and imgs/

``--from-dir`` may be that folder or one around it. Of Pathfinder it has pictures of 64,
128 and 256 pixels, too, which are not read.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from ..folders.pictures import pixels_of
from ..folders.sequence_folder import Example
from .listops_generator import encode

LISTOPS = {
    split: f"basic_{name}.tsv"
    for split, name in (("train", "train"), ("valid", "val"), ("test", "test"))
}
RETRIEVAL = {
    split: f"new_aan_pairs.{name}.tsv"
    for split, name in (("train", "train"), ("valid", "eval"), ("test", "test"))
}
PATHFINDER = "pathfinder32/curv_contour_length_14"
PATHFINDER_SHAPE = (32, 32)
# the release has no splits of Pathfinder; 80, 10 and 10 % of the pictures, shuffled
SHUFFLE_SEED = 0


def files(folder: Path, names: dict[str, str]) -> dict[str, Path]:
    """The files of these names by split, all in one folder in or below ``folder``."""
    place = located(folder, names["train"]).parent
    return {split: place / name for split, name in names.items()}


def located(folder: Path, name: str) -> Path:
    """The first ``name`` in or below ``folder``; ValueError where there is none."""
    for path in sorted(folder.rglob(name)):
        return path
    raise ValueError(f"--from-dir {folder}: has no {name} of lra_release")


def listops_examples(files: dict[str, Path], split: str) -> Iterator[Example]:
    """The expressions of a TSV file and their values."""
    for where, (expression, value) in _rows(files[split], 2):
        if value != b"Target":
            try:
                ids = encode(expression.decode())
            except ValueError as error:
                raise ValueError(f"{where}: {error}") from error
            yield (ids,), label_of(value.decode(), 10, where)


def retrieval_examples(
    files: dict[str, Path], longest: int, split: str
) -> Iterator[Example]:
    """Pairs of documents, as their first ``longest`` bytes."""
    for where, (label, _, _, *texts) in _rows(files[split], 5):
        pair = (np.frombuffer(text[:longest], np.uint8) for text in texts)
        yield tuple(pair), label_of(label.decode(), 2, where)


def pathfinder_lists(folder: Path) -> list[Path]:
    """The files of metadata in or below ``folder``, in the order of their numbers."""
    found = located(folder, f"{PATHFINDER}/metadata").glob("*.npy")
    return sorted(found, key=lambda path: (len(path.name), path.name))


def pathfinder_files(lists: list[Path]) -> list[tuple[Path, int]]:
    """Every listed picture's file and label, once, in a fixed random order."""
    # listed again, by a copied list, a picture would be in train and in test
    labels: dict[Path, int] = {}
    for path in lists:
        for number, line in enumerate(path.read_text().splitlines(), 1):
            place, name, _, label, *_ = line.split()
            where = f"{path}, line {number}"
            picture, own = path.parents[1] / place / name, label_of(label, 2, where)
            if labels.setdefault(picture, own) != own:
                raise ValueError(f"{where}: {name} has another label elsewhere")
    found = list(labels.items())
    order = np.random.default_rng(SHUFFLE_SEED).permutation(len(found))
    return [found[i] for i in order]


def pathfinder_examples(files: list[tuple[Path, int]], split: str) -> Iterator[Example]:
    """Pictures row by row; train has 80 % of the files, valid and test 10 %."""
    from PIL import Image

    tenth = len(files) // 10
    bounds = {"train": (0, 8), "valid": (8, 9), "test": (9, None)}[split]
    start, end = (None if part is None else part * tenth for part in bounds)
    for path, label in files[start:end]:
        with Image.open(path) as picture:
            yield (pixels_of(picture, "L", PATHFINDER_SHAPE, str(path)).ravel(),), label


def label_of(text: str, classes: int, where: str) -> int:
    """A label, which the original files write as 3 or 3.0."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if value not in range(classes):
        raise ValueError(f"{where}: label {text!r}; allowed: 0 to {classes - 1}")
    return int(value)


def _rows(path: Path, columns: int) -> Iterator[tuple[str, list[bytes]]]:
    """Lines with their places; of bytes, as texts may be of any encoding."""
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            where = f"{path}, line {number}"
            fields = line.rstrip(b"\r\n").split(b"\t")
            if len(fields) != columns:
                raise ValueError(
                    f"{where}: {len(fields)} columns, expected {columns}; truncated?"
                )
            yield where, fields
