"""The folder ``lra_release`` of the Long-Range Arena, read as it is.

    listops-1000/basic_{train,val,test}.tsv      with a header: expression TAB value
    lra_release/tsv_data/new_aan_pairs.{train,eval,test}.tsv    no header: label, two
                                                 ids, two texts; quotes mean nothing
    pathfinder32/curv_contour_length_14/         metadata/*.npy (text: folder, file,
                                                 number, label, ...) and imgs/

``--from-dir`` may be that folder, the one around it, or the one that has the files. Of
Pathfinder it has pictures of 64, 128 and 256 pixels, too, which are not read.
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
PATHFINDER = "curv_contour_length_14"
PATHFINDER_PIXELS = 32
# the release has no splits of Pathfinder; 80, 10 and 10 % of the pictures, shuffled
SHUFFLE_SEED = 0


def files(folder: Path, names: dict[str, str]) -> dict[str, Path]:
    """The files of these names by split, all in one folder in or below ``folder``."""
    place = located(folder, names["train"])
    return {split: place / name for split, name in names.items()}


def located(folder: Path, name: str) -> Path:
    """The folder in or below ``folder`` that has ``name``; else a ValueError."""
    for pattern in ("", "*/", "*/*/", "*/*/*/"):
        for path in sorted(folder.glob(pattern + name)):
            return path.parent
    raise ValueError(
        f"--from-dir {folder}: has no {name} of lra_release, itself or up to three "
        "folders deep"
    )


def listops_examples(files: dict[str, Path], split: str) -> Iterator[Example]:
    """The expressions of a TSV file and their values."""
    path = files[split]
    for number, fields in _rows(path, 2):
        if number == 1 and fields == [b"Source", b"Target"]:
            continue
        where = f"{path}, line {number}"
        label = label_of(fields[1].decode("utf-8", "replace"), 10, where)
        try:
            yield (encode(fields[0].decode("ascii", "replace")),), label
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from error


def retrieval_examples(
    files: dict[str, Path], longest: int, split: str
) -> Iterator[Example]:
    """Pairs of documents, as their first ``longest`` bytes."""
    path = files[split]
    for number, fields in _rows(path, 5):
        where = f"{path}, line {number}"
        label = label_of(fields[0].decode("utf-8", "replace"), 2, where)
        for text in fields[3:]:
            if not text:
                raise ValueError(f"{where}: an empty text")
        texts = (np.frombuffer(text[:longest], np.uint8) for text in fields[3:])
        yield tuple(texts), label


def pathfinder_folder(folder: Path) -> Path:
    """The folder of metadata and pictures: ``folder``, one in it, or the benchmark's.

    Raises ValueError where there is no folder of the benchmark's resolution.
    """
    for place in (folder, folder / PATHFINDER):
        if (place / "metadata").is_dir():
            return place
    name = f"pathfinder{PATHFINDER_PIXELS}/{PATHFINDER}"
    return located(folder, name) / PATHFINDER


def pathfinder_files(folder: Path) -> list[tuple[Path, int]]:
    """Every picture's file and label, once, in a fixed random order.

    Raises ValueError for metadata that cannot be read, name a missing picture, or give
    one two labels.
    """
    labels: dict[Path, int] = {}
    lists = sorted(
        (folder / "metadata").glob("*.npy"),
        key=lambda path: (int(path.stem) if path.stem.isdigit() else -1, path.stem),
    )
    if not lists:
        raise ValueError(f"{folder / 'metadata'}: no *.npy file")
    for path in lists:
        # names that are not UTF-8 are named below, as missing
        text = path.read_text(encoding="utf-8", errors="backslashreplace")
        for number, line in enumerate(text.splitlines(), 1):
            where, fields = f"{path}, line {number}", line.split()
            if len(fields) < 4:
                raise ValueError(f"{where}: {len(fields)} fields, expected at least 4")
            picture = folder / fields[0] / fields[1]
            if not picture.is_file():
                raise ValueError(f"{picture}: no such file, but {where} lists it")
            label = label_of(fields[3], 2, where)
            # listed again, by a copied list, it would be in train and in test
            if labels.setdefault(picture, label) != label:
                raise ValueError(
                    f"{where}: label {label} of {picture}, which has {labels[picture]} "
                    "in an earlier line; allowed: one"
                )
    found = list(labels.items())
    order = np.random.default_rng(SHUFFLE_SEED).permutation(len(found))
    return [found[i] for i in order]


def pathfinder_examples(files: list[tuple[Path, int]], split: str) -> Iterator[Example]:
    """Pictures row by row; train has 80 % of the files, valid and test 10 %."""
    from PIL import Image

    tenth, shape = len(files) // 10, (PATHFINDER_PIXELS, PATHFINDER_PIXELS)
    bounds = {"train": (0, 8), "valid": (8, 9), "test": (9, None)}[split]
    start, end = (None if part is None else part * tenth for part in bounds)
    for path, label in files[start:end]:
        with Image.open(path) as picture:
            yield (pixels_of(picture, "L", shape, str(path)).reshape(-1),), label


def label_of(text: str, classes: int, where: str) -> int:
    """A label, which the original files write as 3 or 3.0."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if value not in range(classes):
        raise ValueError(f"{where}: label {text!r}; allowed: 0 to {classes - 1}")
    return int(value)


def _rows(path: Path, columns: int) -> Iterator[tuple[int, list[bytes]]]:
    """Lines by number; of bytes, as texts may be of any encoding."""
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            fields = line.rstrip(b"\r\n").split(b"\t")
            if len(fields) != columns:
                raise ValueError(
                    f"{path}, line {number}: {len(fields)} columns, expected "
                    f"{columns}; truncated?"
                )
            yield number, fields
