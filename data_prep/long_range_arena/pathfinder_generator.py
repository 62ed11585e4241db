"""Pathfinder pictures at random: do two marked ends lie on one dashed contour?

This is the hard set of the Long-Range Arena (Linsley et al., 2018; Tay et al., 2021),
drawn anew. A picture of 32 x 32 pixels has two contours of 14 dashes, five distractors
of 4, and two discs. Dashes are 2 pixels long and 1 apart. A path turns by at most 45
degrees from dash to dash, and comes near no other path or itself.

In positive pictures the discs stand on both ends of one contour, in negative ones on
one end of each. The label is drawn after the paths, so they tell nothing about it.
Ends of one contour are farther apart than others: the distance alone would tell two of
three labels. So a random distance is drawn, and of the pairs that fit the label the
nearest to it is taken (docs/lra.md has what is left).

Many pictures grow at once, dash by dash. A grid of quarter pixels has all earlier
paths, widened by the clearance. Of several turns the first whose dash keeps off the
grid is taken, and of several paths the first that reaches its length. A picture without
one is given up.
"""

from typing import NamedTuple

import numpy as np

SIZE = 32
CONTOUR_DASHES = 14
CONTOURS = 2
DISTRACTOR_DASHES = CONTOUR_DASHES // 3
DISTRACTORS = 20 // DISTRACTOR_DASHES
DASH = 2.0
GAP = 1.0
MARGIN = 1.0
LARGEST_TURN = np.pi / 4
# between the middle lines of two paths: above the gap, so that eyes can tell them apart
CLEARANCE = 1.75
CELLS = 4
TURNS_TRIED = 10
PATHS_TRIED = 8
ROUNDS = 6
MARKER_DISTANCES = (14, 26)
FORESIGHT = 2.0
PICTURES_AT_ONCE = 250

_SHARES = np.linspace(0, 1, 5)
_OFFSETS = np.arange(-int(CLEARANCE * CELLS), int(CLEARANCE * CELLS) + 1)
_DISC = np.stack(np.meshgrid(_OFFSETS, _OFFSETS), -1).reshape(-1, 2)
_DISC = _DISC[(_DISC**2).sum(1) <= (CLEARANCE * CELLS) ** 2]


class Pictures(NamedTuple):
    """What was drawn; ``dashes`` and ``markers`` are for those who check it.

    images: uint8 (count, 32, 32). labels: uint8 (count,). dashes: (count, dashes, 2,
    2), the two ends of each as (x, y), the contours' in front. markers: (count, 2, 2).
    """

    images: np.ndarray
    labels: np.ndarray
    dashes: np.ndarray
    markers: np.ndarray


