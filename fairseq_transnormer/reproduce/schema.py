"""Tables and presets: what is run, and at which size. YAML, held to these dataclasses.

A table's cell is one figure: the run that it comes from, and how it is read there.
"""

import functools
import itertools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from ..modules.systems import SYSTEMS

DASH = "-"
# the group of configurations that a system's are in
MODEL = "model"
JOBS = ("train", "finetune", "finetune_from_scratch", "lra_speed")
Kind = TypeVar("Kind")


@dataclass
class Part:
    """What a row or a column may have of its own; see ``TableFile``."""

    config: str | None = None
    system: str | None = None
    job: str | None = None
    overrides: dict[str, Any] = field(default_factory=dict)


@dataclass
class Column(Part):
    """A column of a table."""

    metric: str | None = None
    ranked: bool = True  # whether its order is compared with the paper's
    mean_of: list[str] = field(default_factory=list)  # columns; it has no run itself
    seed: int | None = None  # the only one that it is run with


@dataclass
class Row(Part):
    """A row of a table. Its key may be a system's name, which then labels it."""

    label: str | None = None
    paper: list[Any] = field(default_factory=list)  # a figure a column, null or "-"


@dataclass
class TableFile:
    """What a table's file says."""

    title: str
    columns: dict[str, Column]
    rows: dict[str, Row | None]
    task: str = ""  # a line of the page
    config: str | None = None  # a file of configs/; a row or a column may have its own
    job: str = "train"  # one of ``JOBS``: how a run is run
    # the entry of a preset's tasks that holds for it; by default that of fairseq's task
    conditions: str | None = None
    overrides: dict[str, Any] = field(default_factory=dict)  # at the paper's size
    # key -> values; a figure is that of the best value on valid
    sweep: dict[str, list[Any]] = field(default_factory=dict)
    column_axis: str = ""  # what the columns' names are numbers of, for a picture
    # label -> what a reader of the measured figures must know
    remarks: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Cell:
    """One figure of a table; see ``TableFile``."""

    row: str
    column: str
    job: str
    config: str
    overrides: dict[str, Any]
    metric: str
    paper: float | None = None
    paper_dash: bool = False
    sweep: dict[str, list[Any]] = field(default_factory=dict)
    mean_of: tuple[str, ...] = ()
    seed: int | None = None
    conditions: str | None = None

    def candidates(self) -> "dict[str, Cell]":
        """A cell for each value of the sweep, by ``shown_values``; itself by ""."""
        found = {}
        for values in itertools.product(*self.sweep.values()):
            chosen = dict(zip(self.sweep, values, strict=True))
            overrides = self.overrides | chosen
            cell = replace(self, overrides=overrides, sweep={})
            found[shown_values(chosen)] = cell
        return found


@dataclass(frozen=True)
class Table:
    """A table: its file, and a cell for each row and column."""

    name: str
    file: TableFile
    cells: list[Cell]

    @property
    def rows(self) -> list[str]:
        """The rows' names, as pages have them."""
        return list(dict.fromkeys(cell.row for cell in self.cells))

    @property
    def columns(self) -> list[str]:
        """The columns' names."""
        return list(self.file.columns)


@dataclass
class TaskPreset:
    """What a preset says of one fairseq task, or of a table's conditions."""

    data: str  # folder, relative to the repository
    sequences_per_device: int  # at once, at most
    # of all devices and accumulated batches; by default the configuration's
    sequences_per_update: int | None = None
    width: float = 1.0  # factor of the ``scaled`` fields of models
    scaled: list[str] | None = None  # instead of the preset's
    factors: dict[str, float] = field(default_factory=dict)  # of other fields of models
    most_devices: int | None = None  # of one run, however many GPUs it is given
    overrides: dict[str, Any] = field(default_factory=dict)
    # commands that make the data, after those of the preset, or without these
    prepare: list[list[str]] = field(default_factory=list)
    prepare_alone: bool = False


@dataclass
class Preset:
    """The conditions that all rows have in common."""

    description: str
    tasks: dict[str, TaskPreset]  # by fairseq's name, or a table's conditions
    name: str = ""  # of the file
    # whether models, data and budget are the paper's, so that pages subtract figures
    paper_sizes: bool = False
    gpus_per_run: int = 1
    # fields of models that a task's width multiplies
    scaled: list[str] = field(default_factory=list)
    overrides: dict[str, Any] = field(default_factory=dict)  # of every run
    prepare: list[list[str]] = field(default_factory=list)  # commands; they make data
    prepare_automatically: bool = False  # the user need not ask for that
    not_in_all: list[str] = field(default_factory=list)  # tables
    # table -> columns that are run where none are asked for
    columns: dict[str, list[str]] = field(default_factory=dict)
    # table -> key -> values that are tried besides the table's own sweep
    sweeps: dict[str, dict[str, list[Any]]] = field(default_factory=dict)
    sweep_values: int | None = None  # tried of each sweep; by default all
    # options of ``benchmarks lra_speed``, without the dashes
    speed: dict[str, Any] = field(default_factory=dict)

    def task(self, name: str) -> TaskPreset:
        """What the preset says of a task."""
        return self.tasks[named_in(f"task of preset {self.name}", name, self.tasks)]


