"""Figures of rows: means over seeds, a sweep's best, order, and what is not equal."""

import itertools
import math
import statistics
from dataclasses import replace

import pandas
import pytest
from scipy import stats

from fairseq_transnormer.reproduce.errors import ReproduceError
from fairseq_transnormer.reproduce.measured import (
    agreement,
    measure,
    unequal,
    within_deviation,
)
from fairseq_transnormer.reproduce.results import COLUMNS, Results, _typed
from fairseq_transnormer.reproduce.schema import Preset, load_preset, load_table
from tests.messages import refuses
from tests.paths import CONFIGS, RESULTS

from .made import TABLE, write_yaml

NAN = math.nan
PRESET = Preset(description="x", tasks={}, name="tiny")
SWEEP = {"optimization.lr": [[0.1], [0.2], [0.3]]}


def row(name, seed, value, **more):
    """A row of runs.csv; its run is called by the row and the sweep."""
    swept = more.get("sweep", "")
    usual = {
        "preset": "tiny", "table": "own", "row": name, "column": "ppl", "sweep": swept,
        "seed": seed, "metric": "valid_ppl", "value": value, "note": "",
        "selected_by": "min loss", "selection": value, "updates": 3,
        "run": f"tiny/{name}{swept}", "config": f"{name}{swept}{seed}", "data": "d1",
        "weights": "",
    }  # fmt: skip
    return dict.fromkeys(COLUMNS, "") | usual | more


def results_of(rows, settings=None):
    frame = _typed(pandas.DataFrame(rows, columns=list(COLUMNS)), COLUMNS)
    return Results(frame, settings or {}, None)


@pytest.fixture
def measured(tmp_path):
    """measured(rows, changes of the table, ...): with the preset PRESET."""

    def make(lines, /, preset=PRESET, settings=None, **changes):
        path = write_yaml(tmp_path / "own.yaml", TABLE | changes)
        table = load_table(CONFIGS, str(path))
        return measure(table, results_of(lines, settings), preset.name, preset)

    return make


def figures(**values):
    """row -> figures of seeds 1, 2, ..."""
    return [row(n, s, v) for n, all_ in values.items() for s, v in enumerate(all_, 1)]


def test_means_and_deviations_are_of_the_rows(measured):
    rows = figures(T1=[5.0, 7.0, 6.5], T2=[4.0])
    rows += [row("T1", 9, 100.0, preset="other"), row("T1", 9, 100.0, table="other")]
    rows += [row("T1", 9, 100.0, column="test")]
    found = measured(rows).cells
    t1, t2 = found["T1", "ppl"], found["T2", "ppl"]
    assert t1.value == pytest.approx((5.0 + 7.0 + 6.5) / 3)
    assert t1.deviation == pytest.approx(statistics.stdev([5.0, 7.0, 6.5]))
    assert t1.figures.values == {1: 5.0, 2: 7.0, 3: 6.5} and not t1.incomplete
    # one seed has no deviation, none no value
    assert (t2.value, t2.deviation, found["T2", "test"].value) == (4.0, None, None)
    assert found["T1", "test"].value == 100.0


def test_seeds_without_a_figure_are_said(measured):
    states = [row("T1", 2, NAN, note="interrupted"), row("T1", 3, NAN, note="nan: x")]
    found = measured(figures(T1=[5.0]) + states).cells["T1", "ppl"]
    assert found.value == 5.0
    for said in ("seed 2 (interrupted)", "seed 3 (nan: x)"):
        assert said in found.incomplete
    none = measured(states).cells["T1", "ppl"]
    assert none.value is None and none.figures.reasons == {3: "nan: x"}
    assert none.figures.unfinished == {2: "interrupted"}


def swept(**values):
    """lr -> (figure, selection) of seeds 1, 2, ...; None: it diverged."""
    rows = []
    for rate, of_seeds in values.items():
        for seed, pair in enumerate(of_seeds, 1):
            more = {"sweep": f"optimization.lr=0.{rate[1:]}"}
            if pair is None:
                rows.append(row("T1", seed, NAN, note="loss is nan", **more))
            elif pair:
                value, selection = pair
                rows.append(row("T1", seed, value, selection=selection, **more))
    return rows


def chosen(found):
    return found.cells["T1", "ppl"].chosen.removeprefix("optimization.lr=")


def test_a_sweeps_best_is_that_on_valid(measured):
    """By the mean over the seeds; the figure itself may be worse."""
    rows = swept(r1=[(1, 5), (1, 6)], r2=[(9, 2), (7, 8)], r3=[(2, 1), (2, 100)])
    found = measured(rows, sweep=SWEEP)
    assert chosen(found) == "0.2"
    cell = found.cells["T1", "ppl"]
    assert cell.value == 8 and not cell.incomplete
    assert [each.mean for each in cell.sweep.values()] == [1, 8, 2]
    more = [each | {"selected_by": "max accuracy"} for each in rows]
    assert chosen(measured(more, sweep=SWEEP)) == "0.3"
    with refuses(ReproduceError, "min loss", "max accuracy", rows[0]["run"]):
        measured([*rows[:1], more[1], *rows[2:]], sweep=SWEEP)


