"""Dashes and discs as small grey pictures with smooth edges."""

import numpy as np

DASH_WIDTH = 0.6
DASH_BRIGHTNESS = 0.9
MARKER_RADIUS = 1.5
WINDOW = 7


def draw(dashes: np.ndarray, markers: np.ndarray, size: int) -> np.ndarray:
    """Pictures, uint8 (count, size, size), bright on black.

    dashes: (count, dashes, 2, 2), the ends of each as (x, y). markers: (count, M, 2).
    A pixel's brightness is the share of it that is covered, by its centre's distance.
    """
    border = WINDOW
    # round ends would reach into the gaps
    lengths = np.linalg.norm(dashes[:, :, 1] - dashes[:, :, 0], axis=-1)[..., None]
    overhang = (dashes[:, :, 1] - dashes[:, :, 0]) / lengths * DASH_WIDTH / 2
    dashes = np.stack((dashes[:, :, 0] + overhang, dashes[:, :, 1] - overhang), 2)
    pictures = np.zeros((len(dashes), size + 2 * border, size + 2 * border))
    strokes = [
        (dashes[:, i], DASH_WIDTH / 2, DASH_BRIGHTNESS) for i in range(dashes.shape[1])
    ]
    for i in range(markers.shape[1]):
        strokes.append((markers[:, i, None].repeat(2, 1), MARKER_RADIUS, 1.0))
    for ends, radius, brightness in strokes:
        _add_stroke(pictures, ends + border, radius, brightness)
    inside = slice(border, border + size)
    return np.rint(255 * pictures[:, inside, inside]).astype(np.uint8)


def _add_stroke(
    pictures: np.ndarray, ends: np.ndarray, radius: float, brightness: float
) -> None:
    """A line with round ends, one in each picture; what is brighter stays."""
    corner = np.floor(ends.mean(1)).astype(int) - WINDOW // 2
    steps = np.arange(WINDOW)
    x = corner[:, 0, None, None] + steps
    y = corner[:, 1, None, None] + steps[:, None]
    centres = np.stack(np.broadcast_arrays(x, y), -1) + 0.5
    start, along = ends[:, None, None, 0], (ends[:, 1] - ends[:, 0])[:, None, None]
    length = (along**2).sum(-1)
    share = ((centres - start) * along).sum(-1) / np.where(length > 0, length, 1)
    nearest = start + along * share.clip(0, 1)[..., None]
    distance = np.linalg.norm(centres - nearest, axis=-1)
    covered = brightness * (radius + 0.5 - distance).clip(0, 1)
    rows = np.arange(len(pictures))[:, None, None]
    pictures[rows, y, x] = np.maximum(pictures[rows, y, x], covered)
