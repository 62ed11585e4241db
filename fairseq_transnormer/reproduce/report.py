"""The pages of results: a page a preset, a section a table, with its pictures.

results/tables/LABEL.md    figures, order of the rows, sweeps, conditions
results/tables/LABEL.csv   the figures, a line a row and column
"""

import itertools
import shlex
from collections.abc import Iterable
from dataclasses import replace
from math import comb, inf
from pathlib import Path

from filelock import FileLock
from pandas import DataFrame

from ..analysis.figures import Panel, curves
from ..data.whole_files import write_text
from .measured import Measured, MeasuredTable, agreement, measure, unequal
from .metrics import SPEED_METRIC
from .plan import Conditions
from .results import KEY, RUN, UNREAD, Results, from_runs
from .runs import LOCK, WITHOUT_RESULT
from .schema import (
    DASH,
    Cell,
    Column,
    Preset,
    Table,
    TableFile,
    load_table,
    names_in,
    plain,
)
from .text import number, plus_minus

Lines = dict[str, list[tuple[float, float, list[float]]]]  # x, y, y of each seed
FEWEST_POINTS = 4  # of a learning curve
MOST_CURVES = 20  # that can be distinguished
SHOWN_PAIRS = 15
# notes of finished runs that should have a figure
NO_FIGURE = (UNREAD, "finished without", "other weights")
# settings that pages leave to configurations.csv; models are called by their rows
NOT_SHOWN = ("common.", "task.seed", "checkpoint.", "dataset.required", "dataset.skip")
NOT_SHOWN += ("dataset.valid_subset", "dataset.batch_size", "lr_scheduler.warmup_init")
NOT_SHOWN += ("model.",)
OF_MODELS = ("model.embed_dim", "model.num_heads")
# unit, and which of it is better
UNITS = {
    "ppl": ("perplexity", "lower"),
    "loss": ("bits", "lower"),
    "accuracy": ("accuracy (%)", "higher"),
    "f1": ("F1 (%)", "higher"),
    "mcc": ("Matthews correlation", "higher"),
    "gradient_rsd": ("relative deviation of the gradient's norm", ""),
}
SPEED_UNITS = {None: ("steps a second", "higher"), "_memory": ("GiB", "lower")}


def write(
    tables: list[Table], conditions: Conditions, runs: Path, results: Path
) -> list[str]:
    """Add the rows of the runs of these tables to the results, and write the page.

    It has all tables that there are results of. Returns why finished runs are without a
    figure, and which runs are not finished.
    """
    found = from_runs(tables, conditions, runs)
    results.mkdir(parents=True, exist_ok=True)
    with FileLock(results / LOCK):  # commands that end together add their rows in turn
        together = (before := Results.read(results)).add(found)
        if conditions.label not in set(together.runs["preset"]):
            raise ValueError(
                f"no results of {conditions.label}: there are neither runs of these "
                f"tables in {runs} nor lines in {results / 'runs.csv'}"
            )
        together.write(results)
        _print_replaced(before.runs, found.runs)
        write_page(tables, conditions, together, results)
    print(f"written: {results / 'tables' / conditions.label}.md", flush=True)
    problems = []
    for row in found.runs.drop_duplicates(["run", "seed", "note"]).itertuples():
        if row.note in WITHOUT_RESULT:
            problems.append(f"not finished: {row.run}/seed{row.seed} is {row.note}")
        elif row.note.startswith(NO_FIGURE):
            problems.append(f"{row.run}/seed{row.seed}: {row.note}")
    return problems


def _print_replaced(before: DataFrame, now: DataFrame) -> None:
    """Print how many figures are now those of runs that are not equal."""
    both = before.merge(now, on=[*KEY], suffixes=("", "_now"))
    both = both.dropna(subset=["value", "value_now"])
    what = ["config", "data", "weights"]
    new = both[[f"{each}_now" for each in what]].to_numpy()
    if many := (both[what].to_numpy() != new).any(axis=1).sum():
        print(f"replaced figures, of other settings, data or weights: {many}")


