"""Generated ListOps and Pathfinder: answers and paths found again by other means."""

import random

import numpy as np
import pytest
from PIL import Image, ImageDraw
from scipy import ndimage, stats

from data_prep.long_range_arena import listops_generator, pathfinder_generator
from data_prep.long_range_arena.listops_generator import END, MIN, ListOpsLaw, encode

from .small_corpora import expression

ENLARGED = 16
# closes the gap of 1 pixel between two dashes; paths are farther apart
CLOSED = 1.2


def solved(expression: str) -> tuple[int, int]:
    """The value of an expression, and its depth, with a stack and Python's numbers."""
    open_lists, deepest = [], 0
    for symbol in expression.split():
        if symbol.startswith("["):
            open_lists.append([symbol])
            deepest = max(deepest, len(open_lists) + 1)
            continue
        if symbol == "]":
            operator, *values = open_lists.pop()
            assert 2 <= len(values) <= 10
            value = {
                "[MIN": min,
                "[MAX": max,
                "[MED": lambda values: int(np.median(values)),
                "[SM": lambda values: sum(values) % 10,
            }[operator](values)
            if not open_lists:
                return value, deepest
        else:
            value = int(symbol)
        open_lists[-1].append(value)
    raise AssertionError("brackets stay open")


@pytest.fixture(scope="module")
def listops():
    return listops_generator.generate(600, ListOpsLaw(), np.random.default_rng(7))


def test_every_listops_answer_is_that_of_a_solver(listops):
    depths = []
    for ids, value in zip(*listops, strict=True):
        expected, depth = solved(expression(ids))
        assert value == expected
        depths.append(depth)
        np.testing.assert_array_equal(encode(expression(ids)), ids)
    assert max(depths) == 10 and np.mean(depths) > 9


def test_listops_lengths_symbols_and_labels(listops):
    expressions, values = listops
    lengths = np.array([len(ids) for ids in expressions])
    assert lengths.min() > 500 and lengths.max() < 2000
    # short ones are the likelier
    assert (lengths < 1000).sum() > (lengths >= 1500).sum() > 10
    counts = np.bincount(values, minlength=10)
    assert (counts > 15).all()
    # MIN and MAX make 0 and 9 the most frequent answers
    assert set(counts.argsort()[-2:]) == {0, 9}
    symbols = np.bincount(np.concatenate(expressions), minlength=15)
    operators, digits = symbols[10:14], symbols[:10]
    assert operators.sum() == symbols[14]
    for uniform in (operators, digits):
        expected = uniform.mean()
        assert (abs(uniform - expected) < 5 * expected**0.5).all()


def test_the_root_has_any_operator_and_two_to_ten_arguments(listops):
    roots = [expression(ids[:1]) for ids in listops[0]]
    assert set(roots) == {"[MIN", "[MAX", "[MED", "[SM"}


def test_median_of_an_even_count_is_rounded_down():
    levels = [
        listops_generator.Level(np.array([4]), np.array([0])),
        listops_generator.Level(np.zeros(4, int), np.zeros(4, int)),
    ]
    symbols = [np.array([12], np.uint8), np.array([9, 2, 0, 5], np.uint8)]
    ((ids, value),) = listops_generator._expressions(levels, symbols)
    assert (expression(ids), value) == ("[MED 9 2 0 5 ]", 3)
    assert solved("[MED 9 2 0 5 ]")[0] == 3


def open_lists(ids):
    """How many lists are open from each symbol on; a list's own is open."""
    return np.cumsum((ids >= MIN) & (ids < END)) - np.cumsum(ids == END)


def original_tree(chance, depth=1, max_depth=10, max_args=10):
    """(symbols, depth, operators and nodes that could be one, the root's left out).

    ``generate_tree`` of the Long-Range Arena's listops.py, without the tree itself.
    """
    r = chance.random() if depth < max_depth else 1
    free = np.array([0, 1]) if 1 < depth < max_depth else np.zeros(2, int)
    if r > 0.25:
        return 1, depth, free
    length, deepest = 2, depth
    free[0] += depth > 1
    for _ in range(chance.randint(2, max_args)):
        below = original_tree(chance, depth + 1, max_depth, max_args)
        length, deepest = length + below[0], max(deepest, below[1])
        free += below[2]
    return length, deepest, free


@pytest.fixture(scope="module")
def original_listops():
    """Lengths, depths, and the counts of operators, of what the original keeps."""
    chance, kept = random.Random(11), []
    while len(kept) < 300:
        tree = original_tree(chance)
        if 500 < tree[0] < 2000:
            kept.append(tree)
    return [np.array(each) for each in zip(*kept, strict=True)]


def test_the_law_of_listops_is_the_originals(listops, original_listops):
    """In distribution: lengths, depths, and how many nodes are operators."""
    lengths, depths, _ = original_listops
    ours = [len(ids) for ids in listops[0]]
    assert stats.ks_2samp(ours, lengths).pvalue > 0.01
    ours = [open_lists(ids).max() + 1 for ids in listops[0]]
    assert stats.ks_2samp(ours, depths).pvalue > 0.01


def test_a_quarter_of_the_nodes_below_the_root_are_operators():
    """All lengths are kept: which are likelier would depend on the share."""
    law = ListOpsLaw(max_depth=4, shortest=0)
    expressions, _ = listops_generator.generate(2000, law, np.random.default_rng(5))
    ours = np.zeros(2, int)
    for ids in expressions:
        operators = (ids >= MIN) & (ids < END)
        # depths 2 and 3: the deepest are digits, and the root's share is another
        free = (open_lists(ids) + ~operators < law.max_depth) & (ids != END)
        free[0] = False
        ours += (operators[free].sum(), free.sum())
    chance = random.Random(12)
    originals = [original_tree(chance, max_depth=4)[2] for _ in range(4000)]
    theirs = sum(originals)
    for operators, nodes in (ours, theirs):
        deviation = (0.25 * 0.75 / nodes) ** 0.5
        assert abs(operators / nodes - 0.25) < 4 * deviation < 0.02