def plain(value: Any) -> Any:
    """A list of one value as that value: names are for people."""
    return value[0] if isinstance(value, list) and len(value) == 1 else value


def shown_values(values: dict[str, Any]) -> str:
    """Values of a sweep, as "optimization.lr=0.001", in the order of their keys."""
    return " ".join(f"{key}={plain(value)}" for key, value in sorted(values.items()))


def named_in(what: str, name: str, known: Iterable[str]) -> str:
    """The name; ValueError if it is not one of these."""
    if name not in (known := [*known]):
        allowed = ", ".join(map(repr, known))
        raise ValueError(f"{what} {name!r} is not known; allowed: {allowed}")
    return name


def read_yaml(
    path: Path, kind: type[Kind], shape: Callable[[Any], Any] = lambda content: content
) -> Kind:
    """The file as a dataclass, which holds what ``shape`` makes of its content.

    ValueError where it cannot be read, or a key or a value is not allowed.
    """
    # of content that is of another shape
    no_data = (AttributeError, OSError, RecursionError, TypeError, ValueError)
    try:
        content = shape(OmegaConf.load(path))
        found = OmegaConf.merge(OmegaConf.structured(kind), content)
        return OmegaConf.to_object(found)  # type: ignore[return-value]
    except (OmegaConfBaseException, YAMLError, *no_data) as error:
        raise ValueError(f"{path}: {' '.join(str(error).split())}") from error


def names_in(folder: Path) -> list[str]:
    """Names of a folder's YAML files, table9 before table10."""
    names = (path.stem for path in folder.glob("*.yaml"))
    return sorted(names, key=lambda name: (name.rstrip("0123456789"), len(name), name))


def _file(folder: Path, name: str) -> Path:
    """``folder``/``name``.yaml, or ``name`` itself if it is a YAML file."""
    if not name.endswith((".yaml", ".yml")):
        named_in(f"{folder}: {folder.name[:-1]}", name, names_in(folder))
        return folder / f"{name}.yaml"
    path, known = Path(name), folder / f"{Path(name).stem}.yaml"
    if known.is_file() and path.is_file() and not path.samefile(known):
        raise ValueError(
            f"{name}: results are known by its name, which {known} has; give the file "
            "another"
        )
    return path


def load_preset(configs: Path, name: str) -> Preset:
    """A preset by its name, or by the path of its file; ValueError of a mistake."""
    path = _file(configs / "presets", name)
    return replace(read_yaml(path, Preset), name=path.stem)


def load_table(configs: Path, name: str) -> Table:
    """A table by its name, or by the path of its file, as it is without a preset.

    ValueError of a mistake, or where rows, columns and figures do not fit.
    """
    path = _file(configs / "tables", name)
    file = read_yaml(path, TableFile)
    cells: dict[tuple[str, str], Cell] = {}
    for key, row in file.rows.items():
        printed = row.paper if row and row.paper else [None] * len(file.columns)
        if len(printed) != (many := len(file.columns)):
            raise ValueError(
                f"{path}: row {key}: paper must have {many} figures, one a column, "
                f'null for none, "-" for a dash, got {printed}'
            )
        for column, figure in zip(file.columns, printed, strict=True):
            try:
                cell = _cell(configs, file, key, column, figure)
            except ValueError as error:
                raise ValueError(f"{path}: {key}, {column}: {error}") from error
            if cells.setdefault((cell.row, column), cell) is not cell:
                raise ValueError(f"{path}: two rows have the label {cell.row!r}")
    return Table(path.stem, file, [*cells.values()])


