"""Relative standard deviation of training gradients (Table 2), from recorded series.

    python -m fairseq_transnormer analyse gradient_statistics \\
        T1=runs/alm_t1/gradient_statistics.jsonl \\
        T2=runs/alm_t2/gradient_statistics.jsonl --plot gradients.png

docs/analyses.md has the definition, and how a run records its gradients.
"""

from __future__ import annotations

import argparse
import csv
import json
import re
from dataclasses import dataclass
from pathlib import Path

import numpy

from ..argument_types import positive_integer
from ..data.whole_files import write_json
from ..cli import command_parser, output_file, run_command
from .figures import image_file, named_paths, pyplot, save

ATTENTION = re.compile(r"(?:^|\.)layers\.(\d+)\..*\b(q|k|v|out)_proj\.")


@dataclass
class GradientSeries:
    """What a run recorded.

    Attributes:
        sizes: parameter tensor -> its number of entries.
        updates: (T,) int64, ascending.
        norms, means: (T, parameters) float64, of each tensor's gradient.
    """

    sizes: dict[str, int]
    updates: numpy.ndarray
    norms: numpy.ndarray
    means: numpy.ndarray

    def norm_of(self, pattern: str | re.Pattern = "") -> numpy.ndarray:
        """(T,): norm of the gradient of all tensors whose name has ``pattern``."""
        chosen = [re.search(pattern, name) is not None for name in self.sizes]
        return numpy.sqrt(numpy.square(self.norms[:, chosen]).sum(1))

    def deviations(self) -> numpy.ndarray:
        """(T, parameters): standard deviation of the entries of each gradient."""
        entries = numpy.array(list(self.sizes.values()))
        second_moment = numpy.square(self.norms) / entries
        return numpy.sqrt(numpy.maximum(second_moment - numpy.square(self.means), 0))

    def between(self, first: int, last: int | None = None) -> GradientSeries:
        """The updates first ... last, by default to the end."""
        chosen = self.updates >= first
        if last is not None:
            chosen &= self.updates <= last
        return GradientSeries(
            self.sizes, self.updates[chosen], self.norms[chosen], self.means[chosen]
        )


def read_gradient_series(path: str | Path) -> GradientSeries:
    """Read what ``gradient_statistics`` of a model recorded.

    A half-written last line, of a run that continues or was killed, is left out; of
    two lines of an update, as of files put together, the later one counts.

    Raises:
        ValueError: the file is not of this kind, or has no update.
    """
    rows = {}
    try:
        with Path(path).open(encoding="utf-8") as lines:
            sizes = json.loads(next(lines))["parameters"]
            for line in lines:
                if not line.endswith("\n"):
                    break
                row = json.loads(line)
                if not len(row["norm"]) == len(row["mean"]) == len(sizes):
                    raise ValueError("a line of other parameters")
                rows[row["update"]] = row["norm"], row["mean"]
        updates = sorted(rows)
        norms, means = zip(*(rows[update] for update in updates), strict=True)
        return GradientSeries(
            sizes, numpy.array(updates), numpy.array(norms), numpy.array(means)
        )
    except (StopIteration, KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"{path}: no series of gradients; allowed: files that a run with "
            "gradient_statistics=FILE has written"
        ) from error


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


def plot(series: dict[str, GradientSeries], target: Path) -> None:
    """Draw each run's gradient norm, and the norm over its mean, by update."""
    figure, (left, right) = pyplot().subplots(
        1, 2, figsize=(11, 4), layout="constrained"
    )
    norms = {name: each.norm_of() for name, each in series.items()}
    relative = {name: norm / norm.mean() for name, norm in norms.items()}
    bins = numpy.linspace(0, max(each.max() for each in relative.values()), 80)
    for name, each in series.items():
        left.plot(each.updates, norms[name], linewidth=0.8, label=name)
        deviation = relative_standard_deviation(norms[name])
        label = f"{name}: {deviation:.3f}"
        right.hist(relative[name], bins, histtype="step", label=label)
    left.set(xlabel="update", ylabel="norm of the gradient", yscale="log")
    right.set(xlabel="norm over its mean", ylabel="updates", yscale="log")
    left.legend()
    right.legend(title="relative standard deviation")
    for axes in (left, right):
        axes.grid(alpha=0.3)
    save(figure, target)


def write_norms(series: dict[str, GradientSeries], target: Path) -> None:
    """The norm of the whole gradient as a table: a row an update, a column a run."""
    norms = {
        name: dict(zip(each.updates.tolist(), each.norm_of().tolist(), strict=True))
        for name, each in series.items()
    }
    target.parent.mkdir(parents=True, exist_ok=True)
    with open(target, "w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["update", *norms])
        for update in sorted({u for each in norms.values() for u in each}):
            cells = [each.get(update) for each in norms.values()]
            table.writerow([update, *("" if x is None else f"{x:.5g}" for x in cells)])


def main(argv: list[str] | None = None) -> int:
    """Command line; returns the exit code."""
    parser = command_parser("fairseq_transnormer analyse gradient_statistics", __doc__)
    parser.add_argument("files", nargs="+", metavar="[NAME=]FILE", help="of a run each")
    parser.add_argument(
        "--first", type=positive_integer, default=1, help="first update counted"
    )
    parser.add_argument("--last", type=positive_integer, help="last update counted")
    parser.add_argument("--plot", type=image_file, help="image to make")
    parser.add_argument("--json", type=output_file, help="file for the numbers")
    help_text = "file for the norm of the whole gradient at each update"
    parser.add_argument(
        "--series", type=output_file, metavar="FILE.csv", help=help_text
    )
    options = parser.parse_args(argv)
    return run_command(parser.prog, lambda: _run(options))


def _run(options: argparse.Namespace) -> None:
    series = {}
    for name, path in named_paths(options.files).items():
        read = read_gradient_series(path).between(options.first, options.last)
        if not len(read.updates):
            raise ValueError(
                f"--first {options.first} --last {options.last}: {path} has no "
                "update there"
            )
        series[name] = read
    summaries = {name: summarise(each) for name, each in series.items()}
    names = list(next(iter(summaries.values())))
    width = max(map(len, names))
    print(f"| {'':<{width}} | {' | '.join(summaries)} |")
    print(f"|{'-' * (width + 2)}|{'---|' * len(summaries)}")
    for key in names:
        cells = [_shown(each[key]) for each in summaries.values()]
        print(f"| {key:<{width}} | {' | '.join(cells)} |")
    if options.json is not None:
        runs = {
            name: summaries[name] | {"per_layer": per_layer(series[name])}
            for name in series
        }
        write_json(options.json, runs)
    if options.series is not None:
        write_norms(series, options.series)
    if options.plot is not None:
        plot(series, options.plot)


def _shown(value: float | int | None) -> str:
    if value is None:
        return "-"
    return f"{value:.4f}" if isinstance(value, float) else str(value)
