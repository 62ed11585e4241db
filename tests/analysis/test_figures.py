"""What pictures must show: all lines, the one that diverges, and whose they are."""

import itertools
import math

import pytest

from fairseq_transnormer.analysis import figures
from fairseq_transnormer.analysis.figures import Panel, curves


@pytest.fixture
def drawn(monkeypatch, tmp_path):
    """The axes of panels."""
    saved = []
    monkeypatch.setattr(figures, "save", lambda figure, target: saved.append(figure))

    def draw(*panels):
        curves(panels, tmp_path / "picture.png")
        return saved[-1].axes

    return draw


@pytest.mark.parametrize("value", [142.0, math.inf, math.nan])
def test_a_point_that_diverged_flattens_no_curve(drawn, value):
    panel = Panel(log="y", better="lower")
    panel.add("good", [1, 2, 3], [20, 18, 16])
    panel.add("bad", [1, 2, 3], [21, 17, value])
    (axes,) = drawn(panel)
    assert axes.get_ylim()[1] < 42
    (said,) = (text.get_text() for text in axes.texts if "diverged" in text.get_text())
    assert ("142" in said) == (value == 142)


def test_names_at_the_ends_stand_apart_and_t2_stands_out(drawn):
    panel = Panel()
    for number in range(9):
        panel.add(f"T{number}", [1, 2], [number, 1])
    (axes,) = drawn(panel)
    places = sorted(text.xyann[1] for text in axes.texts)
    assert min(b - a for a, b in itertools.pairwise(places)) > 0.03
    assert places[-1] <= 1
    colours = {line.get_color() for line in axes.lines}
    assert len(axes.lines) == 9 and len(colours) == 2
    (bold,) = (text for text in axes.texts if text.get_fontweight() == "bold")
    assert bold.get_text() == "T2"


def test_panels_share_a_legend_below_them(drawn):
    one, two = Panel(better="higher", bottom=0), Panel()
    for panel in (one, two):
        panel.add("a", [1, 2], [5.0, 6.0])
    first, second = drawn(one, two)
    assert first.get_ylim()[0] == 0 and first.get_ylim()[1] > 6
    assert first.get_legend() is second.get_legend() is None
    (legend,) = first.figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["a"]
