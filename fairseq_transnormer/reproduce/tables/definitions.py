"""The definition of a table: rows and columns of runs, and the paper's figures."""

import functools
import itertools
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ...argument_types import MOST_SEED
from ...data.typed_mappings import (
    ANY,
    BOOLEAN,
    COUNT,
    MAPPING,
    NUMBER,
    TEXT,
    Kind,
    list_of,
    mapping_of,
)
from ...modules.systems import SYSTEMS
from ..commands import FIGURE, check_after, check_command
from ..errors import ReproduceError
from ..registry import JOBS
from ..runs.metrics import METRICS
from ..runs.plans import TRAININGS
from ..yaml_files import (
    OVERRIDES,
    checked_mapping,
    named_file,
    named_mappings,
    names_in,
    read_mapping,
    read_yaml_mapping,
)
from .presets import SWEEP, Preset

_COMMAND = list_of(TEXT)
# the log's validation records have these
CURVE = Kind(
    "a text that begins with valid_, as valid_ppl, valid_loss, valid_accuracy",
    lambda value: TEXT.fits(value) and re.fullmatch(r"valid_\w+", value) is not None,
)
# that torch, numpy and Python take
SEED = Kind(
    f"a whole number from 0 to {MOST_SEED}",
    lambda value: COUNT.fits(value) and value <= MOST_SEED,
)
FIGURE_KINDS = {"command": _COMMAND, "each_row": _COMMAND}
BUBBLE_KINDS = {"x": TEXT, "y": TEXT, "size": TEXT}
TABLE_KINDS = {
    "title": TEXT,
    "task": TEXT,
    "config": TEXT,
    "job": TEXT,
    "columns": MAPPING,
    "overrides": OVERRIDES,
    "after": mapping_of(_COMMAND),
    "figure": MAPPING,
    "rows": MAPPING,
    "sweep": SWEEP,
    "bubbles": MAPPING,
    "conditions": TEXT,
    "curve": CURVE,
    "attach": TEXT,
    "column_axis": TEXT,
}
COLUMN_KINDS = {
    "config": TEXT,
    "system": TEXT,
    "metric": TEXT,
    "overrides": OVERRIDES,
    "ranked": BOOLEAN,
    "job": TEXT,
    "mean_of": list_of(TEXT),
    "seed": SEED,
}
ROW_KINDS = {
    "config": TEXT,
    "system": TEXT,
    "label": TEXT,
    "overrides": OVERRIDES,
    "paper": list_of(ANY),
    "job": TEXT,
}
DASH = "-"
# the folder of configurations that a system's are in
MODEL = "model"


@dataclass(frozen=True)
class Cell:
    """One figure of a table: the run that it comes from and how it is read there.

    Attributes:
        row, column: names.
        job: how the run is run; see ``jobs``.
        config: name of a primary configuration.
        overrides: key -> value, of the paper-size configuration.
        metric: what is read; see ``metrics``.
        paper: the printed figure, None where there is none.
        paper_dash: the paper prints a dash.
        after: name -> command to run after the training.
        sweep: key -> values; the figure is that of the best value of all.
        mean_of: columns of the same row; the figure is their mean and has no run.
        seed: the only one that it is run with; None leaves them to the call.
        conditions: the entry of a preset's tasks that holds for it; that of fairseq's
            task where it is None.
    """

    row: str
    column: str
    job: str
    config: str
    overrides: dict[str, Any]
    metric: str
    paper: float | None
    after: dict[str, list[str]]
    sweep: dict[str, list] = field(default_factory=dict)
    mean_of: tuple[str, ...] = ()
    seed: int | None = None
    conditions: str | None = None
    paper_dash: bool = False

    def candidates(self) -> list["Cell"]:
        """A cell of one run for each value of the sweep; itself if there is none."""
        keys = list(self.sweep)
        return [
            replace(
                self,
                overrides=self.overrides | dict(zip(keys, values, strict=True)),
                sweep={},
            )
            for values in itertools.product(*self.sweep.values())
        ]


@dataclass(frozen=True)
class Figure:
    """A command that report runs on all finished rows of a table together."""

    command: list[str]
    each_row: list[str]