def write_page(
    tables: Iterable[Table], conditions: Conditions, results: Results, folder: Path
) -> None:
    """The page of a preset, its CSV and its pictures, of rows alone."""
    label, preset = conditions.label, conditions.preset
    rows = results.runs[results.runs["preset"] == label]
    own = {table.name: table for table in tables}
    known = names_in(conditions.configs / "tables")
    there = set(rows["table"])
    sections, cells = [], []
    out = folder / "tables"
    (out / label).mkdir(parents=True, exist_ok=True)
    for name in [each for each in known if each in there] + sorted(there - {*known}):
        if name in known:
            table = own.get(name) or load_table(conditions.configs, name)
        else:
            if name not in own:
                print(f"{name}: not given, so the page has only its measured figures")
            table = _with_lines(name, rows[rows["table"] == name], own.get(name))
        measured = measure(table, results, label, preset)
        pictures = draw(measured, results.curves, out / label)
        # of analyses that are run by hand
        pictures += sorted((out / label / name).glob("*.png"))
        links = [each.relative_to(out).as_posix() for each in pictures]
        sections.append(section(measured, preset, links))
        cells += _lines(measured)
    description = preset.description[:1].upper() + preset.description[1:]
    changes = shlex.join(f"{key}={v}" for key, v in conditions.overrides.items())
    parts = [
        f"# Tables, preset `{preset.name}`{changes and f', with `{changes}`'}",
        f"{description}. Figures are means over seeds ± their standard deviation. "
        f"Every figure and its run is a line of [runs.csv](../runs.csv); [{label}.csv]"
        f"({label}.csv) has the tables.",
        *sections,
        f"Made by `python -m fairseq_transnormer reproduce report --preset "
        f"{preset.name}{changes and f' --set {changes}'}`.",
    ]
    write_text(out / f"{label}.md", "\n\n".join(parts) + "\n")
    frame = DataFrame(cells)
    write_text(out / f"{label}.csv", frame.to_csv(index=False, lineterminator="\n"))


def _with_lines(name: str, rows: DataFrame, own: Table | None) -> Table:
    """A table of a checkpoint or of the user's file, with all cells that have lines.

    A fine-tuning on other problems, and one of another checkpoint, left theirs.
    """
    own = own or Table(name, TableFile(name, {}, {}), [])
    columns, names = dict(own.file.columns), own.rows
    for each in rows.itertuples():
        columns.setdefault(each.column, Column(metric=each.metric))
        names.append(each.row)
    cells = {(cell.row, cell.column): cell for cell in own.cells}
    for row, (column, its) in itertools.product(dict.fromkeys(names), columns.items()):
        empty = Cell(row, column, "train", "", {}, its.metric or "mean")
        empty = replace(empty, mean_of=tuple(its.mean_of))
        cells.setdefault((row, column), empty)
    return Table(name, replace(own.file, columns=columns), [*cells.values()])


def _lines(measured: MeasuredTable) -> list[dict[str, object]]:
    return [
        {
            "table": measured.table.name,
            "row": row,
            "column": column,
            "metric": each.cell.metric,
            "paper": DASH if each.cell.paper_dash else each.cell.paper,
            "measured": each.value,
            "deviation": each.deviation,
            "seeds": " ".join(map(str, each.values)),
            "values": " ".join(map(repr, each.values.values())),
            "sweep": each.chosen,
        }
        for (row, column), each in measured.cells.items()
        if each.cell.mean_of or len(each.rows)
    ]


def section(measured: MeasuredTable, preset: Preset, pictures: list[str]) -> str:
    """A table as Markdown."""
    file = measured.table.file
    parts = [
        f"## {file.title}",
        file.task,
        _figures(measured, preset),
        _notes(measured),
        file.remarks.get(measured.label, ""),
        *(_order(measured, n) for n in file.columns if file.columns[n].ranked),
        *(f"![{file.title}]({picture})" for picture in pictures),
        _sweep(measured),
        _conditions(measured),
    ]
    return "\n\n".join(part for part in parts if part)


def _figures(measured: MeasuredTable, preset: Preset) -> str:
    def is_shown(row: str) -> bool:
        cells = (measured.cells[row, name] for name in measured.table.columns)
        return any(
            each.cell.paper is not None or each.values or each.reasons for each in cells
        )

    rows = [*filter(is_shown, measured.table.rows)]
    columns: dict[str, list[str]] = {}
    for name in measured.table.columns:
        cells = [measured.cells[row, name] for row in rows]
        printed = any(each.cell.paper is not None for each in cells)
        if printed:
            columns[f"{name}, paper"] = [
                DASH if each.cell.paper_dash else number(each.cell.paper)
                for each in cells
            ]
        columns[f"{name}, here" if printed else name] = [_shown(e) for e in cells]
        if printed and preset.paper_sizes and measured.label == preset.name:
            both = [None not in (each.value, each.cell.paper) for each in cells]
            columns[f"{name}, difference"] = [
                number(each.value - each.cell.paper, sign=True) if is_both else ""
                for each, is_both in zip(cells, both, strict=True)
            ]
    return _to_markdown(DataFrame(columns, index=rows))


