"""A sheet of pictures for the eye."""

from pathlib import Path

import numpy as np

COLUMNS = 8
ENLARGEMENT = 3
BORDER = 2


def write_sheet(pictures: np.ndarray, labels: np.ndarray, path: Path) -> None:
    """Pictures (count, h, w), uint8, sorted by label; a brighter frame is a higher one.

    Raises OSError where ``path`` cannot be written.
    """
    from PIL import Image

    order = np.argsort(labels, kind="stable")
    pictures = pictures[order].repeat(ENLARGEMENT, 1).repeat(ENLARGEMENT, 2)
    frames = 60 + 195 * labels[order].astype(int) // max(int(labels.max()), 1)
    framed = [
        np.pad(picture, BORDER, constant_values=int(frame))
        for picture, frame in zip(pictures, frames, strict=True)
    ]
    framed = [np.pad(picture, BORDER) for picture in framed]
    framed += [np.zeros_like(framed[0])] * (-len(framed) % COLUMNS)
    rows = [np.hstack(framed[i : i + COLUMNS]) for i in range(0, len(framed), COLUMNS)]
    Image.fromarray(np.vstack(rows)).save(path)