def test_a_sweeps_best_is_over_the_seeds_that_all_have(measured):
    # over all seeds it would be 0.2
    rows = swept(r1=[(1, 5.0)], r2=[(2, 6.0), (2, 1.0)], r3=[(3, 7.0)])
    found = measured(rows, sweep=SWEEP)
    assert chosen(found) == "0.1"
    assert "without seed 2" in found.cells["T1", "ppl"].incomplete


def test_a_value_with_a_seed_that_failed_comes_last(measured):
    rows = swept(r1=[(1, 9.0), (1, 9.0)], r2=[(2, 3.0), None], r3=[None, None])
    assert chosen(measured(rows, sweep=SWEEP)) == "0.1"
    # where all have one, the others decide
    rows = swept(r1=[(1, 9.0), None], r2=[(2, 3.0), None], r3=[None, None])
    assert chosen(measured(rows, sweep=SWEEP)) == "0.2"


def test_what_a_sweep_is_without_is_said(measured):
    found = measured(swept(r1=[(1, 5.0)], r2=[(2, 6.0)]), sweep=SWEEP)
    assert "2 of 3" in found.cells["T1", "ppl"].incomplete
    # one that diverged was tried; a value of a command's was, too
    rows = swept(r1=[(1, 5.0)], r2=[(2, 6.0)], r3=[None])
    assert measured(rows, sweep=SWEEP).cells["T1", "ppl"].incomplete == ""
    more = replace(PRESET, sweeps={"own": SWEEP})
    assert "2 of 3" in measured(rows[:2], more).cells["T1", "ppl"].incomplete
    assert not measured([], sweep=SWEEP).cells["T1", "ppl"].incomplete


MEANS = {
    "columns": {
        "a": {"metric": "valid_ppl"},
        "b": {"metric": "valid_ppl"},
        "c": {"metric": "valid_ppl"},
        "AVG": {"mean_of": ["a", "b", "c"]},
    },
    "rows": {"T1": {"system": "t1", "paper": [1.0, 2.0, 3.0, 2.0]}},
}


def of_columns(**values):
    """column -> seed -> value."""
    return [
        row("T1", seed, value, column=column, run=f"tiny/{column}")
        for column, of_seeds in values.items()
        for seed, value in of_seeds.items()
    ]


def test_a_mean_is_of_the_seeds_that_all_columns_have(measured):
    rows = of_columns(a={1: 1.0, 2: 2.0}, b={1: 5.0, 2: 4.0, 3: 9.0}, c={2: 6.0})
    mean = measured(rows, **MEANS).cells["T1", "AVG"]
    assert mean.figures.values == {2: (2.0 + 4.0 + 6.0) / 3}
    assert mean.cell.paper == 2.0 and mean.incomplete.endswith("seeds 1, 3")
    without = measured(rows[:-1], **MEANS).cells["T1", "AVG"]
    assert without.value is None and not without.incomplete


def test_the_papers_figure_is_not_beside_a_mean_of_fewer_columns(measured):
    rows = of_columns(a={1: 1.0}, b={1: 5.0})
    preset = replace(PRESET, columns={"own": ["a", "b"]})
    mean = measured(rows, preset, **MEANS).cells["T1", "AVG"]
    assert (mean.value, mean.cell.paper) == (3.0, None)
    assert "a, b" in mean.incomplete


PAPER = {"A": 3.0, "B": 5.0, "C": 4.0, "D": 9.0, "E": 7.0}
ORDERED = {
    "columns": {"ppl": {"metric": "valid_ppl"}},
    "rows": {name: {"system": "t1", "paper": [f]} for name, f in PAPER.items()}
    | {"F": {"system": "t1"}},
}


@pytest.mark.parametrize(
    "here",
    [
        {"A": 1.0, "B": 2.0, "C": 2.0, "D": 1.5, "E": 0.5, "F": 99.0},
        {"A": 30.0, "B": 50.0, "C": 40.0, "D": 90.0},
        {"A": 2.0, "B": 2.0, "C": 2.0, "D": 2.5, "E": 2.0},
    ],
)
def test_order_is_compared_as_scipy_and_brute_force_do(measured, here):
    found = measured(figures(**{k: [v] for k, v in here.items()}), **ORDERED)
    told = agreement(found.column("ppl"))
    names = [name for name in PAPER if name in here]
    paper, ours = [PAPER[n] for n in names], [here[n] for n in names]
    assert told.rows == len(names)
    assert told.spearman == pytest.approx(stats.spearmanr(paper, ours).statistic)
    assert told.kendall == pytest.approx(stats.kendalltau(paper, ours).statistic)
    other, equal = set(), set()
    for one, two in itertools.combinations(names, 2):
        if here[one] == here[two]:
            equal.add((one, two))
        elif (here[one] < here[two]) != (PAPER[one] < PAPER[two]):
            other.add((one, two))
    for pairs, expected in ((told.disagreements, other), (told.ties, equal)):
        assert {(a.cell.row, b.cell.row) for a, b in pairs} == expected


