"""Losses of the same trainings in several precisions, against the noise of fp32.

    python -m fairseq_transnormer analyse precision_curves runs/precision \\
        --json results/precision/curves.json --plot results/precision/curves.png

A folder below with a training's config.yaml and a log is a run, finished or under way.
The noise is the standard deviation of fp32 over seeds. A precision is compared with
fp32 of the same seed, so of the same batches, at the last update that all of them have.
"""

import argparse
import math
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from ..data.whole_files import write_json
from ..cli import command_parser, output_file, run_command
from .figures import image_file, pyplot, save
from .run_curves import series
from .training_log import Records, read_training_log

PRECISIONS = ("fp32", "bf16", "fp16", "bf16 memory-efficient", "fp16 memory-efficient")
PRECISIONS += ("amp",)
# curve -> where the log has it, and its last updates, whose mean is compared
CURVES = {"loss": ("train_inner", 100), "valid_loss": ("valid", 1)}
# in which trainings of several precisions and seeds differ, and those resumed elsewhere
MAY_DIFFER = ("common.", "task.seed", "task.data", "distributed_training.")
MAY_DIFFER += ("dataset.num_workers", "checkpoint.save_dir")
Run = tuple[str, str, int]  # model, precision, seed
Curves = dict[str, Any]  # name -> DataFrame of losses: updates, and a column a Run


def read_runs(folder: Path) -> Curves:
    """Curves of all runs below ``folder`` that have logged an update; NaN is infinite.

    Raises:
        ValueError: there is none, or two of one model that are not of one experiment.
    """
    from pandas import DataFrame, Series

    found: dict[Run, tuple[Path, Records]] = {}
    experiments: dict[str, tuple[Path, dict]] = {}
    for file in sorted(folder.rglob("config.yaml")):
        try:
            log = read_training_log(file.parent)
        except ValueError:  # not begun
            continue
        try:
            run, ours = _described(yaml.safe_load(file.read_text(encoding="utf-8")))
        except (yaml.YAMLError, KeyError, TypeError, AttributeError) as error:
            told = f"{file}: {type(error).__name__}: {' '.join(str(error).split())}"
            allowed = "allowed: the whole configuration of a training"
            raise ValueError(f"{told}; {allowed}") from error
        first, theirs = experiments.setdefault(run[0], (file, ours))
        for key in sorted(ours | theirs):
            if ours.get(key) != theirs.get(key):
                raise ValueError(
                    f"{file}: {key}={ours.get(key)!r}, and {theirs.get(key)!r} in "
                    f"{first}; allowed: runs of one experiment"
                )
        if run in found:
            told = f"{file} and {found[run][0]}: {run[1]} with seed {run[2]} twice"
            raise ValueError(f"{told}; allowed: each precision and seed once")
        found[run] = file, log
    if not found:
        raise ValueError(f"{folder}: no runs in it; allowed: what train has written")
    runs = sorted(found, key=lambda run: (run[0], PRECISIONS.index(run[1]), run[2]))
    curves = {}
    for name, (kind, _) in CURVES.items():
        columns = {}
        for run in runs:
            updates, losses = series(found[run][1][kind], name)
            columns[run] = Series(losses, updates, dtype=float).fillna(math.inf)
        curves[name] = DataFrame(columns).sort_index()
    return curves


def _described(configuration: dict) -> tuple[Run, dict]:
    """Model, precision and seed, and the settings in which compared runs agree."""
    model, common = configuration["model"]["_name"], configuration["common"]
    half = next((name for name in ("fp16", "bf16", "amp") if common[name]), "fp32")
    efficient = " memory-efficient" if common.get(f"memory_efficient_{half}") else ""
    settings = {
        f"{name}.{key}": value
        for name, group in configuration.items()
        for key, value in (group or {}).items()
        if not f"{name}.{key}".startswith(MAY_DIFFER)
    }
    return (model, half + efficient, common["seed"]), settings


@np.errstate(all="ignore")  # of infinite losses
def compare(curves: Curves) -> list[dict]:
    """A row for each model and precision: losses, and differences in units of noise.

    Differences are means over the seeds that fp32 has, too. NaN is what needs a run, or
    a second seed of fp32, that is not there.
    """
    rows = []
    for model, precision in dict.fromkeys(run[:2] for run in curves["loss"]):
        own = curves["loss"][model][precision]
        row = {"model": model, "precision": precision, "seeds": own.shape[1]}
        row["finite"] = not np.isinf(own).any(axis=None)
        for name, (_, count) in CURVES.items():
            table = curves[name][model]
            both = table.loc[:, table.columns.isin((precision, "fp32"), 0)].dropna()
            last = max(both.index, default=0)
            ends = both[both.index > last - count].mean().unstack(0)
            ours, fp32 = ends[precision], ends.get("fp32", ends[precision] * np.nan)
            above, noise = (ours - fp32).mean(), fp32.std()
            row |= {f"{name}_updates": last, name: ours.mean()}
            row[f"{name}_minus_fp32"] = above
            row |= {f"{name}_noise": noise, f"{name}_in_noise": above / noise}
        rows.append(row)
    return rows


def plot(curves: Curves, target: Path) -> None:
    """Above the losses of all runs, below what they are above fp32 of the same seed."""
    losses = curves["loss"]
    models = [*losses.columns.unique(0)]
    options = {"figsize": (4.2 * len(models), 7), "sharex": True, "sharey": "row"}
    options |= {"squeeze": False, "layout": "constrained"}
    figure, grid = pyplot().subplots(2, len(models), **options)
    lines: dict[str, Any] = {}
    for (model, precision, seed), run in losses.items():
        above, below = grid[:, models.index(model)]
        number = PRECISIONS.index(precision)
        style = {"color": f"C{number - 1}" if number else "0.6", "lw": 1.2}
        lines.setdefault(precision, *above.plot(run.dropna(), **style))
        # of fp32 itself, how far the other seeds are from the first
        against = seed if number else losses[model]["fp32"].columns[0]
        plain = losses.get((model, "fp32", against), np.nan)
        below.plot((run - plain).dropna(), **style)
        above.set(title=model)
        below.set(xlabel="update")
    grid[0, 0].set_ylabel("training loss (bits a token)")
    grid[1, 0].set_ylabel("minus fp32 of the same seed\n(grey: other seeds)")
    figure.legend(lines.values(), lines, loc="outside lower center", ncols=5)
    save(figure, target)


def main(argv: list[str] | None = None) -> int:
    """Command line; returns the exit code."""
    parser = command_parser("fairseq_transnormer analyse precision_curves", __doc__)
    parser.add_argument("folder", type=Path, help="that has the runs below it")
    parser.add_argument("--json", type=output_file, required=True, help="file to make")
    parser.add_argument("--plot", type=image_file, required=True, help="image to make")
    options = parser.parse_args(argv)
    return run_command(parser.prog, lambda: _run(options))


def _run(options: argparse.Namespace) -> None:
    curves = read_runs(options.folder)
    rows = compare(curves)
    runs = {
        name: {" ".join(map(str, run)): table[run].dropna().to_dict() for run in table}
        for name, table in curves.items()
    }
    write_json(options.json, {"rows": rows} | runs, indent=None)
    print(f"| {' | '.join(rows[0])} |\n" + "|---" * len(rows[0]) + "|")
    for row in rows:
        cells = (f"{v:.3f}" if isinstance(v, float) else str(v) for v in row.values())
        print(f"| {' | '.join(cells)} |")
    plot(curves, options.plot)
