"""Table 2: the relative standard deviation of a training's gradients."""

from __future__ import annotations

import csv
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy
import tyro

from ..data.whole_files import write_json
from ..outputs import OutputFile
from .figures import ImageFile, Panel, curves, named_paths

ATTENTION = re.compile(r"(?:^|\.)layers\.(\d+)\..*\b(q|k|v|out)_proj\.")


@dataclass
class GradientSeries:
    """What a run recorded.

    Attributes:
        sizes: parameter tensor -> its number of entries.
        updates: (T,) int64, ascending.
        norms: (T, parameters) float64, of each tensor's gradient.
    """

    sizes: dict[str, int]
    updates: numpy.ndarray
    norms: numpy.ndarray

    def norm_of(self, pattern: str | re.Pattern = "") -> numpy.ndarray:
        """(T,): norm of the gradient of all tensors whose name has ``pattern``."""
        chosen = [re.search(pattern, name) is not None for name in self.sizes]
        return numpy.sqrt(numpy.square(self.norms[:, chosen]).sum(1))

    def between(self, first: int, last: int | None = None) -> GradientSeries:
        """The updates first ... last, by default to the end."""
        chosen = self.updates >= first
        if last is not None:
            chosen &= self.updates <= last
        return GradientSeries(self.sizes, self.updates[chosen], self.norms[chosen])


def read_gradient_series(path: str | Path) -> GradientSeries:
    """Read what ``gradient_statistics`` of a model recorded.

    A half-written last line, of a run that continues or was killed, is left out; of
    two lines of an update, as of files put together, the later one counts.

    Raises:
        ValueError: it has no update.
    """
    rows = {}
    with Path(path).open(encoding="utf-8") as lines:
        sizes = json.loads(next(lines, "{}")).get("parameters", {})
        for line in lines:
            if line.endswith("\n"):
                row = json.loads(line)
                rows[row["update"]] = row["norm"]
    if not rows:
        raise ValueError(
            f"{path}: no gradients; give what a run with gradient_statistics=FILE has "
            "written"
        )
    updates = sorted(rows)
    norms = numpy.array([rows[update] for update in updates])
    return GradientSeries(sizes, numpy.array(updates), norms)


def relative_standard_deviation(series: numpy.ndarray) -> numpy.ndarray:
    """Standard deviation over the first axis divided by the mean over it."""
    return series.std(0) / series.mean(0)


def summarise(series: GradientSeries) -> dict[str, float | int]:
    """The number of Table 2, and what other readings of it give.

    Returns:
        updates, first_update, last_update, missing_updates: what was recorded;
        all_parameters: of the norm of the whole gradient (Table 2);
        attention: of the norm of all q, k, v and output projections' gradient;
        query, key, value, output: of one kind of projection;
        mean_over_tensors: mean over parameter tensors of that of each one's norm.
        None where a model has no such parameters.
    """
    first, last = int(series.updates[0]), int(series.updates[-1])
    summary = {
        "updates": len(series.updates),
        "first_update": first,
        "last_update": last,
        "missing_updates": last - first + 1 - len(series.updates),
        "all_parameters": float(relative_standard_deviation(series.norm_of())),
    }
    kinds = {"attention": "q|k|v|out", "query": "q", "key": "k", "value": "v"}
    for name, kind in (kinds | {"output": "out"}).items():
        pattern = ATTENTION.pattern.replace("q|k|v|out", kind)
        norm = series.norm_of(pattern)
        summary[name] = float(relative_standard_deviation(norm)) if norm.any() else None
    # a tensor without any gradient, an unused one, has no deviation
    used = series.norms.any(0)
    each = relative_standard_deviation(series.norms[:, used])
    return summary | {"mean_over_tensors": float(each.mean())}


def per_layer(series: GradientSeries) -> dict[str, float]:
    """ "layers.0 q" ... -> relative standard deviation of that projection's norm."""
    found = {
        (int(match[1]), match[2])
        for match in map(ATTENTION.search, series.sizes)
        if match is not None
    }
    return {
        f"layers.{layer} {kind}": float(
            relative_standard_deviation(
                series.norm_of(rf"(?:^|\.)layers\.{layer}\..*\b{kind}_proj\.")
            )
        )
        for layer, kind in sorted(found)
    }


def panels_of(series: dict[str, GradientSeries]) -> list[Panel]:
    """Each run's gradient norm by update, and how often which share of its mean is."""
    by_update = Panel("", "update", "norm of the gradient", log="y")
    title = "relative standard deviation"
    counted = Panel(title, "norm over its mean", "updates", log="y")
    norms = {name: each.norm_of() for name, each in series.items()}
    most = max((norm / norm.mean()).max() for norm in norms.values())
    for name, norm in norms.items():
        by_update.add(name, series[name].updates, norm, linewidth=0.8)
        counts, edges = numpy.histogram(norm / norm.mean(), 80, (0, most))
        label = f"{name}: {relative_standard_deviation(norm):.3f}"
        counted.add(label, edges[1:], counts, drawstyle="steps")
    return [by_update, counted]


def write_norms(series: dict[str, GradientSeries], target: Path) -> None:
    """The norm of the whole gradient as a table: a row an update, a column a run."""
    norms = {
        name: dict(zip(each.updates.tolist(), each.norm_of().tolist(), strict=True))
        for name, each in series.items()
    }
    with open(target, "w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["update", *norms])
        for update in sorted({u for each in norms.values() for u in each}):
            cells = [each.get(update) for each in norms.values()]
            table.writerow([update, *("" if x is None else f"{x:.5g}" for x in cells)])


def gradient_statistics(
    runs: Annotated[tuple[str, ...], tyro.conf.arg(metavar="[NAME=]FILE ...")],
    /,
    first: int = 1,
    last: int | None = None,
    plot: ImageFile = None,
    output: OutputFile = None,
    series: OutputFile = None,
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
        plot: image to make, PNG or PDF.
        output: JSON file for the numbers.
        series: CSV file for the norm of the whole gradient at each update.
    """
    found = {}
    for name, path in named_paths(runs).items():
        found[name] = read_gradient_series(path).between(first, last)
        if not len(found[name].updates):
            raise ValueError(f"{path} has no update from {first} to {last}")
    summaries = {name: summarise(each) for name, each in found.items()}
    print(f"| | {' | '.join(summaries)} |\n|---|{'--:|' * len(summaries)}")
    for key in next(iter(summaries.values()), ()):
        cells = [_shown(each[key]) for each in summaries.values()]
        print(f"| {key} | {' | '.join(cells)} |")
    if output is not None:
        numbers = {
            name: summaries[name] | {"per_layer": per_layer(found[name])}
            for name in found
        }
        write_json(output, numbers)
    if series is not None:
        write_norms(found, series)
    if plot is not None:
        curves(panels_of(found), plot)


def _shown(value: float | int | None) -> str:
    if value is None:
        return "-"
    return f"{value:.4f}" if isinstance(value, float) else str(value)
