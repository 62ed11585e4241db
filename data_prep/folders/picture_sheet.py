"""A sheet of pictures for the eye."""

import io
from pathlib import Path

import numpy as np

from data_prep.folders.errors import InputError

COLUMNS = 8
ENLARGEMENT = 3
BORDER = 2


def make_sheet(pictures: np.ndarray, labels: np.ndarray) -> bytes:
    """A PNG of pictures by label; a brighter frame is a higher one.

    Args:
        pictures: uint8, (count, h, w) of grey or (count, h, w, 3) of colours.
        labels: (count,).
    """
    from PIL import Image

    order = np.argsort(labels, kind="stable")
    pictures = pictures[order].repeat(ENLARGEMENT, 1).repeat(ENLARGEMENT, 2)
    frames = 60 + 195 * labels[order].astype(int) // max(int(labels.max()), 1)
    # of the two directions, not of the colours
    sides = [(BORDER, BORDER)] * 2 + [(0, 0)] * (pictures.ndim - 3)
    framed = [
        np.pad(np.pad(picture, sides, constant_values=int(frame)), sides)
        for picture, frame in zip(pictures, frames, strict=True)
    ]
    framed += [np.zeros_like(framed[0])] * (-len(framed) % COLUMNS)
    rows = [np.hstack(framed[i : i + COLUMNS]) for i in range(0, len(framed), COLUMNS)]
    png = io.BytesIO()
    Image.fromarray(np.vstack(rows)).save(png, "PNG")
    return png.getvalue()


def write_sheet(sheet: bytes, path: Path, overwrite: bool) -> None:
    """Writes the sheet; the same one is left as it is.

    Raises InputError where another file is there and not to be overwritten, OSError
    where ``path`` cannot be written.
    """
    if path.exists():
        if path.read_bytes() == sheet:
            return
        if not overwrite:
            raise InputError(
                f"--pictures {path}: another file is there, and left alone; give "
                "another name or --overwrite"
            )
    path.write_bytes(sheet)