def generate(count: int, random: np.random.Generator) -> Pictures:
    """``count`` pictures; nearly one half are positive."""
    drawn = []
    found = 0
    at_once = min(PICTURES_AT_ONCE, count + count // 4 + 8)
    while found < count:
        dashes = _paths(at_once, random)
        drawn.append(dashes)
        found += len(dashes)
    dashes = np.concatenate(drawn)[:count]
    labels = random.integers(0, 2, count).astype(np.uint8)
    markers = _marked_ends(dashes, labels, random)
    return Pictures(draw(dashes, markers), labels, dashes, markers)


def _marked_ends(
    dashes: np.ndarray, labels: np.ndarray, random: np.random.Generator
) -> np.ndarray:
    contours = dashes[:, : CONTOURS * CONTOUR_DASHES]
    contours = contours.reshape(-1, CONTOURS, CONTOUR_DASHES, 2, 2)
    # (count, contour, end, xy)
    ends = np.stack((contours[:, :, 0, 0], contours[:, :, -1, 1]), 2)
    on_both = [
        np.stack((ends[:, 0, first], ends[:, 1, second]), 1)
        for first in (0, 1)
        for second in (0, 1)
    ]
    wanted = random.uniform(*MARKER_DISTANCES, len(dashes))
    positive = _nearest_to(wanted, ends)
    negative = _nearest_to(wanted, np.stack(on_both, 1))
    return np.where(labels[:, None, None] == 1, positive, negative)


def _nearest_to(wanted: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    """Of each picture's pairs of points (count, pairs, 2, 2), that of the distance."""
    distances = np.linalg.norm(pairs[:, :, 0] - pairs[:, :, 1], axis=-1)
    chosen = abs(distances - wanted[:, None]).argmin(1)
    return pairs[np.arange(len(pairs)), chosen]


def _paths(count: int, random: np.random.Generator) -> np.ndarray:
    """The dashes of all pictures, of ``count``, whose paths were finished."""
    growth = _Growth(count, random)
    lengths = [CONTOUR_DASHES] * CONTOURS + [DISTRACTOR_DASHES] * DISTRACTORS
    for length in lengths:
        growth.add_path(length)
    return growth.dashes


class _Growth:
    """The pictures that are still under way, and what is occupied in each."""

    def __init__(self, count: int, random: np.random.Generator) -> None:
        self.random = random
        self.occupied = np.zeros((count, SIZE * CELLS, SIZE * CELLS), bool)
        self.dashes = np.empty((count, 0, 2, 2))

    def add_path(self, length: int) -> None:
        """One more path in each picture; those where none fits are dropped."""
        paths = np.full((len(self.occupied), length, 2, 2), np.nan)
        missing = np.arange(len(paths))
        for _ in range(ROUNDS):
            pictures, found = self._paths_that_fit(missing, length)
            paths[pictures] = found
            missing = np.setdiff1d(missing, pictures)
        kept = ~np.isnan(paths[:, 0, 0, 0])
        self.occupied = self.occupied[kept]
        self.dashes = np.concatenate((self.dashes[kept], paths[kept]), 1)
        self._occupy(paths[kept])

    def _paths_that_fit(
        self, pictures: np.ndarray, length: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Those of ``pictures`` in which a path reached its length, and these paths."""
        foresight = FORESIGHT if length == CONTOUR_DASHES else 0.0
        tried = np.repeat(pictures, PATHS_TRIED)
        starts = self.random.uniform(MARGIN, SIZE - MARGIN, (len(tried), 1, 2))
        angles = self.random.uniform(0, 2 * np.pi, (len(tried), 1))
        path = np.empty((len(tried), 0, 2, 2))
        for _ in range(length):
            tried, angle, path = self._lengthened(
                tried, starts, angles, path, foresight
            )
            shape = (len(tried), TURNS_TRIED)
            angles = self.random.uniform(-LARGEST_TURN, LARGEST_TURN, shape)
            angles += angle[:, None]
            starts = path[:, -1, None, 1] + GAP * _direction(angles)
        pictures, first = np.unique(tried, return_index=True)
        return pictures, path[first]

    def _lengthened(
        self,
        tried: np.ndarray,
        starts: np.ndarray,
        angles: np.ndarray,
        path: np.ndarray,
        foresight: float,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Paths with their first free dash of starts and angles (paths, turns, ...).

        ``tried`` is the picture of each path. Paths without a free one are left out.
        """
        ends = starts + DASH * _direction(angles)
        # room to turn in front of the border, or most paths would end there
        ahead = ends + foresight * _direction(angles)
        corners = np.concatenate((starts, ends, ahead), -1)
        free = ((corners >= MARGIN) & (corners <= SIZE - MARGIN)).all(-1)
        points = _points(starts, ends)
        cells = (points * CELLS).astype(int).clip(0, SIZE * CELLS - 1)
        rows = tried[:, None, None]
        free &= ~self.occupied[rows, cells[..., 1], cells[..., 0]].any(2)
        # the last dash may be as near as the gap
        if path.shape[1] > 1 and free.any():
            own = _points(path[:, :-1, 0], path[:, :-1, 1])[:, :, ::2]
            rows, turns = np.nonzero(free)
            free[rows, turns] = _keep_off(
                points[rows, turns, ::2], own.reshape(len(path), -1, 2)[rows]
            )
        kept = np.flatnonzero(free.any(1))
        chosen = free[kept].argmax(1)
        dash = np.stack((starts[kept, chosen], ends[kept, chosen]), 1)
        path = np.concatenate((path[kept], dash[:, None]), 1)
        return tried[kept], angles[kept, chosen], path

    def _occupy(self, path: np.ndarray) -> None:
        for i in range(path.shape[1]):
            points = _points(path[:, i, 0], path[:, i, 1])
            cells = (points * CELLS).astype(int)[:, :, None] + _DISC
            cells = cells.clip(0, SIZE * CELLS - 1)
            rows = np.arange(len(path))[:, None, None]
            self.occupied[rows, cells[..., 1], cells[..., 0]] = True


def _keep_off(points: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Whether points (n, p, 2) are all farther than the clearance from (n, q, 2)."""
    products = points @ others.swapaxes(1, 2)
    squares = (points**2).sum(-1)[..., None] + (others**2).sum(-1)[:, None]
    return (squares - 2 * products).min((1, 2)) >= CLEARANCE**2


def _points(starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Points along dashes, half a pixel apart: (..., 2) -> (..., 5, 2)."""
    return starts[..., None, :] + (ends - starts)[..., None, :] * _SHARES[:, None]


def _direction(angles: np.ndarray) -> np.ndarray:
    return np.stack((np.cos(angles), np.sin(angles)), -1)


DASH_WIDTH = 0.6
DASH_BRIGHTNESS = 0.9
MARKER_RADIUS = 1.5
WINDOW = 7


def draw(dashes: np.ndarray, markers: np.ndarray) -> np.ndarray:
    """Pictures, uint8 (count, 32, 32), bright on black.

    dashes: (count, dashes, 2, 2), the ends of each as (x, y). markers: (count, M, 2).
    A pixel's brightness is the share of it that is covered, by its centre's distance.
    """
    # round ends would reach into the gaps
    lengths = np.linalg.norm(dashes[:, :, 1] - dashes[:, :, 0], axis=-1)[..., None]
    overhang = (dashes[:, :, 1] - dashes[:, :, 0]) / lengths * DASH_WIDTH / 2
    dashes = np.stack((dashes[:, :, 0] + overhang, dashes[:, :, 1] - overhang), 2)
    # with a border, which strokes may reach
    pictures = np.zeros((len(dashes), SIZE + 2 * WINDOW, SIZE + 2 * WINDOW))
    strokes = [
        (dashes[:, i], DASH_WIDTH / 2, DASH_BRIGHTNESS) for i in range(dashes.shape[1])
    ]
    for i in range(markers.shape[1]):
        strokes.append((markers[:, i, None].repeat(2, 1), MARKER_RADIUS, 1.0))
    for ends, radius, brightness in strokes:
        _add_stroke(pictures, ends + WINDOW, radius, brightness)
    inside = slice(WINDOW, WINDOW + SIZE)
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
