"""What the pictures of tables show."""

import pytest

from fairseq_transnormer.reproduce.reports import plots

PAPER = {"good": 1.0, "fair": 2.0, "poor": 3.0}


def cell(measured, paper=None, metric="valid_ppl", deviation=None, **more):
    return {
        "measured": measured,
        "paper": paper,
        "paper_dash": False,
        "metric": metric,
        "deviation": deviation,
    } | more


def table(rows, metric="valid_ppl", curve="valid_ppl", points=0, **more):
    """A measured table of one column, with a curve of so many points a row."""
    cells = {
        row: {"figure": cell(value, PAPER.get(row), metric)}
        for row, value in rows.items()
    }
    updates = list(range(1, points + 1))
    return {
        "title": "Mine",
        "preset": "small",
        "paper_sizes": False,
        "curve": curve,
        "rows": cells,
        "agreement": {"figure": None},
        "runs": {"run": {"1": {"updates": 40.0}}},
        "conditions": {"equal": {}},
        "curves": {row: {"updates": updates, curve: updates} for row in rows},
        "sweep": [],
    } | more


@pytest.fixture
def drawn(monkeypatch, tmp_path):
    """Axes of the picture by their titles; None where nothing is drawn."""

    def draw(measured, how=plots.plot_table):
        figures = []
        monkeypatch.setattr(plots, "save", lambda figure, _: figures.append(figure))
        assert how(measured, tmp_path / "x.png") == bool(figures)
        if not figures:
            return None
        figures[0].canvas.draw()
        return {a.get_title(): a for a in figures[0].axes if a.get_title()}

    yield draw
    plots.pyplot().close("all")


def labels(axes) -> list[str]:
    return [label.get_text() for label in axes.get_yticklabels()]


def test_rows_are_named_and_in_the_papers_order(drawn):
    rows = {"poor": 30.0, "not run": None, "good": 20.0, "fair": 40.0, "ours": 10.0}
    axes = drawn(table(rows))["figure"]
    assert labels(axes) == ["ours", "good", "fair", "poor"]
    beside = [a for a in axes.figure.axes if a.get_ylabel() == "in the paper"]
    assert [labels(a) for a in beside] == [["", "1.00", "2.00", "3.00"]]
    texts = [text.get_text() for text in axes.texts]
    assert texts == ["10.00", "20.00", "40.00", "30.00"]
    assert axes.get_xlabel() == "validation perplexity"


def test_without_the_papers_figures_rows_are_as_in_the_table(drawn):
    found = drawn(table({"a": 2.0, "b": 1.0}))
    assert labels(found["figure"]) == ["b", "a"]  # from the bottom up
    assert all(a.get_ylabel() != "in the paper" for a in found["figure"].figure.axes)


@pytest.mark.parametrize("points, there", [(3, 0), (4, 2)])
def test_a_learning_curve_has_four_points(drawn, points, there):
    found = drawn(table({"good": 1.0, "fair": 2.0}, points=points))
    others = [axes for title, axes in found.items() if title != "figure"]
    lines = [line for axes in others for line in axes.lines]
    assert [list(line.get_xdata()) for line in lines] == [[1, 2, 3, 4]] * there


def test_no_perplexity_for_a_statistic_of_gradients(drawn):
    found = drawn(table({"good": 1.0, "fair": 2.0}, "gradient_rsd", points=9))
    assert list(found) == ["figure"]
    assert found["figure"].get_xlabel() == "relative standard deviation"


def test_figures_far_apart_have_a_logarithmic_scale_with_values(drawn):
    axes = drawn(table({"good": 0.2, "fair": 8.0}))["figure"]
    assert axes.get_xscale() == "log"
    low, high = axes.get_xlim()
    shown = [t.get_text() for t in axes.get_xticklabels() if low < t.get_position()[0]]
    assert {"0.2", "0.5", "1", "2", "5"} <= set(shown)


def test_small_differences_look_small(drawn):
    low, high = drawn(table({"good": 51.35, "fair": 51.30}))["figure"].get_xlim()
    assert high - low == pytest.approx(5.135)


def test_nothing_to_compare_is_no_picture(drawn, tmp_path):
    (tmp_path / "x.png").write_bytes(b"of an earlier report")
    assert drawn(table({"good": 1.0, "fair": None})) is None
    assert not (tmp_path / "x.png").exists()


@pytest.mark.parametrize("second", [None, 2.0])
def test_a_sweep_of_one_value_is_no_picture(drawn, second):
    swept = [
        {"values": {"lr": [rate]}, "measured": value, "deviation": None}
        for rate, value in ((0.1, 1.0), (0.2, second))
    ]
    measured = table({"good": 1.0}, sweep=["lr"])
    measured["rows"]["good"]["figure"]["sweep"] = swept
    found = drawn(measured, plots.plot_sweep)
    assert found is None if second is None else list(found) == ["figure"]


@pytest.mark.parametrize("warm_up, scale", [(1, "log"), (2, "linear")])
def test_rates_are_an_axis_where_they_alone_vary(drawn, warm_up, scale):
    swept = [
        {"values": {"lr": [rate], "up": up}, "measured": 9 * rate, "deviation": None}
        for rate, up in ((0.1, 1), (0.025, 1), (0.4, warm_up))
    ]
    measured = table({"good": 1.0}, sweep=["lr", "up"])
    measured["rows"]["good"]["figure"]["sweep"] = swept
    axes = drawn(measured, plots.plot_sweep)["figure"]
    assert axes.get_xscale() == scale
    (line,) = (each.lines[0] for each in axes.containers)
    places = [float(x) for x in line.get_xdata()] if warm_up == 1 else None
    assert places in (None, [0.025, 0.1, 0.4])


def test_columns_that_are_numbers_are_an_axis(drawn):
    rows = {
        "good": {"4": cell(99.0), "16": cell(90.0, deviation=2.0), "64": cell(40.0)},
        "poor": {"4": cell(50.0), "16": cell(None), "64": cell(10.0)},
        "begun": {"4": cell(30.0), "16": cell(None), "64": cell(None)},
    }

    def columns(measured, target):
        return plots.plot_columns(measured, "pairs of a line", target)

    measured = table({}) | {"rows": rows, "columns": ["4", "16", "64"]}
    figures = []
    drawn(measured, lambda *a: columns(*a) and not figures.append(plots.pyplot().gcf()))
    (axes,) = figures[0].axes
    assert axes.get_xlabel() == "pairs of a line" and axes.get_xscale() == "log"
    lines = {each.get_label(): each.lines[0] for each in axes.containers}
    assert {row: list(line.get_xdata()) for row, line in lines.items()} == {
        "good": [4, 16, 64], "poor": [4, 64]
    }  # fmt: skip
    assert list(lines["poor"].get_ydata()) == [50.0, 10.0]
    begun = measured | {"rows": {"begun": rows["begun"]}}
    assert drawn(begun, columns) is None
