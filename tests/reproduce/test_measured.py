"""Figures of rows: means over seeds, a sweep's best, order, and what is not equal."""

import itertools
import math
import statistics
from dataclasses import replace

import pandas
import pytest
from scipy import stats

from fairseq_transnormer.reproduce.measured import agreement, measure, unequal
from fairseq_transnormer.reproduce.report import draw, section
from fairseq_transnormer.reproduce.results import COLUMNS, CURVE_KEY, Results, _typed
from fairseq_transnormer.reproduce.schema import Preset

from .made import TABLE, refused
from .test_schema import own

NAN = math.nan
PRESET = Preset(description="x", tasks={}, name="tiny")
RATE = "optimization.lr"
SWEEP = {RATE: [[0.1], [0.2], [0.3]]}


def row(name, seed, value, sweep="", **more):
    """A row of runs.csv; its run is called by the row and the sweep."""
    usual = {"preset": "tiny", "table": "own", "row": name, "column": "ppl"}
    usual |= {"sweep": sweep, "seed": seed, "value": value, "selection": value}
    usual |= {"run": name + sweep, "config": f"{name}{seed}", "data": "d1"}
    usual |= {"selected_by": "min loss"}
    return dict.fromkeys(COLUMNS, "") | usual | more


def figures(**values):
    """row -> figures of seeds 1, 2, ..."""
    return [row(n, s, v) for n, all_ in values.items() for s, v in enumerate(all_, 1)]


@pytest.fixture
def measured(tmp_path):
    """measured(rows, changes of the table, ...): with the preset PRESET."""

    def make(lines, /, preset=PRESET, settings=None, **changes):
        table = own(tmp_path, **changes)
        metrics = {(cell.row, cell.column): cell.metric for cell in table.cells}
        for line in lines:
            line["metric"] = line["metric"] or metrics[line["row"], line["column"]]
        frame = _typed(pandas.DataFrame(lines, columns=list(COLUMNS)), COLUMNS)
        results = Results(frame, settings or {}, None)
        return measure(table, results, preset.name, preset)

    return make


def test_means_and_deviations_are_of_the_rows(measured):
    rows = figures(T1=[5.0, 7.0, 6.5], T2=[4.0])
    rows += [row("T1", 9, 100.0, **{k: "other"}) for k in ("preset", "table")]
    found = measured([*rows, row("T1", 9, 100.0, column="test")]).cells
    t1, t2 = found["T1", "ppl"], found["T2", "ppl"]
    assert t1.value == pytest.approx((5.0 + 7.0 + 6.5) / 3)
    assert t1.deviation == pytest.approx(statistics.stdev([5.0, 7.0, 6.5]))
    assert t1.values == {1: 5.0, 2: 7.0, 3: 6.5} and not t1.incomplete
    page = section(measured(rows), replace(PRESET, paper_sizes=True), [])
    assert "T2 2.00 4.00 +2.00" in " ".join(page.replace("|", " ").split())
    # one seed has no deviation, none no value
    assert (t2.value, t2.deviation, found["T2", "test"].value) == (4.0, None, None)
    states = [row("T1", 2, NAN, note="interrupted"), row("T1", 3, NAN, note="nan: x")]
    cell = measured(rows[:1] + states).cells["T1", "ppl"]
    assert cell.value == 5.0
    assert "seed 2 (interrupted)" in cell.incomplete
    assert "seed 3 (nan: x)" in cell.incomplete
    none = measured(states).cells["T1", "ppl"]
    assert none.value is None and none.reasons == {3: "nan: x"}


def test_seeds_of_two_runs_are_no_mean(measured):
    """As of a row of the user's table, whose settings were changed since seed 2."""
    rows = figures(T1=[5.0, 7.0]) + [row("T1", 1, 6.0, f"{RATE}=0.1")]
    assert measured(rows).cells["T1", "ppl"].value == 6.0
    rows[0]["run"] = "tiny/blm_t1+block_size=16"
    with refused("own", "T1", "ppl", "tiny/blm_t1+block_size=16"):
        measured(rows)
    rows = figures(T1=[5.0, 7.0])
    for each, weights in zip(rows, "ab", strict=False):
        each["weights"] = weights
    with refused("own", "T1", "ppl", "weights, a, b"):
        measured(rows)


def swept(*values):
    """Of rates 0.1, 0.2, ...: (figure, selection) of each seed; None: diverged."""
    return [
        row("T1", seed, pair[0], f"{RATE}=0.{number}", selection=pair[1])
        if pair
        else row("T1", seed, NAN, f"{RATE}=0.{number}", note="loss is nan")
        for number, of_seeds in enumerate(values, 1)
        for seed, pair in enumerate(of_seeds, 1)
    ]


