"""Table 2: the relative standard deviation of a training's gradients.

What a run recorded is a table of norms: a row an update, a column a parameter tensor.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import numpy

from ..data.whole_files import write_json
from ..outputs import NamedPaths, OutputFile, markdown
from .figures import ImageFile, Panel, curves

if TYPE_CHECKING:
    from pandas import DataFrame, Series

# feed-forward networks have an out_proj, too
ATTENTION = r"(?:^|\.)layers\.\d+\.(?!feed_forward\.).*\b(q|k|v|out)_proj\."


def read_gradient_series(path: str | Path, shortest: int = 0) -> DataFrame:
    """Read what ``gradient_statistics`` of a model recorded.

    A half-written last line, of a run that continues or was killed, is left out, and so
    are updates whose sequences have fewer than ``shortest`` tokens on average. Of two
    lines of an update, as of files put together, the later one counts.

    Returns:
        (T, parameters) float64: the norm of each tensor's gradient by update.

    Raises:
        ValueError: it has no such update, or ``shortest`` needs lengths that it lacks.
    """
    from pandas import DataFrame

    with Path(path).open(encoding="utf-8") as lines:
        sizes = json.loads(next(lines, "{}")).get("parameters", {})
        rows = [json.loads(line) for line in lines if line.endswith("\n")]
    if any(row.get("parameters", sizes) != sizes for row in rows):
        raise ValueError(f"{path}: its lines are of two models; allowed: of one")
    rows = [row for row in rows if "update" in row]
    if shortest:
        if not all("tokens" in row for row in rows):
            raise ValueError(f"{path} was recorded without lengths of its sequences")
        rows = [row for row in rows if row["tokens"] >= shortest * row["sequences"]]
    if not (rows and sizes):
        raise ValueError(f"{path}: no gradients of gradient_statistics, {shortest=}")
    norms = {row["update"]: row["norm"] for row in rows}
    return DataFrame(norms.values(), [*norms], [*sizes], dtype=float).sort_index()


def norm_of(norms: DataFrame, pattern: str = ".") -> Series:
    """(T,): norm of the gradient of all tensors whose name has ``pattern``."""
    return norms.filter(regex=pattern).pow(2).sum(axis=1).pow(0.5)


def relative_standard_deviation(series: Series) -> float:
    """Standard deviation divided by the mean."""
    return float(series.std(ddof=0) / series.mean())


def summarise(norms: DataFrame) -> dict[str, float | int | None]:
    """The number of Table 2, and what other readings of it give.

    Returns:
        updates, first_update, last_update, missing_updates: what was recorded;
        all_parameters: of the norm of the whole gradient (Table 2);
        attention: of the norm of all q, k, v and output projections' gradient;
        query, key, value, output: of one kind of projection;
        mean_over_tensors: mean over parameter tensors of that of each one's norm.
        None where a model has no such parameters.
    """
    first, last, count = int(norms.index[0]), int(norms.index[-1]), len(norms)
    summary: dict[str, float | int | None] = {"updates": count}
    summary |= {"first_update": first, "last_update": last}
    summary["missing_updates"] = last - first + 1 - count
    summary["all_parameters"] = relative_standard_deviation(norm_of(norms))
    kinds = {"attention": "q|k|v|out", "query": "q", "key": "k", "value": "v"}
    for name, kind in (kinds | {"output": "out"}).items():
        norm = norm_of(norms, ATTENTION.replace("q|k|v|out", kind))
        summary[name] = relative_standard_deviation(norm) if norm.any() else None
    # a tensor without any gradient, an unused one, has no deviation
    used = norms.loc[:, norms.any()]
    mean = float((used.std(ddof=0) / used.mean()).mean())
    return summary | {"mean_over_tensors": mean}


def panels_of(series: dict[str, Series]) -> list[Panel]:
    """Each run's gradient norm by update, and how often which share of its mean is."""
    by_update = Panel("", "update", "norm of the gradient", log="y")
    title = "relative standard deviation in brackets"
    counted = Panel(title, "norm over its mean", "updates", log="y")
    most = max((norm / norm.mean()).max() for norm in series.values())
    for name, norm in series.items():
        label = f"{name} ({relative_standard_deviation(norm):.3f})"
        by_update.add(label, norm.index, norm, linewidth=0.8)
        counts, edges = numpy.histogram(norm / norm.mean(), 80, (0, most))
        counted.add(label, edges[1:], counts, drawstyle="steps")
    return [by_update, counted]


def gradient_statistics(
    runs: NamedPaths,
    /,
    first: int = 1,
    last: int | None = None,
    shortest: int = 0,
    plot: ImageFile = None,
    output: OutputFile = None,
) -> None:
    """Relative standard deviation of recorded training gradients (Table 2).

        python -m fairseq_transnormer analyse gradient_statistics \\
            T1=runs/alm_t1/gradient_statistics.jsonl \\
            T2=runs/alm_t2/gradient_statistics.jsonl --plot gradients.png

    docs/reproduce.md has the definition, and how a run records its gradients.

    Args:
        runs: what each run recorded, with a name for it.
        first: first update that counts.
        last: last one; None: to the end.
        shortest: least mean length, in tokens, of an update's sequences.
        plot: image to make, PNG or PDF.
        output: JSON file for the numbers.
    """
    found = {}
    for name, path in runs.items():
        found[name] = read_gradient_series(path, shortest).loc[first:last]
        if found[name].empty:
            raise ValueError(f"{path} has no update from {first} to {last}")
    summaries = {name: summarise(each) for name, each in found.items()}
    keys = next(iter(summaries.values()))
    rows = ([k, *(_shown(each[k]) for each in summaries.values())] for k in keys)
    print(markdown(["", *summaries], rows))
    if output is not None:
        write_json(output, summaries)
    if plot is not None:
        curves(panels_of({name: norm_of(each) for name, each in found.items()}), plot)


def _shown(value: float | int | None) -> str:
    if value is None:
        return "-"
    return f"{value:.4f}" if isinstance(value, float) else str(value)
