"""Losses of the same trainings in several precisions."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from ..data.whole_files import write_json
from ..outputs import OutputFile, markdown
from .figures import ImageFile, Panel, curves
from .training_log import Records, read_training_log, series

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

    found: dict[Run, Records] = {}
    experiments: dict[str, dict] = {}
    for file in sorted(folder.rglob("config.yaml")):
        try:
            log = read_training_log(file.parent)
        except (OSError, ValueError):  # not begun
            continue
        run, ours = _described(yaml.safe_load(file.read_text(encoding="utf-8")))
        theirs = experiments.setdefault(run[0], ours)
        if keys := [k for k in ours | theirs if ours.get(k) != theirs.get(k)]:
            raise ValueError(f"{file}: another experiment, by {', '.join(keys)}")
        if run in found:
            raise ValueError(f"{file}: {run[1]} with seed {run[2]} twice")
        found[run] = log
    if not found:
        raise ValueError(f"{folder}: no runs that train has written")
    runs = sorted(found, key=lambda run: (run[0], PRECISIONS.index(run[1]), run[2]))

    def column(run: Run, kind: str, name: str) -> Series:
        updates, losses = series(found[run][kind], name)
        return Series(losses, updates, dtype=float).fillna(math.inf)

    return {
        name: DataFrame({run: column(run, kind, name) for run in runs}).sort_index()
        for name, (kind, _) in CURVES.items()
    }


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
def compare(found: Curves) -> list[dict]:
    """A row for each model and precision: losses, and differences in units of noise.

    Differences are means over the seeds that fp32 has, too. NaN is what needs a run, or
    a second seed of fp32, that is not there.
    """
    rows = []
    for model, precision in dict.fromkeys(run[:2] for run in found["loss"]):
        own = found["loss"][model][precision]
        row = {"model": model, "precision": precision, "seeds": own.shape[1]}
        row["finite"] = not np.isinf(own).any(axis=None)
        for name, (_, count) in CURVES.items():
            table = found[name][model]
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


def panels_of(losses: Any) -> list[Panel]:
    """The losses of a model's runs, and below what they are above fp32 of the seed."""
    models = [*losses.columns.unique(0)]
    y = "training loss (bits a token)"
    above = {model: Panel(model, y=y, better="lower") for model in models}
    y = "minus fp32 of the same seed\n(grey: other seeds)"
    below = {model: Panel(x="update", y=y) for model in models}
    for (model, precision, seed), run in losses.items():
        number = PRECISIONS.index(precision)
        look = {"color": f"C{number - 1}" if number else "0.6"}
        look |= {"linewidth": 1.2 if number else 2.5}
        own = run.dropna()
        above[model].add(precision, own.index, own, **look)
        # of fp32 itself, how far the other seeds are from the first
        against = seed if number else losses[model]["fp32"].columns[0]
        plain = losses.get((model, "fp32", against), np.nan)
        difference = (run - plain).dropna()
        below[model].add(precision, difference.index, difference, **look)
    return [*above.values(), *below.values()]


def precision_curves(
    folder: Path, /, output: OutputFile = None, plot: ImageFile = None
) -> None:
    """Losses of the same trainings in several precisions, against the noise of fp32.

        python -m fairseq_transnormer analyse precision_curves runs/precision \\
            --output results/precision/curves.json --plot results/precision/curves.png

    A folder below with a training's config.yaml and a log is a run, finished or under
    way. The noise is the standard deviation of fp32 over seeds. A precision is compared
    with fp32 of the same seed, so of the same batches, at the last update that all of
    them have.

    Args:
        folder: that has the runs below it.
        output: JSON file for the curves.
        plot: image to make, PNG or PDF.
    """
    found = read_runs(folder)
    rows = compare(found)
    cells = (
        [f"{x:.3f}" if isinstance(x, float) else x for x in row.values()]
        for row in rows
    )
    print(markdown([*rows[0]], cells, text=2))
    if output is not None:
        runs = {
            name: {
                " ".join(map(str, run)): table[run].dropna().to_dict() for run in table
            }
            for name, table in found.items()
        }
        write_json(output, {"rows": rows} | runs, indent=None)
    if plot is not None:
        panels = panels_of(found["loss"])
        curves(panels, plot, columns=len(panels) // 2)