def test_a_sweeps_best_is_that_on_valid(measured):
    """By the mean over the seeds; the figure itself may be worse."""

    def best(rows):
        cell = measured(rows, sweep=SWEEP).cells["T1", "ppl"]
        return cell.chosen.removeprefix(f"{RATE}=0."), cell

    rows = swept([(1, 5), (1, 6)], [(9, 2), (7, 8)], [(2, 1), (2, 100)])
    chosen, cell = best(rows)
    assert (chosen, cell.value, cell.incomplete) == ("2", 8, "")
    assert [each.value for each in cell.sweep.values()] == [1, 8, 2]
    more = [each | {"selected_by": "max accuracy"} for each in rows]
    assert best(more)[0] == "3"
    with refused("min loss", "max accuracy", rows[0]["run"]):
        best([*rows[:1], more[1], *rows[2:]])
    # on the seeds that all have: over all seeds it would be 0.2
    chosen, cell = best(swept([(1, 5.0)], [(2, 6.0), (2, 1.0)], [(3, 7.0)]))
    assert chosen == "1" and "without seed 2" in cell.incomplete
    # a value with a seed that failed comes last; where all have one, others decide
    assert best(swept([(1, 9.0)] * 2, [(2, 3.0), None], [None, None]))[0] == "1"
    assert best(swept([(1, 9.0), None], [(2, 3.0), None], [None, None]))[0] == "2"


def test_what_a_sweep_is_without_is_said(measured):
    def said(rows, preset=PRESET, **changes):
        return measured(rows, preset, **changes).cells["T1", "ppl"].incomplete

    rows = swept([(1, 5.0)], [(2, 6.0)], [None])
    assert "2 of 3" in said(rows[:2], sweep=SWEEP)
    assert "2 of 3" in said(rows[:2], replace(PRESET, sweeps={"own": SWEEP}))
    # one that diverged was tried
    assert said(rows, sweep=SWEEP) == said([], sweep=SWEEP) == ""


def test_a_sweep_over_no_numbers_is_no_axis(measured, tmp_path):
    values = ["none", [1, 2]]
    found = measured([row("T1", 1, 5.0, f"x={each}") for each in values])
    assert draw(found, pandas.DataFrame(columns=CURVE_KEY), tmp_path) == []


def test_a_mean_is_of_the_seeds_and_columns_that_are_there(measured):
    columns = {name: {"metric": "valid_ppl"} for name in "abc"}
    columns["AVG"] = {"mean_of": ["a", "b", "c"]}
    rows = {"T1": {"system": "t1", "paper": [1.0, 2.0, 3.0, 2.0]}}

    def mean(preset=PRESET, **values):
        lines = [
            row("T1", seed, value, column=name, run=name)
            for name, of_seeds in values.items()
            for seed, value in of_seeds.items()
        ]
        return measured(lines, preset, columns=columns, rows=rows).cells["T1", "AVG"]

    of = {"a": {1: 1.0, 2: 2.0}, "b": {1: 5.0, 2: 4.0, 3: 9.0}}
    found = mean(**of, c={2: 6.0})
    assert found.values == {2: (2.0 + 4.0 + 6.0) / 3}
    assert found.cell.paper == 2.0 and found.incomplete.endswith("seeds 1, 3")
    assert mean(**of).value is None
    # the paper's figure is not beside a mean of fewer columns
    fewer = mean(replace(PRESET, columns={"own": ["a", "b"]}), **of)
    assert fewer.values == {1: 3.0, 2: 3.0}
    assert fewer.cell.paper is None and "a, b" in fewer.incomplete


PAPER = {"A": 3.0, "B": 5.0, "C": 4.0, "D": 9.0, "E": 7.0}
ORDERED = {"columns": {"ppl": {"metric": "valid_ppl"}}, "rows": {"F": {"system": "t1"}}}
ORDERED["rows"] |= {n: {"system": "t1", "paper": [f]} for n, f in PAPER.items()}


@pytest.mark.parametrize("values", ["1 2 2 1.5 .5 99", "30 50 40 90", "2 2 2 2.5 2"])
def test_order_is_compared_as_scipy_and_brute_force_do(measured, values):
    here = dict(zip("ABCDEF", map(float, values.split()), strict=False))
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
            equal.add(frozenset((one, two)))
        elif (here[one] < here[two]) != (PAPER[one] < PAPER[two]):
            other.add(frozenset((one, two)))
    for pairs, expected in ((told.disagreements, other), (told.ties, equal)):
        assert {frozenset((a.cell.row, b.cell.row)) for a, b in pairs} == expected