@dataclass(frozen=True)
class Table:
    """A table of the paper, or of yours.

    Attributes:
        name, title, task: of the file, and what it says of itself.
        rows, columns: names.
        ranked: columns whose order is compared with the paper's.
        cells: one for each row and column.
        figure: what report draws besides.
        sweep: of every cell.
        columns_apart: whether columns choose configuration files of their own, so that
            their runs are not to be alike.
        bubbles: "x", "y" and "size" -> columns of a figure with a circle a row.
        curve: what the learning curves are of; a key of the log's validation records.
        attach: a folder in the first cell's run that goes beside the page.
        column_axis: what the columns' names are numbers of, so that the rows are drawn
            as lines over them; empty where they are none.
    """

    name: str
    title: str
    task: str
    rows: list[str]
    columns: list[str]
    ranked: list[str]
    cells: list[Cell]
    figure: Figure | None
    sweep: dict[str, list] = field(default_factory=dict)
    columns_apart: bool = False
    bubbles: dict[str, str] = field(default_factory=dict)
    curve: str = "valid_ppl"
    attach: str | None = None
    column_axis: str = ""

    def cell(self, row: str, column: str) -> Cell:
        """The cell in this row and column."""
        (found,) = (c for c in self.cells if (c.row, c.column) == (row, column))
        return found


def table_names(configs: Path) -> list[str]:
    """Names of all tables, in the paper's order."""
    return names_in(configs / "tables")


def load_tables(
    configs: Path, names: list[str], preset: Preset | None = None
) -> list[Table]:
    """The tables of these names; "all" stands for every one that the preset has.

    Raises:
        ReproduceError: a name is unknown or a file is not as it should be.
    """
    if "all" in names:
        without = preset.not_in_all if preset else []
        names = [name for name in table_names(configs) if name not in without]
    tables = [load_table(configs, name) for name in dict.fromkeys(names)]
    if preset:
        _check_names(preset, {*table_names(configs), *(each.name for each in tables)})
        tables = [_with_sweep_of(preset, each) for each in tables]
    if preset and preset.sweep_values:
        tables = [_with_shorter_sweeps(each, preset.sweep_values) for each in tables]
    return tables


def _check_names(preset: Preset, known: set[str]) -> None:
    """Raise ReproduceError where a preset speaks of a table that there is not."""
    for key in ("not_in_all", "columns", "sweeps"):
        for name in getattr(preset, key):
            if name not in known:
                raise ReproduceError(
                    f"preset {preset.name}: {key}: no table {name!r}; tables: "
                    f"{', '.join(sorted(known))}"
                )


def _with_sweep_of(preset: Preset, table: Table) -> Table:
    """The table with what the preset sweeps over in it, too; its own values stay."""
    more = {
        key: values
        for key, values in preset.sweeps.get(table.name, {}).items()
        if key not in table.sweep
    }

    def sweeps(cell: Cell) -> bool:
        # in a column with a job of its own the table's sweep does not count, either
        return not cell.mean_of and bool(cell.sweep or not table.sweep)

    cells = [
        replace(cell, sweep=cell.sweep | more) if sweeps(cell) else cell
        for cell in table.cells
    ]
    return replace(table, sweep=table.sweep | more, cells=cells)


def _with_shorter_sweeps(table: Table, count: int) -> Table:
    """The table with the first ``count`` values of each sweep."""
    return _with_sweeps(table, lambda key, values: values[:count])


def with_sweep_values(tables: list[Table], chosen: dict[str, list]) -> list[Table]:
    """The tables with these values of their sweeps only.

    Args:
        tables: that are to be run.
        chosen: key -> values, a list of one written as its value.

    Raises:
        ReproduceError: no table sweeps over a key or has such a value of it, or one
            that sweeps over it has none of them.
    """
    for key, values in chosen.items():
        known = [plain(v) for table in tables for v in table.sweep.get(key, [])]
        for value in values:
            if value not in known:
                raise ReproduceError(
                    f"--sweep {key}={value}; allowed: "
                    f"{', '.join(map(str, dict.fromkeys(known))) or 'no such sweep'}"
                )
    for table in tables:
        for key in table.sweep.keys() & chosen.keys():
            its = [plain(value) for value in table.sweep[key]]
            if not any(value in its for value in chosen[key]):
                raise ReproduceError(
                    f"--sweep {key}={', '.join(map(str, chosen[key]))}: no value of "
                    f"{table.name}'s; it has: {', '.join(map(str, its))}"
                )
    return [
        _with_sweeps(
            table,
            lambda key, values: [
                v for v in values if key not in chosen or plain(v) in chosen[key]
            ],
        )
        for table in tables
    ]


def _with_sweeps(table: Table, choose: Callable[[str, list], list]) -> Table:
    def chosen(sweep: dict[str, list]) -> dict[str, list]:
        return {key: choose(key, values) for key, values in sweep.items()}

    cells = [replace(cell, sweep=chosen(cell.sweep)) for cell in table.cells]
    return replace(table, sweep=chosen(table.sweep), cells=cells)


