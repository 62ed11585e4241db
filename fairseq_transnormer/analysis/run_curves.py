"""``analyse run_curves``: trainings side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import tyro

from ..data.whole_files import write_json
from ..outputs import OutputFile
from .figures import ImageFile, Panel, curves, look_of, named_paths
from .training_log import Records, read_evaluation_log, read_training_log, series

# key in the log -> (title, what is one of it, logarithmic axes)
PANELS = {
    "loss": ("Loss, training; validation dotted", "bits a token", ""),
    "wps": ("Speed", "tokens a second", ""),
    "gnorm": ("Norm of the gradient", "", "y"),
    "gb_peak": ("Peak memory", "GiB", ""),
    "mfu": ("Model FLOPs utilisation", "", ""),
}


def run_curves(
    runs: Annotated[tuple[str, ...], tyro.conf.arg(metavar="[NAME=]LOG ...")],
    /,
    evaluations: tuple[Path, ...] = (),
    plot: ImageFile = None,
    output: OutputFile = None,
) -> None:
    """Curves of any number of runs side by side: loss, speed, gradients, memory.

        python -m fairseq_transnormer analyse run_curves T1=runs/t1 \\
            T2=runs/t2/train.log --plot runs.png

    A log is the train.log of a run, or its folder, or what fairseq-train printed with
    --log-format json; one that is still being written will do. Prints each run's last
    values.

    Args:
        runs: train.log of a run, or its folder, with a name for it.
        evaluations: logs of fairseq-eval-lm, whose perplexities are printed.
        plot: image to make, PNG or PDF.
        output: JSON file for what was read.
    """
    paths = named_paths(runs)
    logs = {name: read_training_log(path) for name, path in paths.items()}
    perplexities = {str(path): read_evaluation_log(path) for path in evaluations}
    print(table(logs))
    for path, perplexity in perplexities.items():
        print(f"perplexity {perplexity:.2f} in {path}")
    if output is not None:
        write_json(output, {"runs": logs, "perplexities": perplexities})
    if plot is not None:
        curves(panels_of(logs), plot)


def table(runs: dict[str, Records]) -> str:
    """Markdown: a row a run with its last values, and columns that one of them has."""
    last = {name: run["train_inner"][-1] for name, run in runs.items()}
    for name, run in runs.items():
        last[name] = last[name] | (run["valid"][-1] if run["valid"] else {})
    # one unit, where there are perplexities
    unit = "ppl" if all("ppl" in row for row in last.values()) else "loss"
    wanted = (unit, f"valid_{unit}", "valid_accuracy", *list(PANELS)[1:])
    keys = [key for key in wanted if any(key in row for row in last.values())]
    lines = [f"| run | update | {' | '.join(keys)} |", "|---" * (len(keys) + 2) + "|"]
    for name, row in last.items():
        cells = [str(row.get(key, "-")) for key in keys]
        lines.append(f"| {name} | {row['num_updates']} | {' | '.join(cells)} |")
    return "\n".join(lines)


def panels_of(runs: dict[str, Records]) -> list[Panel]:
    """The panels that at least one run has values for.

    Raises:
        ValueError: no run has a value for any panel.
    """
    panels = []
    for key, (title, unit, log) in PANELS.items():
        panel = Panel(title, "update", unit, log)
        for number, (name, run) in enumerate(runs.items()):
            look = look_of(number)
            if any(key in record for record in run["train_inner"]):
                panel.add(name, *series(run["train_inner"], key), **look)
            if key == "loss" and run["valid"]:
                dots = look | {"linestyle": ":", "marker": "o", "markersize": 3}
                panel.add(None, *series(run["valid"], "valid_loss"), **dots)
        if panel.lines:
            panels.append(panel)
    if not panels:
        raise ValueError(
            f"{', '.join(runs)}: no values to draw; a log needs one of "
            f"{', '.join(PANELS)}"
        )
    return panels
