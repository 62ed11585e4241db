"""Pictures: CIFAR-10, and a sheet for the eye."""

import io
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fairseq_transnormer.data.whole_files import write_whole

from .hub import LABEL, HubData, Loaded

CIFAR10 = HubData(
    "uoft-cs/cifar10",
    "0b2714987fa478483af9968de7c934580d0bb9a2",
    files={
        "train": "8428b53a88a11ac374111006708df51469e315a22ac6d66470afd9c78d2ae883",
        "test": "841389e6f2d64f28bf17310e430aebac20ec3ba611a3c5e231dc93c645ce84de",
    },
    labels={"train": (5_000,) * 10, "test": (1_000,) * 10},
)
# column; PIL's mode; height, width and, of colours, channels: red, green, blue
Form = tuple[str, str, tuple[int, ...]]
CIFAR10_FORM = ("img", "RGB", (32, 32, 3))
# of a train split, the last ones; fewer of a shorter copy
VALID_PICTURES = 5000
SHOWN = 32
COLUMNS = 8
ENLARGEMENT = 3
BORDER = 2


def hub_pictures(
    loaded: Loaded, split: str, form: Form
) -> Iterator[tuple[np.ndarray, Any]]:
    """Pixels, uint8 of the shape, and label of train, valid or test in their order."""
    from datasets import Image

    column, mode, shape = form
    name = "test" if split == "test" else "train"
    rows = loaded.splits[name]
    if column in rows.features:  # a copy that pandas wrote has bytes
        loaded = replace(loaded, splits={name: rows.cast_column(column, Image())})
    count = sum(1 for _ in loaded.rows(name, LABEL))
    border = count - min(VALID_PICTURES, count // 10)
    for number, (stored, label) in enumerate(loaded.rows(name, column, LABEL)):
        if split == "test" or (number < border) == (split == "train"):
            where = f"{loaded.where}: {name}, row {number}"
            yield pixels_of(stored, mode, shape, where), label


def pixels_of(
    picture: Any, mode: str, shape: tuple[int, ...], where: str
) -> np.ndarray:
    """uint8 of this shape, of PIL's picture; ``mode`` is PIL's, as RGB."""
    try:
        pixels = np.asarray(picture.convert(mode))
    except (OSError, SyntaxError) as error:  # PIL's for a broken PNG
        raise ValueError(f"{where}: cannot be read as a picture: {error}") from error
    if pixels.shape != shape:
        raise ValueError(f"{where}: a picture of {pixels.shape}, expected {shape}")
    return pixels


def write_sheet(
    pictures: np.ndarray, labels: np.ndarray, path: Path, overwrite: bool
) -> None:
    """Write a PNG of pictures by label; a brighter frame is a higher one.

    Args:
        pictures: uint8, (count, h, w) of grey.
        labels: (count,).
        path: another file there is replaced only if ``overwrite``.
    """
    from PIL import Image

    order = np.argsort(labels, kind="stable")
    pictures = pictures[order].repeat(ENLARGEMENT, 1).repeat(ENLARGEMENT, 2)
    frames = 60 + 195 * labels[order].astype(int) // max(int(labels.max()), 1)
    framed = [
        np.pad(np.pad(picture, BORDER, constant_values=int(frame)), BORDER)
        for picture, frame in zip(pictures, frames, strict=True)
    ]
    framed += [np.zeros_like(framed[0])] * (-len(framed) % COLUMNS)
    rows = [np.hstack(framed[i : i + COLUMNS]) for i in range(0, len(framed), COLUMNS)]
    png = io.BytesIO()
    Image.fromarray(np.vstack(rows)).save(png, "PNG")
    if path.exists() and path.read_bytes() != png.getvalue() and not overwrite:
        raise ValueError(
            f"--pictures {path}: another file is there, and left alone; give another "
            "name or --overwrite"
        )
    write_whole(path, lambda file: file.write(png.getbuffer()))