def plain(value: Any) -> Any:
    """A list of one value as that value: names are for people."""
    return value[0] if isinstance(value, list) and len(value) == 1 else value


def load_table(configs: Path, name: str) -> Table:
    """Read a table's file."""
    path = named_file(configs / "tables", name, "table")
    content = read_mapping(path, TABLE_KINDS, ["title", "columns", "rows"])
    columns = {
        column: checked_mapping(f"{path}: column {column}", value, COLUMN_KINDS)
        for column, value in named_mappings(
            f"{path}: columns", content["columns"]
        ).items()
    }
    rows = _labelled_rows(path, content["rows"])
    cells = [
        cell
        for row, definition in rows.items()
        for cell in _cells_of_row(configs, path, content, columns, row, definition)
    ]
    check_after(f"{path}: after", content.get("after", {}), TRAININGS)
    for cell in cells:
        _check_job_and_metric(path, cell)
    return Table(
        name=path.stem,
        title=content["title"],
        task=content.get("task", ""),
        rows=list(rows),
        columns=list(columns),
        ranked=[name for name, each in columns.items() if each.get("ranked", True)],
        cells=cells,
        figure=_checked_figure(path, content.get("figure")),
        sweep=content.get("sweep") or {},
        columns_apart=any(
            "." not in key and key != MODEL
            for each in columns.values()
            for key in each.get("overrides") or {}
        ),
        bubbles=_checked_bubbles(path, content.get("bubbles"), columns),
        curve=content.get("curve", "valid_ppl"),
        attach=content.get("attach"),
        column_axis=_checked_column_axis(path, content.get("column_axis", ""), columns),
    )


def _check_job_and_metric(path: Path, cell: Cell) -> None:
    """Raise ReproduceError unless report, after all trainings, can read the cell's."""
    if cell.mean_of:
        return
    try:
        JOBS.find(cell.job)  # its module may register metrics
        METRICS.find(cell.metric)
    except ReproduceError as error:
        where = f"{path}: row {cell.row}, column {cell.column}"
        raise ReproduceError(f"{where}: {error}") from error


def _checked_figure(path: Path, content: Any) -> Figure | None:
    if content is None:
        return None
    checked = checked_mapping(f"{path}: figure", content, FIGURE_KINDS, FIGURE_KINDS)
    for key, placeholders in FIGURE.items():
        check_command(f"{path}: figure: {key}", checked[key], placeholders)
    return Figure(**checked)


def _checked_column_axis(path: Path, axis: str, columns: dict) -> str:
    for column in columns if axis else ():
        if not column.isdecimal() or int(column) == 0:
            raise ReproduceError(
                f"{path}: column_axis={axis!r} with the column {column!r}; allowed: "
                "columns that are numbers above 0"
            )
    return axis


def _checked_bubbles(path: Path, bubbles: Any, columns: dict) -> dict[str, str]:
    if bubbles is None:
        return {}
    checked_mapping(f"{path}: bubbles", bubbles, BUBBLE_KINDS, BUBBLE_KINDS)
    for axis, column in bubbles.items():
        if column not in columns:
            raise ReproduceError(
                f"{path}: bubbles: {axis}={column!r}; allowed: {', '.join(columns)}"
            )
    return bubbles


def _cells_of_row(
    configs, path, content, columns, row: str, definition: dict
) -> list[Cell]:
    paper = definition.get("paper", [None] * len(columns))
    if len(paper) != len(columns) or not all(
        p in (None, DASH) or NUMBER.fits(p) for p in paper
    ):
        raise ReproduceError(
            f"{path}: row {row}: paper={paper!r}; allowed: a list of {len(columns)} "
            'figures, one a column, null for none, "-" for a dash'
        )
    cells = []
    for (column, values), printed in zip(columns.items(), paper, strict=True):
        if "mean_of" in values:
            cells.append(_mean(path, columns, row, column, printed))
            continue
        config = definition.get("config", values.get("config", content.get("config")))
        for key, value in (("config", config), ("metric", values.get("metric"))):
            if not value:
                raise ReproduceError(
                    f"{path}: row {row}, column {column}: {key} is missing"
                )
        overrides = {
            key: value
            for part in (content, values, definition)
            for key, value in (
                *_model_of(configs, path, config, part).items(),
                *(part.get("overrides") or {}).items(),
            )
        }
        cells.append(
            Cell(
                row=row,
                column=column,
                job=values.get(
                    "job", definition.get("job", content.get("job", "hydra_train"))
                ),
                config=config,
                overrides=overrides,
                metric=values["metric"],
                paper=None if printed == DASH else printed,
                paper_dash=printed == DASH,
                after=content.get("after") or {},
                sweep={} if "job" in values else content.get("sweep") or {},
                seed=values.get("seed"),
                conditions=content.get("conditions"),
            )
        )
    return cells