def test_rows_are_compared_by_the_seeds_that_both_have(measured):
    uneven = measured(figures(A=[1.0, 1.2], B=[2.0, 2.2, -3.0]), **ORDERED)
    a, b = (uneven.cells[name, "ppl"] for name in "AB")
    assert a.value > b.value and a.minus(b) == pytest.approx(-1)
    assert PAPER["A"] < PAPER["B"] and not agreement([a, b]).disagreements


def test_no_correlation_of_few_rows_or_within_the_error(measured):
    def told(**values):
        return agreement(measured(figures(**values), **ORDERED).column("ppl"))

    assert told(A=[1.0]) is None
    few = told(A=[1.0], B=[2.0], C=[3.0])
    assert few.spearman is None and few.rows == 3 and not few.is_within_error
    assert told(A=[1.0], B=[1.0], C=[1.0], D=[1.0]).spearman is None
    # standard error of the mean of two seeds that are 2 apart: 1; twice it: 2
    for spread, is_small in ((1.9, True), (2.1, False)):
        rows = {n: [i * spread / 3, 2 + i * spread / 3] for i, n in enumerate("ABCD")}
        found = told(**rows)
        assert found.is_within_error == (found.spearman is None) == is_small
    # the deviation of a difference of two seeds that are 2 apart: 2, not the sum 2.83
    noisy = measured(figures(A=[1.0, 3.0], B=[2.9, 4.9], C=[3.2, 5.2]), **ORDERED)
    a, b, c, d = (noisy.cells[name, "ppl"] for name in "ABCD")
    assert a.is_within_noise(b) and a.is_within_noise(c) is False
    assert a.is_within_noise(d) is None


def test_settings_in_which_compared_runs_differ(measured):
    one = {RATE: [0.1], "model.dropout": 0.1, "model.embed_dim": 64}

    def found(other, second=one, data="d1", **changes):
        """Of T1's two seeds and T2's run, which has ``other``."""
        rows = figures(T1=[5.0, 6.0], T2=[4.0])
        rows[2]["data"] = data
        settings = {"T11": one, "T12": second | {"common.seed": 2}, "T21": other}
        table = measured(rows, settings=settings, **changes)
        assert unequal(table, table.column("test")) == {}
        return unequal(table, table.column("ppl"))

    assert found(one | {"common.seed": 5, "task.seed": 9}) == {}
    (by_value,) = found(one | {RATE: [0.2]}).values()
    assert by_value == {"[0.1]": ["T1"], "[0.2]": ["T2"]}
    assert set(found(one, data="d2")) == {"data"}
    # one has it alone
    assert set(found(one | {"task.mask_prob": 0.4})) == {"task.mask_prob"}
    # rows are of other models, but for the width, which presets scale alike; seeds not
    assert found(one | {"model.dropout": 0.3, "model.block_size": 1}) == {}
    assert set(found(one | {"model.embed_dim": 32})) == {"model.embed_dim"}
    assert set(found(one, one | {"model.dropout": 0.2})) == {"model.dropout"}
    # what rows name, and what is swept over, differs on purpose
    other = one | {RATE: [0.2], "lr_scheduler.lr": [0.2]}
    assert found(other, sweep=SWEEP) == {}
    batch = {"sequences_per_update": 4, "dataset.batch_size_valid": 4}
    assert found(one | batch, sweep={"dataset.batch_size": [2, 4]}) == {}
    named = {"T2": {"system": "t2", "overrides": {RATE: [0.2]}}}
    assert set(found(other, rows=TABLE["rows"] | named)) == {"lr_scheduler.lr"}
    # all rows have it, and one was run before the file said so
    everywhere = {"overrides": {"task.mask_prob": 0.4}}
    assert set(found(one | {"task.mask_prob": 0.4}, **everywhere)) == {"task.mask_prob"}


def test_values_of_a_sweep_are_of_one_pre_training(measured):
    """The best of two would be the other checkpoint's."""
    lines = [row("T1", 1, 5.0, f"{RATE}=[0.{i}]", weights=f"w{i}") for i in (1, 2)]
    with refused("T1", "ppl", "different weights", "w1, w2"):
        measured(lines, sweep=SWEEP)
    of_model = {"model.dropout": [0.1, 0.2]}
    lines = [row("T1", 1, 5.0, f"model.dropout=0.{i}", weights=f"w{i}") for i in (1, 2)]
    assert measured(lines, sweep=of_model).cells["T1", "ppl"].value == 5.0
