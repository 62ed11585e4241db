"""A sheet of images, a titled row each."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ..analysis.figures import pyplot, save

# of a pixel, between two images
GAP = 1


def draw_rows(rows: list[tuple[str, np.ndarray]], levels: int, target: Path) -> None:
    """Draw rows of images in grey; what is masked, or no level, in a colour.

    Args:
        rows: title and levels (count, height, width) of each.
        levels: 0 ... levels - 1 are black ... white.
        target: PNG file.
    """
    plt = pyplot()
    count = max(len(pictures) for _, pictures in rows)
    _, height, width = rows[0][1].shape
    inch = 0.6
    figure, grid = plt.subplots(
        len(rows),
        1,
        figsize=(2.0 + inch * count, inch * height / width * len(rows)),
        squeeze=False,
        layout="constrained",
    )
    colours = plt.get_cmap("gray").with_extremes(bad="#456", under="#c33")
    for axes, (title, pictures) in zip(grid[:, 0], rows, strict=True):
        # white gaps: the largest level
        strip = np.ma.masked_array(
            np.full((height, count * (width + GAP) - GAP), levels - 1)
        )
        for i, picture in enumerate(np.ma.masked_array(pictures)):
            strip[:, i * (width + GAP) : i * (width + GAP) + width] = picture
        axes.imshow(strip, cmap=colours, vmin=0, vmax=levels - 1)
        lines = title.replace(", ", ",\n")
        axes.set_ylabel(lines, rotation=0, ha="right", va="center")
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set_visible(False)
    save(figure, target)