def _labelled_rows(path: Path, content: Any) -> dict[str, dict]:
    """Label -> definition of each row."""
    rows, keys = {}, {}
    for key, value in named_mappings(f"{path}: rows", content).items():
        checked = checked_mapping(f"{path}: row {key}", value, ROW_KINDS)
        label, definition = _labelled(key, checked)
        if label in rows:
            raise ReproduceError(
                f"{path}: rows {keys[label]!r} and {key!r} both have the label "
                f"{label!r}; allowed: a label of its own for each row"
            )
        rows[label], keys[label] = definition, key
    return rows


def _labelled(row: str, definition: dict) -> tuple[str, dict]:
    """A row whose key is a system's name is that system, under the paper's name."""
    if row not in SYSTEMS or "system" in definition:
        return definition.get("label", row), definition
    label = definition.get("label", SYSTEMS[row].label)
    return label, {"system": row, **definition}


def _model_of(configs: Path, path: Path, config: str, part: dict) -> dict[str, str]:
    """The override that chooses the system's model of a configuration's kind."""
    if "system" not in part:
        return {}
    if part["system"] not in SYSTEMS:
        raise ReproduceError(
            f"{path}: system={part['system']!r}; allowed: {', '.join(SYSTEMS)}"
        )
    return {MODEL: f"{_kind_of_models(configs, path, config)}_{part['system']}"}


@functools.cache  # each cell asks, of few files
def _kind_of_models(configs: Path, path: Path, config: str) -> str:
    """ "alm", "blm" or "lra": the beginning of the model that a configuration has."""
    primary = configs / f"{config}.yaml"
    if not primary.is_file():
        raise ReproduceError(f"{path}: config={config!r}: there is no {primary}")
    defaults = read_yaml_mapping(primary).get("defaults", [])
    models = [
        each[MODEL] for each in defaults if isinstance(each, dict) and MODEL in each
    ]
    if not models:
        raise ReproduceError(f"{primary}: no model among its defaults")
    return models[0].partition("_")[0]


def _mean(path, columns, row: str, column: str, printed: float | None) -> Cell:
    names = columns[column]["mean_of"]
    known = [name for name, each in columns.items() if "mean_of" not in each]
    if not names or not set(names) <= set(known):
        raise ReproduceError(
            f"{path}: column {column}: mean_of={names!r}; allowed: a list of "
            f"{', '.join(known)}"
        )
    return Cell(row, column, "", "", {}, "mean", printed, {}, mean_of=tuple(names))


def chosen_cells(
    tables: list[Table],
    rows: list[str] | None,
    columns: list[str] | None = None,
    usual_columns: dict[str, list[str]] | None = None,
) -> list[Cell]:
    """The cells of these tables that have runs, of these rows and columns only.

    Without columns they are, of a table, its ``usual_columns`` if it is named there.

    Raises:
        ReproduceError: no table has a row or a column of that name, or none has a run
            in both.
    """
    for option, chosen in (("rows", rows), ("columns", columns)):
        known = [name for table in tables for name in getattr(table, option)]
        for name in chosen or ():
            if name not in known:
                raise ReproduceError(
                    f"--{option} {name!r} is not known; allowed: "
                    f"{', '.join(map(repr, dict.fromkeys(known)))}"
                )
    usual = usual_columns or {}
    cells = [
        cell
        for table in tables
        for cell in table.cells
        if not cell.mean_of
        and (not rows or cell.row in rows)
        and cell.column in (columns or usual.get(table.name) or table.columns)
    ]
    if not cells:
        names = ", ".join(table.name for table in tables)
        of_preset = {column for table in tables for column in usual.get(table.name, ())}
        given = [
            f"{what} {', '.join(map(repr, chosen))}"
            for what, chosen in (
                ("--rows", rows),
                ("--columns", columns or sorted(of_preset)),
            )
            if chosen
        ]
        raise ReproduceError(
            f"{' and '.join(given)}: no table has a run in both, of {names}; allowed: "
            "rows and columns of one table, whose figures are not means of others"
        )
    return cells
