"""Tables and presets: all of configs/, and what is refused in files of others."""

import functools
from dataclasses import replace

import pytest

from fairseq_transnormer.reproduce import schema
from fairseq_transnormer.reproduce.jobs import JOBS
from fairseq_transnormer.reproduce.schema import load_preset, load_table, names_in
from fairseq_transnormer.training.config import compose
from tests.paths import CONFIGS

from .made import TABLE, refused, write_yaml

PRESETS = names_in(CONFIGS / "presets")
RATE = "optimization.lr"


@functools.cache
def table(name):
    return load_table(CONFIGS, name)


def cell_of(given, row, column):
    return next(c for c in given.cells if (c.row, c.column) == (row, column))


def own(folder, **changes):
    """The table of TABLE with changes, in a file of its own."""
    return load_table(CONFIGS, str(write_yaml(folder / "own.yaml", TABLE | changes)))


@pytest.mark.parametrize("name", PRESETS)
def test_every_table_loads_with_every_preset(name):
    preset, tables = load_preset(CONFIGS, name), names_in(CONFIGS / "tables")
    assert {f"table{n}" for n in range(1, 13)} | {"figure1", "figure2"} <= {*tables}
    assert {*preset.not_in_all, *preset.columns, *preset.sweeps} <= {*tables}
    for each in tables:
        found = schema.with_sweeps_of(preset, table(each))
        assert {*preset.columns.get(each, ())} <= {*found.columns}
        assert {cell.job for cell in found.cells} <= {*JOBS}
        if name == "finetune" or each in preset.not_in_all:
            continue
        for cell in found.cells:
            if not cell.mean_of and cell.job == "train":
                task = compose(CONFIGS, cell.config, {})["task"]["_name"]
                assert (cell.conditions or task) in preset.tasks, each


def test_figures_are_the_papers():
    assert cell_of(table("table7"), "LS", "train_5K").paper == 4.76
    assert cell_of(table("table7"), "Transformer", "infer_3K").paper_dash
    of = table("table5")
    for row in of.rows:
        *printed, average, _ = (cell_of(of, row, c).paper or 0 for c in of.columns)
        # what did not converge counts nothing
        assert sum(printed) / len(printed) == pytest.approx(average, abs=0.01)


def test_a_systems_name_is_its_row(tmp_path):
    rows = {"cosformer": None, "ls": {"label": "Long"}, "x": {"system": "t1"}, "y": {}}
    found = own(tmp_path, rows=rows)
    assert found.rows == ["cosFormer", "Long", "x", "y"]
    models = [c.overrides.get("model") for c in found.cells if c.column == "ppl"]
    assert models == ["blm_cosformer", "blm_ls", "blm_t1", None]
    # a row's own values come last, a column's before a table's
    both = {"a": {"metric": "x_y", "overrides": {"k.a": 2, "k.b": 2}}}
    rows = {"t1": {"overrides": {"k.b": 3}}}
    (cell,) = own(tmp_path, columns=both, rows=rows, overrides={"k.a": 1}).cells
    assert cell.overrides == {"k.a": 2, "k.b": 3, "model": "blm_t1"}


def test_sweeps_of_tables_and_presets():
    assert schema.shown_values({"b": 1, "a": [2]}) == "a=2 b=1"
    plain = replace(load_preset(CONFIGS, "paper"), sweeps={}, sweep_values=None)

    def counts(preset, name):
        cells = schema.with_sweeps_of(preset, table(name)).cells
        return {c.column: len(c.candidates()) for c in cells}

    assert counts(plain, "table5")["CoLA"] == 4
    # the table's own values stay, and what has no sweep there has none of a preset's
    more = replace(plain, sweeps={"table5": {RATE: [[1.0]], "a.b": [1, 2, 3]}})
    assert counts(more, "table5")["CoLA"] == 4 * 3
    assert counts(more, "table5")["AVG"] == counts(more, "table5")["params_m"] == 1
    # of a table without one, the preset's; the first of them
    rates = replace(plain, sweeps={"table4": {RATE: [[0.1], [0.2], [0.3]]}})
    few = schema.with_sweeps_of(replace(rates, sweep_values=2), table("table4"))
    tried = cell_of(few, "Vanilla", "test_ppl").candidates()
    rate_of = {value: cell.overrides[RATE] for value, cell in tried.items()}
    assert rate_of == {f"{RATE}={n}": [n] for n in (0.1, 0.2)}
    assert counts(rates, "table8") == {"T1": 1, "T2": 1}
    # those that a command chooses
    tables = [table("table5"), table("topics"), table("table8")]
    first, second, _ = schema.with_sweep_values(tables, {RATE: [0.00003, 0.5]})
    left = {len(c.candidates()) for t in (first, second) for c in t.cells if c.sweep}
    assert left == {1}
    for key, value, *allowed in ((RATE, 0.0003, 3e-05), ("a.b", 1, "no such sweep")):
        with refused(f"{key}={value}", *allowed):
            schema.with_sweep_values(tables, {key: [value]})


def test_rows_and_columns():
    of = [table("table4"), table("table6")]
    (mean,) = {cell.column for cell in of[1].cells if cell.mean_of}
    assert mean not in {cell.column for cell in schema.chosen_cells(of)}
    some = schema.chosen_cells(of, ["Vanilla", "Transformer"], ["test_ppl", "ListOps"])
    found = [(cell.row, cell.column) for cell in some]
    assert found == [("Vanilla", "test_ppl"), ("Transformer", "ListOps")]
    usual = {"table6": ["Text"]}
    for asked, columns in (((), {"Text"}), (["ListOps"], {"ListOps"})):
        chosen = schema.chosen_cells(of[1:], columns=asked, usual=usual)
        assert {cell.column for cell in chosen} == columns
    with refused("--rows 'T3'", "'Vanilla'", "'Transformer'"):
        schema.chosen_cells(of, ["T3"], [])
    with refused("no table"):  # not without a word
        schema.chosen_cells(of, ["Vanilla"], ["ListOps"])
