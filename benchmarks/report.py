"""The page of the benchmarks: pivots of the rows in their JSON files."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy
from pandas import DataFrame, isna

from fairseq_transnormer.analysis.figures import Panel, curves
from fairseq_transnormer.data.whole_files import write_text
from fairseq_transnormer.outputs import markdown

TITLE = "# Benchmarks"
# ops whose cost depends on the number of tokens alone
TOKENWISE = ("rms_norm", "gated_silu", "feature_map_and_lrpe")


def plain(value: float) -> str:
    """Three digits that count, "1230" and not "1.23e+03"."""
    number = f"{value:.3g}"
    return f"{float(number):.0f}" if "e+" in number else number


def thousands(value: float) -> str:
    """Three digits that count of a large number, e.g. "81,200"."""
    return f"{float(f'{value:.3g}'):,.0f}"


def size(count: float) -> str:
    """Bytes, in the largest fitting unit."""
    units = ["B", "KiB", "MiB", "GiB"]
    while count >= 1024 and len(units) > 1:
        count /= 1024
        units.pop(0)
    return f"{plain(count)} {units[0]}"


def table(rows: Iterable[dict[str, object]]) -> str:
    """Markdown of rows with the same keys; the first column is text."""
    rows = list(rows)
    return markdown([*rows[0]], ([*row.values()] for row in rows))


class View(NamedTuple):
    """A pivot of a run's rows: a table of the page.

    value: column of the rows, of ``frame``. columns: the column that varies to the
    right. only: what rows must have. by: a table for each of its values. spread:
    whether quartiles are shown. drawn: whether it is a panel of the run's picture.
    """

    title: str
    value: str
    shown: Callable[[float], str] = plain
    columns: str = "length"
    index: str = "provider"
    only: dict[str, object] = {}
    by: tuple[str, ...] = ()
    spread: bool = False
    drawn: bool = False


def pivot(rows: DataFrame, view: View) -> DataFrame:
    """Values: a line for each of ``index`` as measured, a column a place, sorted."""
    found = rows.pivot(index=view.index, columns=view.columns, values=view.value)
    return found.reindex(rows[view.index].unique()).dropna(how="all")


def frame(run: dict) -> DataFrame:
    """A row a case: median and quartiles of its seconds as milliseconds, and what
    follows from them. What was left out has NaN in the place of values."""
    rows = DataFrame(run["measurements"])
    for name in ("seconds", "peak_bytes", "kept_bytes", "batch", "length", "tokens"):
        if name not in rows:
            rows[name] = numpy.nan
    names, tokens = [*_spread("time")], rows.tokens.fillna(rows.batch * rows.length)
    rows[names] = [_quartiles(1e3, each) for each in rows.seconds]
    images = [
        _quartiles(n, x, -1) for n, x in zip(rows.batch, rows.seconds, strict=True)
    ]
    rows[[*_spread("images")]] = images
    for kind, work in (("rate", tokens), ("steps", 1.0)):
        for name, time in zip(_spread(kind), (names[0], *names[:0:-1]), strict=True):
            rows[name] = 1e3 * work / rows[time]
    rows["kept_bytes"] = rows.kept_bytes.where(rows.kept_bytes > 0)
    rows[[*_spread("time_each")]] = rows[names].div(rows.batch, axis=0)
    rows["peak_bytes_each"] = rows.peak_bytes / rows.batch
    if "op" in rows:
        _describe_ops(rows, run["settings"].get("copy_bandwidth"))
    return rows


def _spread(name: str) -> tuple[str, str, str]:
    """Columns of a median and both quartiles."""
    return name, f"{name}_lower", f"{name}_upper"


def _quartiles(factor: float, samples: object, power: int = 1) -> numpy.ndarray:
    """The median and both quartiles of factor * sample^power; NaN without samples."""
    if not isinstance(samples, list):
        return numpy.full(3, numpy.nan)
    return numpy.quantile(factor * numpy.power(samples, power), (0.5, 0.25, 0.75))


def _describe_ops(rows: DataFrame, bandwidth: float | None) -> None:
    """Names, places and shares of the bandwidth of rows of ``benchmarks ops``.

    Italics: computes something else at the same shape.
    """
    for i, row in rows.iterrows():
        mark = "*" if row.get("same") is False else ""
        wrong = " (WRONG)" if row.get("wrong") is True else ""
        rows.loc[i, "provider"] = f"{mark}{row.provider}{mark}{wrong}"
        rows.loc[i, "op"] = ", ".join(filter(None, (row.op, row.variant)))
        if row.op in TOKENWISE:
            rows.loc[i, "length"] = row.batch * row.length
    rows["shared"] = [
        numpy.nan
        if math.isnan(ms)
        else f"{1e3 * moved / ms / bandwidth:.0%} ({plain(ms)})"
        if bandwidth
        else plain(ms)
        for moved, ms in zip(rows.get("least_bytes", rows.time), rows.time, strict=True)
    ]


def cells(rows: DataFrame, view: View) -> list[dict[str, object]]:
    """A view's table, as rows of text; none where nothing was measured."""
    middle, bounds = pivot(rows, view), []
    if view.spread:
        bounds = [
            pivot(rows, view._replace(value=end)) for end in _spread(view.value)[1:]
        ]
    found = []
    for name, line in middle.iterrows():
        found.append({view.columns: name})
        for place, value in line.items():
            text = "-" if isna(value) else view.shown(value)
            if bounds and text != "-":
                between = (view.shown(each.loc[name, place]) for each in bounds)
                text += f" ({'-'.join(between)})"
            found[-1][f"{place:,.0f}"] = text
    return found