def _cell(
    configs: Path, file: TableFile, key: str, name: str, printed: float | str | None
) -> Cell:
    row, column = file.rows[key] or Row(), file.columns[name]
    _ = printed in (None, DASH) or float(printed)  # or raises
    label = row.label or key
    if key in SYSTEMS and row.system is None:
        label = row.label or SYSTEMS[key].label
        row = replace(row, system=key)
    for each in column.mean_of:
        named_in("mean_of: column", each, file.columns)
    config = row.config or column.config or file.config or ""
    if not column.mean_of and not (config and column.metric):
        raise ValueError("config or metric is missing")
    overrides: dict[str, Any] = {}
    for part in () if column.mean_of else (file, column, row):
        if system := getattr(part, "system", None):
            named_in("system", system, SYSTEMS)
            overrides[MODEL] = f"{_kind_of_models(configs, config)}_{system}"
        overrides |= part.overrides
    job = named_in("job", column.job or row.job or file.job, JOBS)
    return Cell(
        *(label, name, job, config, overrides, column.metric or "mean"),
        paper=None if printed == DASH else printed,  # type: ignore[arg-type]
        paper_dash=printed == DASH,
        # a column with a job of its own, as parameters, is not swept over
        sweep={} if column.job or column.mean_of else file.sweep,
        mean_of=tuple(column.mean_of),
        seed=column.seed,
        conditions=file.conditions,
    )


@functools.cache  # each cell asks, of few files
def _kind_of_models(configs: Path, config: str) -> str:
    """ "alm", "blm" or "lra": the beginning of the model that a configuration has."""
    named_in(f"{configs}: config", config, names_in(configs))
    primary: Any = OmegaConf.load(configs / f"{config}.yaml")
    parts = (each for each in primary.get("defaults", []) if isinstance(each, Mapping))
    return next((e[MODEL] for e in parts if MODEL in e), config).partition("_")[0]


def load_tables(configs: Path, names: Sequence[str], preset: Preset) -> list[Table]:
    """The tables of these names, with the preset's sweeps; "all": that it has."""
    known = names_in(configs / "tables")
    if "all" in names:
        names = [name for name in known if name not in preset.not_in_all]
    tables = [load_table(configs, name) for name in dict.fromkeys(names)]
    known += [table.name for table in tables]
    for name in (*preset.not_in_all, *preset.columns, *preset.sweeps):
        named_in(f"preset {preset.name}: table", name, known)
    return [with_sweeps_of(preset, table) for table in tables]


def with_sweeps_of(preset: Preset, table: Table) -> Table:
    """The table with the preset's sweeps and its own, whose values stay."""
    more = preset.sweeps.get(table.name, {})

    def sweep_of(cell: Cell) -> dict[str, list[Any]]:
        # what the table's own sweep leaves out, as parameters, the preset's does, too
        if cell.mean_of or (table.file.sweep and not cell.sweep):
            return {}
        both = more | cell.sweep
        return {key: values[: preset.sweep_values] for key, values in both.items()}

    cells = [replace(cell, sweep=sweep_of(cell)) for cell in table.cells]
    return replace(table, cells=cells)


def with_sweep_values(tables: list[Table], chosen: dict[str, list[Any]]) -> list[Table]:
    """The tables with these values of their sweeps only: key -> values.

    ValueError where a cell that sweeps over a key has none of them, or no cell does.
    """
    cells = [cell for table in tables for cell in table.cells]
    for key, values in chosen.items():
        sweeps = [[plain(v) for v in c.sweep[key]] for c in cells if key in c.sweep]
        if not sweeps or any(not set(values) & set(sweep) for sweep in sweeps):
            allowed = ", ".join(map(str, sweeps[0])) if sweeps else "no such sweep"
            raise ValueError(f"--sweep {key}={plain(values)}; allowed: {allowed}")

    def chosen_of(cell: Cell) -> Cell:
        sweep = {
            key: [v for v in values if key not in chosen or plain(v) in chosen[key]]
            for key, values in cell.sweep.items()
        }
        return replace(cell, sweep=sweep)

    return [replace(t, cells=list(map(chosen_of, t.cells))) for t in tables]


def chosen_cells(
    tables: list[Table],
    rows: Collection[str] = (),
    columns: Collection[str] = (),
    usual: Mapping[str, Collection[str]] | None = None,
) -> list[Cell]:
    """The cells that have runs, of these rows and columns; all where none are named.

    ``usual``, table -> columns, is taken where ``columns`` is empty. ValueError where
    no table has such a row or column, or a run in both.
    """
    for option, chosen in (("rows", rows), ("columns", columns)):
        known = {name: None for table in tables for name in getattr(table, option)}
        for name in chosen:
            named_in(f"--{option}", name, known)
    cells = [
        cell
        for table in tables
        for cell in table.cells
        if not cell.mean_of
        and (not rows or cell.row in rows)
        and cell.column in (columns or (usual or {}).get(table.name) or table.columns)
    ]
    if not cells:
        raise ValueError("no table has a run in these rows and columns")
    return cells