def _to_markdown(frame: DataFrame) -> str:
    align = ("left", *["right"] * len(frame.columns))
    return frame.to_markdown(disable_numparse=True, colalign=align)


def _shown(each: Measured) -> str:
    if each.value is None:
        return DASH if each.reasons else ""
    return number(each.value) + plus_minus(each.value, each.deviation)


def _notes(measured: MeasuredTable) -> str:
    """Why there are dashes, and what figures are without."""
    found: dict[tuple[str, str], list[str]] = {}
    for (row, column), each in measured.cells.items():
        reasons = "; ".join(dict.fromkeys(each.reasons.values()))
        for text in (reasons if each.value is None else "", each.incomplete):
            if text:
                found.setdefault((row, text), []).append(column)
    lines = (f"* {row}, {', '.join(of)}: {why}" for (row, why), of in found.items())
    return "\n".join(lines)


def _order(measured: MeasuredTable, name: str) -> str:
    """Whether a column's rows are in the paper's order."""
    found = agreement(measured.column(name))
    if found is None:
        return ""
    pairs = len(found.disagreements)
    said = f"{pairs} of {comb(found.rows, 2)} pairs of rows are in another order"
    said += f", {len(found.ties)} equal" if found.ties else ""
    if found.spearman is not None:
        said += f"; Spearman {number(found.spearman)}, Kendall {number(found.kendall)}"
    elif found.is_within_error:
        said += "; no rank correlation within twice the standard error of the means"
    lines = [_pair(*pair) for pair in found.disagreements[:SHOWN_PAIRS]]
    lines += [f"* and {pairs - SHOWN_PAIRS} more pairs"] * (pairs > SHOWN_PAIRS)
    return f"**{name}**: {said}." + "\n\n" * bool(lines) + "\n".join(lines)


def _pair(one: Measured, other: Measured) -> str:
    printed = number(one.cell.paper - other.cell.paper, sign=True)
    found = number(one.minus(other), sign=True)
    noise = one.is_within_noise(other)
    said = "" if noise is None else f", {'within' if noise else 'beyond'} the deviation"
    return f"* {one.cell.row} - {other.cell.row}: paper {printed}, here {found}{said}"


def _sweep(measured: MeasuredTable) -> str:
    """Every value that was run; the figure above is that of the bold one."""
    lines = []
    for (row, column), cell in measured.cells.items():
        is_shown = len(cell.sweep) > 1 and measured.table.file.columns[column].ranked
        for value, each in cell.sweep.items() if is_shown else ():
            bold = "**" if value == cell.chosen and each.values else ""
            seeds = ", ".join(map(number, each.values.values()))
            seeds = seeds or "; ".join(each.reasons.values())
            line = row, column, value, f"{bold}{number(each.value)}{bold}", seeds
            lines.append(line)
    if not lines:
        return ""
    frame = DataFrame(lines, columns=["row", "column", "value", "mean", "seeds"])
    return "Sweep:\n\n" + _to_markdown(frame.set_index("row"))


def _conditions(measured: MeasuredTable) -> str:
    """What the runs have in common, and in what compared ones differ."""
    rows = measured.rows
    settings = [measured.settings.get(each, {}) for each in rows["config"].unique()]
    keys = {key for each in settings for key in each if not key.startswith(NOT_SHOWN)}
    common = [
        f"{key}={plain(settings[0][key])}"
        for key in sorted({*keys, *OF_MODELS})
        if len({str(each.get(key)) for each in settings}) == 1
        and settings[0].get(key) is not None
    ]
    updates = sorted(rows["updates"].dropna())
    ends = dict.fromkeys(f"{each:,.0f}" for each in updates[:1] + updates[-1:])
    lines = {"updates": " to ".join(ends), "data": _all(rows["data"])}
    lines["seeds"] = ", ".join(map(str, sorted(rows["seed"].unique())))
    for key in ("device", "machine", "commit", "versions"):
        lines[key] = _all(rows[key])
    lines["settings"] = f"`{' '.join(common)}`" if common else ""
    shown = [f"* {name}: {text}" for name, text in lines.items() if text]
    for column in measured.table.columns:
        for key, values in unequal(measured, measured.column(column)).items():
            names = {v: ", ".join(Path(r).name for r in of) for v, of in values.items()}
            said = "; ".join(f"{value} ({runs})" for value, runs in names.items())
            shown.append(f"* **not equal**, `{key}`: {said}")
    started = rows[rows["weights"] != ""].groupby(["row", "seed", "sweep"], sort=False)
    for (row, seed, _), some in started:
        of = some.groupby("weights", sort=False)["column"].unique()
        if len(of) > 1:
            said = "; ".join(f"{x[:8]} ({', '.join(names)})" for x, names in of.items())
            shown.append(f"* **not equal**, weights of {row}, seed {seed}: {said}")
    return "\n".join(dict.fromkeys(shown))