def test_no_correlation_of_few_rows_or_within_the_error(measured):
    def told(**values):
        return agreement(measured(figures(**values), **ORDERED).column("ppl"))

    assert told(A=[1.0]) is None
    few = told(A=[1.0], B=[2.0], C=[3.0])
    assert few.spearman is None and few.rows == 3 and not few.is_within_error
    equal = told(A=[1.0], B=[1.0], C=[1.0], D=[1.0])
    assert equal.spearman is None and len(equal.ties) == 6
    # standard error of the mean of two seeds 0 and 2 apart: 1; twice it: 2
    for spread, within in ((1.9, True), (2.1, False)):
        rows = {n: [i * spread / 3, 2 + i * spread / 3] for i, n in enumerate("ABCD")}
        found = told(**rows)
        assert found.is_within_error == within
        assert (found.spearman is None) == within
    noisy = measured(figures(A=[1.0, 3.0], B=[2.0, 4.0], C=[9.0, 9.5]), **ORDERED)
    a, b, c = (noisy.cells[name, "ppl"] for name in "ABC")
    assert within_deviation(a, b) and within_deviation(a, c) is False
    assert within_deviation(a, noisy.cells["D", "ppl"]) is None


def test_settings_in_which_compared_runs_differ(measured):
    def found(one, other, **changes):
        """Of T1's two seeds and T2's run, which has ``other``."""
        rows = figures(T1=[5.0, 6.0], T2=[4.0])
        settings = {"T11": one, "T12": one | {"common.seed": 2}, "T21": other}
        table = measured(rows, settings=settings, **changes)
        return unequal(table, table.column("ppl"))

    one = {"optimization.lr": [0.1], "model.dropout": 0.1, "model.embed_dim": 64}
    assert found(one, one | {"common.seed": 5, "task.seed": 9}) == {}
    (key,) = found(one, one | {"optimization.lr": [0.2]}).items()
    assert key[0] == "optimization.lr"
    assert {str(v): [*runs] for v, runs in key[1].items()} == {
        "[0.1]": ["tiny/T1"],
        "[0.2]": ["tiny/T2"],
    }
    # one has it alone
    assert set(found(one, one | {"task.mask_prob": 0.4})) == {"task.mask_prob"}
    # rows are of other models, but for the width, which presets scale alike
    assert found(one, one | {"model.dropout": 0.3, "model.block_size": 1}) == {}
    assert set(found(one, one | {"model.embed_dim": 32})) == {"model.embed_dim"}
    # what rows name, and what is swept over, differs on purpose
    other = one | {"optimization.lr": [0.2], "lr_scheduler.lr": [0.2]}
    assert found(one, other, sweep=SWEEP) == {}
    named = TABLE["rows"]["T2"] | {"overrides": {"optimization.lr": [0.2]}}
    rows = TABLE["rows"] | {"T2": named}
    assert set(found(one, other, rows=rows)) == {"lr_scheduler.lr"}


def test_seeds_of_one_run_and_data_that_differ(measured):
    rows = figures(T1=[5.0, 6.0], T2=[4.0])
    settings = {"T11": {"model.dropout": 0.1}, "T12": {"model.dropout": 0.2}, "T21": {}}
    table = measured(rows, settings=settings)
    assert set(unequal(table, table.column("ppl"))) == {"model.dropout"}
    rows[2]["data"] = "d2"
    table = measured(rows)
    (found,) = unequal(table, table.column("ppl")).items()
    assert found[0] == "data" and set(found[1]) == {"d1", "d2"}
    assert unequal(table, table.column("test")) == {}


def test_means_of_committed_rows_by_pandas():
    """Of the file as any tool reads it."""
    frame = pandas.read_csv(RESULTS / "runs.csv")
    own = frame[(frame["preset"] == "medium") & (frame["table"] == "table1")]
    expected = own.groupby(["row", "column"])["value"].agg(["mean", "std"])
    assert len(expected) == 3 and own["seed"].nunique() == 3
    preset, table = load_preset(CONFIGS, "medium"), load_table(CONFIGS, "table1")
    found = measure(table, Results.read(RESULTS), "medium", preset).cells
    for place, (mean, deviation) in expected.iterrows():
        assert found[place].value == pytest.approx(mean)
        assert found[place].deviation == pytest.approx(deviation)