_CONTEXT = {"columns": "context"}
_OPS = {"by": ("op", "mode", "timing")}
_SWEEP = {"by": ("sweep", "mode")}
_TIME = ("milliseconds, median (quartiles)", "time")
_KEPT = ("kept between tokens", "kept_bytes", size)
VIEWS: dict[str, list[View]] = {
    "attention_lengths": [
        View("milliseconds of a sequence, median (quartiles)", "time_each", spread=True,
             drawn=True),
        View("peak memory of a sequence", "peak_bytes_each", size, drawn=True),
    ],
    "generation_cost": [
        View(*_TIME, spread=True, **_CONTEXT, only={"phase": "one token"}),
        View(*_KEPT, only={"phase": "one token"}, **_CONTEXT),
    ],
    "image_generation": [
        View("images a second, median (quartiles)", "images", spread=True, **_CONTEXT),
        View("kept of an image between two pixels", "kept_bytes", size, **_CONTEXT),
    ],
    "linear_attention_forms": [
        View(*_TIME, spread=True, only={"sweep": "batch 1"}, **_SWEEP),
        View("peak memory", "peak_bytes", size, only={"sweep": "batch 1"}, **_SWEEP),
        View(*_TIME, columns="width", spread=True, only={"sweep": "width"}, **_SWEEP),
    ],
    "lra_speed": [
        View("steps a second, median", "steps", by=("phase",)),
        View("peak memory", "peak_bytes", size, by=("phase",)),
    ],
    "ops": [
        View("share of the bandwidth (milliseconds, median)", "shared", str, **_OPS),
        View("peak memory beyond the inputs", "peak_bytes", size, by=("op", "mode"),
             only={"timing": "launched"}),
    ],
    "token_cost": [
        View("milliseconds of a token, median (quartiles)", "time", spread=True,
             drawn=True, **_CONTEXT),
        View(*_KEPT, drawn=True, **_CONTEXT),
    ],
    "training_step": [
        View("tokens a second, median (quartiles)", "rate", thousands, by=("part",),
             spread=True),
        View("peak memory beyond weights and Adam's sums", "peak_bytes", size,
             by=("part",)),
    ],
    "update_cost": [
        View("tokens a second, median (quartiles)", "rate", thousands, columns="tokens",
             by=("length",), spread=True),
        View("peak memory beyond weights and Adam's sums", "peak_bytes", size,
             columns="tokens", by=("length",)),
    ],
}  # fmt: skip


