"""The definition of a table: rows and columns of runs, and the paper's figures."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .errors import ReproduceError
from .yaml_files import checked_mapping, named_file, names_in, read_mapping

TABLE_KEYS = {"title", "task", "job", "columns", "overrides", "after", "figure", "rows"}
TABLE_KEYS |= {"conditions", "curve"}
COLUMN_KEYS = {"config", "metric", "overrides", "ranked"}
ROW_KEYS = {"config", "overrides", "paper", "job"}
FIGURE_KEYS = {"command", "each_row"}


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
        after: name -> command to run behind the training.
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
    conditions: str | None = None


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
        curve: what the learning curves are of; a key of the log's validation records.
    """

    name: str
    title: str
    task: str
    rows: list[str]
    columns: list[str]
    ranked: list[str]
    cells: list[Cell]
    figure: Figure | None
    curve: str = "valid_ppl"

    def cell(self, row: str, column: str) -> Cell:
        """The cell in this row and column."""
        (found,) = (c for c in self.cells if (c.row, c.column) == (row, column))
        return found


def table_names(configs: Path) -> list[str]:
    """Names of all tables, in the paper's order."""
    return names_in(configs / "tables")


def load_tables(configs: Path, names: list[str]) -> list[Table]:
    """The tables of these names; "all" stands for every one.

    Raises:
        ReproduceError: a name is unknown or a file is not as it should be.
    """
    if "all" in names:
        names = table_names(configs)
    return [load_table(configs, name) for name in dict.fromkeys(names)]


def load_table(configs: Path, name: str) -> Table:
    """Read a table's file."""
    path = named_file(configs / "tables", name, "table")
    content = read_mapping(path, TABLE_KEYS, {"title", "columns", "rows"})
    columns = {
        str(column): checked_mapping(f"{path}: column {column}", value, COLUMN_KEYS)
        for column, value in checked_mapping(
            f"{path}: columns", content["columns"], set(content["columns"] or ())
        ).items()
    }
    rows = {
        str(row): checked_mapping(f"{path}: row {row}", value, ROW_KEYS)
        for row, value in checked_mapping(
            f"{path}: rows", content["rows"], set(content["rows"] or ())
        ).items()
    }
    if not columns or not rows:
        raise ReproduceError(f"{path}: a table needs a column and a row at least")
    cells = [
        cell
        for row, definition in rows.items()
        for cell in _cells_of_row(path, content, columns, row, definition)
    ]
    figure = content.get("figure")
    if figure is not None:
        figure = Figure(
            **checked_mapping(f"{path}: figure", figure, FIGURE_KEYS, FIGURE_KEYS)
        )
    return Table(
        name=path.stem,
        title=content["title"],
        task=content.get("task", ""),
        rows=list(rows),
        columns=list(columns),
        ranked=[name for name, each in columns.items() if each.get("ranked", True)],
        cells=cells,
        figure=figure,
        curve=content.get("curve", "valid_ppl"),
    )


def _cells_of_row(path, content, columns, row: str, definition: dict) -> list[Cell]:
    paper = definition.get("paper", [None] * len(columns))
    if not isinstance(paper, list) or len(paper) != len(columns):
        raise ReproduceError(
            f"{path}: row {row}: paper={paper!r}; allowed: a list of {len(columns)} "
            "figures, one a column, null for none"
        )
    cells = []
    for (column, values), printed in zip(columns.items(), paper, strict=True):
        config = definition.get("config", values.get("config"))
        for key, value in (("config", config), ("metric", values.get("metric"))):
            if not value:
                raise ReproduceError(
                    f"{path}: row {row}, column {column}: {key} is missing"
                )
        overrides = {
            key: value
            for part in (content, values, definition)
            for key, value in (part.get("overrides") or {}).items()
        }
        cells.append(
            Cell(
                row=row,
                column=column,
                job=definition.get("job", content.get("job", "hydra_train")),
                config=config,
                overrides=overrides,
                metric=values["metric"],
                paper=printed,
                after=content.get("after") or {},
                conditions=content.get("conditions"),
            )
        )
    return cells


def chosen_cells(tables: list[Table], rows: list[str] | None) -> list[Cell]:
    """The cells of these tables, of these rows only if any are given.

    Raises:
        ReproduceError: no table has a row of that name.
    """
    known = {row for table in tables for row in table.rows}
    for row in rows or ():
        if row not in known:
            names = ", ".join(repr(each) for table in tables for each in table.rows)
            raise ReproduceError(f"--rows {row!r} is not known; allowed: {names}")
    return [
        cell for table in tables for cell in table.cells if not rows or cell.row in rows
    ]