def test_a_law_without_expressions_is_an_error():
    law = ListOpsLaw(max_depth=2, shortest=50, longest=60)
    with pytest.raises(ValueError, match="max_depth=2"):
        listops_generator.generate(1, law, np.random.default_rng(0))


@pytest.fixture(scope="module")
def pathfinder():
    return pathfinder_generator.generate(240, np.random.default_rng(3))


def components(dashes: np.ndarray) -> np.ndarray:
    """Connected strokes of an enlarged drawing where gaps between dashes are shut."""
    side = 32 * ENLARGED
    drawing = Image.new("1", (side, side))
    pen = ImageDraw.Draw(drawing)
    radius = CLOSED / 2 * ENLARGED
    for ends in dashes * ENLARGED:
        pen.line([tuple(end) for end in ends], fill=1, width=round(2 * radius))
        for x, y in ends:
            pen.ellipse((x - radius, y - radius, x + radius, y + radius), fill=1)
    return ndimage.label(np.asarray(drawing), np.ones((3, 3)))[0]


def test_marked_ends_lie_on_one_path_exactly_when_the_label_says_so(pathfinder):
    for dashes, markers, label in zip(
        pathfinder.dashes, pathfinder.markers, pathfinder.labels, strict=True
    ):
        # in any order: which dash belongs to which path is to be found out
        shuffled = np.random.default_rng(0).permutation(dashes)
        strokes = components(shuffled)
        assert strokes.max() == 2 + 5
        first, second = (
            strokes[int(y * ENLARGED), int(x * ENLARGED)] for x, y in markers
        )
        assert first > 0 and second > 0
        assert (first == second) == bool(label)
        assert not np.array_equal(*markers)


def test_contours_have_14_dashes_and_distractors_4(pathfinder):
    for dashes in pathfinder.dashes[:30]:
        strokes = components(dashes)
        middles = (dashes.mean(1) * ENLARGED).astype(int)
        sizes = np.bincount(strokes[middles[:, 1], middles[:, 0]])
        assert sorted(sizes[1:]) == [4, 4, 4, 4, 4, 14, 14]


def test_paths_turn_by_up_to_45_degrees_from_dash_to_dash(pathfinder):
    along = pathfinder.dashes[..., 1, :] - pathfinder.dashes[..., 0, :]
    angles = np.arctan2(along[..., 1], along[..., 0])
    bounds = np.cumsum([14, 14, 4, 4, 4, 4])
    turns = [np.diff(path, axis=1) for path in np.split(angles, bounds, axis=1)]
    # the way round that is shorter
    turns = np.concatenate([(t.ravel() + np.pi) % (2 * np.pi) - np.pi for t in turns])
    degrees = np.rad2deg(turns)
    assert abs(degrees).max() < 45 + 1e-6
    # all of that range, to both sides
    assert degrees.min() < -44 and degrees.max() > 44


def test_discs_of_negatives_stand_on_any_end_of_either_contour(pathfinder):
    """With ends of one contour left out, their distance would tell labels apart."""
    pairs = np.zeros((2, 2), int)
    negative = pathfinder.labels == 0
    for dashes, markers in zip(
        pathfinder.dashes[negative], pathfinder.markers[negative], strict=True
    ):
        chosen = []
        for contour in (dashes[:14], dashes[14:28]):
            ends = np.stack((contour[0, 0], contour[-1, 1]))
            (end,) = {
                i
                for i in range(2)
                for marker in markers
                if np.array_equal(ends[i], marker)
            }
            chosen.append(end)
        pairs[tuple(chosen)] += 1
    assert pairs.sum() == negative.sum() > 100
    assert (pairs > 0.15 * pairs.sum()).all(), pairs


def test_labels_are_balanced_and_no_shorter_way_tells_them(pathfinder):
    labels = pathfinder.labels
    assert abs(labels.mean() - 0.5) < 4 * 0.5 / len(labels) ** 0.5
    # the brightness of the whole picture does not depend on the label
    brightness = pathfinder.images.mean((1, 2))
    spread = brightness.std() * (4 / len(labels)) ** 0.5
    difference = brightness[labels == 1].mean() - brightness[labels == 0].mean()
    assert abs(difference) < 4 * spread
    # nor does the distance of the discs tell much: the share of pairs in that order
    distances = np.linalg.norm(
        pathfinder.markers[:, 0] - pathfinder.markers[:, 1], axis=1
    )
    positive, negative = distances[labels == 1], distances[labels == 0]
    assert 0.42 < (positive[:, None] > negative).mean() < 0.66


def test_pictures_show_the_dashes_and_the_discs(pathfinder):
    for image, dashes, markers in zip(
        pathfinder.images, pathfinder.dashes, pathfinder.markers, strict=True
    ):
        for x, y in markers:
            assert image[int(y), int(x)] > 200
        middles = dashes.mean(1).astype(int)
        for x, y in middles:
            assert image[y - 1 : y + 2, x - 1 : x + 2].max() > 60
        far = np.ones((32, 32), bool)
        for x, y in [*middles, *markers.astype(int)]:
            far[max(y - 3, 0) : y + 4, max(x - 3, 0) : x + 4] = False
        assert (image[far] == 0).all()