def views_of(run: dict) -> Iterator[tuple[str, DataFrame, View]]:
    """Heading, rows and view of each table that has something."""
    rows = frame(run)
    for view in VIEWS[run["benchmark"]]:
        chosen = rows
        for name, value in view.only.items():
            # rows that were all left out have no such column
            chosen = chosen[chosen[name] == value] if name in chosen else chosen[:0]
        by = [name for name in view.by if name in chosen]
        groups = chosen.groupby(by, sort=False) if by else [((), chosen)]
        for names, group in groups:
            if not pivot(group, view).empty:
                kinds = [
                    each if isinstance(each, str) else f"{name} {each:,.0f}"
                    for name, each in zip(by, names, strict=True)
                ]
                yield ", ".join([*kinds, view.title]), group, view


def section(name: str, run: dict, folder: Path) -> list[str]:
    """A run's part of the page; its picture, if any, is drawn into the folder."""
    environment, found = run["environment"], [*views_of(run)]
    drawn = [each for each in found if each[2].drawn]
    told = f"{environment['device']}, torch {environment['torch']}"
    if "capability" not in environment:
        told += f", {environment['threads']} CPU threads"
    parts = [
        f"## {name}: {environment['device']}",
        f"```\n{run['command']}\n```",
        f"{told}.",
    ]
    if drawn:
        draw(drawn, folder / f"{name}.png")
        parts.append(f"![{run['benchmark']}]({name}.png)")
    for heading, rows, view in found:
        parts += [f"**{heading}**", table(cells(rows, view))]
    if not run.get("complete", True):
        parts.append("**This run was cut off: not all of its rows are here.**")
    skipped: dict[str, dict[str, None]] = {}  # a limit or another reason -> names
    for row in run["measurements"]:
        if "skipped" in row:
            _, above, limit = row["skipped"].rpartition("above ")
            name = " ".join(filter(None, (row.get("op"), row["provider"])))
            skipped.setdefault(above + limit, {})[name] = None
    if skipped:
        lines = (f"- {why}: {'; '.join(names)}" for why, names in skipped.items())
        parts.append("Not measured at some places:\n\n" + "\n".join(lines))
    return parts


def draw(views: list[tuple[str, DataFrame, View]], path: Path) -> None:
    """Log-log lines over the places, a panel a view, as a PNG."""
    panels = []
    for heading, rows, view in views:
        unit, name = (2**20, "MiB") if "bytes" in view.value else (1, "ms")
        title, y = heading.removesuffix(" (quartiles)"), f"{name}, lower is better ↓"
        panel = Panel(title, view.columns, y, log="xy")
        for provider, line in pivot(rows, view).iterrows():
            line = line.dropna()
            panel.add(provider, line.index, line / unit, marker="o", markersize=4)
        panels.append(panel)
    curves(panels, path)


def runs_of(folders: Iterable[Path]) -> dict[str, dict]:
    """Name -> run of the JSON files. A file NAME.json of one run takes the place of the
    run of its name in a file of several. GPU's runs have the file's name first."""
    several, alone = {}, {}
    for folder in folders:
        for path in sorted(folder.glob("*.json")):
            try:
                content = dict(json.loads(path.read_text(encoding="utf-8")))
            except (ValueError, TypeError) as error:
                raise ValueError(f"{path} is no file of runs: {error}") from error
            if "benchmark" in content:
                if content["benchmark"] in VIEWS:
                    alone[path.stem] = content
                continue
            prefix = f"{path.stem}_" if folder.name == "gpu" else ""
            several |= {
                prefix + name: run
                for name, run in content.items()
                if isinstance(run, dict) and run.get("benchmark") in VIEWS
            }
    return dict(sorted((several | alone).items()))


def write_page(folder: Path) -> None:
    """The page and its pictures, of a folder's JSON files and of those of GPUs.

    Raises:
        ValueError: there are none, or the page would take the place of another one.
    """
    found = runs_of([folder, folder.parent / "gpu"])
    if not found:
        raise ValueError(f"--folder {folder} has no JSON file that the page shows")
    page = folder / "README.md"
    if page.exists() and not page.read_text(encoding="utf-8").startswith(TITLE):
        raise ValueError(f"{page} is another page")
    parts = [TITLE, "Made by `python -m benchmarks report` from the JSON files."]
    for name, run in found.items():
        parts += section(name, run, folder)
    write_text(page, "\n\n".join(parts) + "\n")
    print(f"report: wrote {page}")