def _all(texts: Iterable[str]) -> str:
    parts = {part for each in texts for part in each.split("; ")}
    return "; ".join(sorted(parts - {""}))


def draw(measured: MeasuredTable, recorded: DataFrame, folder: Path) -> list[Path]:
    """The pictures of a table that has more than a figure can say without."""
    title = f"{measured.table.file.title}, preset {measured.label}"
    target = folder / f"{measured.table.name}.png"
    axis, (unit, better) = measured.table.file.column_axis, _unit(measured)
    y_log = "" if better == "higher" else "y"
    if axis:
        lines, log = _over_columns(measured), "x"
    elif swept := _swept(measured):
        (axis, lines), log = swept, f"x{y_log}"
    elif lines := _learning_curves(measured, recorded):
        axis, log = "update", y_log
    else:
        return []
    bottom = None if "y" in log else 0
    panel = Panel(x=axis, y=unit, log=log, better=better, bottom=bottom)
    for name, points in lines.items():
        x, y, _ = zip(*sorted(points), strict=True)
        panel.add(name, x, y, marker=".")
        seeds = [(x, each) for x, _, of in points for each in of if len(of) > 1]
        dots = {"linestyle": "", "marker": "_", "markersize": 6}
        if seeds:
            panel.add(name, *zip(*seeds, strict=True), **dots)
    curves([panel], target, title=title)
    return [target]


def _over_columns(measured: MeasuredTable) -> Lines:
    lines: Lines = {}
    for (row, column), each in measured.cells.items():
        if each.value is not None:
            point = float(column), each.value, [*each.values.values()]
            lines.setdefault(row, []).append(point)
    return lines


def _swept(measured: MeasuredTable) -> tuple[str, Lines] | None:
    """The first column over one key of its sweep; None without two, all numbers."""
    lines: Lines = {}
    axis = ""
    for each in measured.column(measured.table.columns[0]):
        for value, found in each.sweep.items() if len(each.sweep) > 1 else ():
            key, *others = value.split()
            axis, _, place = key.partition("=")
            is_nan = any("nan" in why for why in found.reasons.values())
            mean = inf if found.value is None and is_nan else found.value
            if mean is not None:
                try:
                    point = float(place), mean, [*found.values.values()]
                except ValueError:
                    return None
                lines.setdefault(" ".join([each.cell.row, *others]), []).append(point)
    lines = {name: points for name, points in lines.items() if len(points) > 1}
    return (axis, lines) if lines else None


def _learning_curves(measured: MeasuredTable, curves: DataFrame) -> Lines:
    """Validations of the rows' first seeds, of what the first column measures."""
    name = measured.table.columns[0]
    kind = measured.table.file.columns[name].metric or ""
    metric = f"valid_{kind.partition('_')[2].rstrip('0123456789_')}"
    curves = curves[curves["metric"] == metric]
    lines: Lines = {}
    for each in measured.column(name):
        rows = each.rows[each.rows["sweep"] == each.chosen].sort_values("seed")
        its = curves.merge(rows[RUN][:1])
        if len(its) >= FEWEST_POINTS and each.value is not None:
            updates = its["updates"].astype(float)
            points = ((*each, []) for each in zip(updates, its["value"], strict=True))
            lines[each.cell.row] = [*points]
    return lines if 2 <= len(lines) <= MOST_CURVES else {}


def _unit(measured: MeasuredTable) -> tuple[str, str]:
    metric = measured.column(measured.table.columns[0])[0].cell.metric
    if found := SPEED_METRIC.fullmatch(metric):
        return SPEED_UNITS.get(found[3], ("times as fast", "higher"))
    if metric in UNITS:  # of no split
        return UNITS[metric]
    split, _, name = metric.partition("_")
    unit, better = UNITS.get(name.rstrip("0123456789_"), (metric, ""))
    return f"{'test' if split == 'test' else 'validation'} {unit}", better
