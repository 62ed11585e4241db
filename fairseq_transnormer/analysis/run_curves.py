"""``analyse run_curves``: trainings side by side."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from ..data.whole_files import write_json
from ..outputs import NamedPaths, OutputFile, markdown
from .figures import ImageFile, Panel, curves
from .training_log import Records, read_training_log, series

# key in the log -> its panel; what may be compared as a ratio begins at 0
PANELS = {
    "loss": Panel("Loss (dotted: validation)", y="bits a token", better="lower"),
    "wps": Panel("Speed", y="tokens a second", better="higher", bottom=0),
    "gnorm": Panel("Norm of the gradient", log="y"),
    "gb_peak": Panel("Peak memory", y="GiB", better="lower", bottom=0),
    "mfu": Panel("Model FLOPs utilisation", better="higher", bottom=0),
}


def run_curves(
    runs: NamedPaths,
    /,
    evaluations: tuple[Path, ...] = (),
    plot: ImageFile = None,
    output: OutputFile = None,
) -> None:
    """Curves of any number of runs side by side: loss, speed, gradients, memory.

        python -m fairseq_transnormer analyse run_curves T1=runs/t1 \\
            T2=runs/t2/train.log --plot runs.png

    A log is the train.log of a run, its folder, or the output of fairseq-train with
    --log-format json. The run may still go on. The command prints each run's last
    values.

    Args:
        runs: train.log of a run, or its folder, with a name for it.
        evaluations: logs of fairseq-eval-lm, whose perplexities are printed.
        plot: image to make, PNG or PDF.
        output: JSON file for what was read.
    """
    logs = {name: read_training_log(path) for name, path in runs.items()}
    perplexities = {}
    for path in evaluations:
        said = re.findall(r"Perplexity: ([0-9.]+)", path.read_text(encoding="utf-8"))
        if not said:
            raise ValueError(f"{path}: no perplexity; give a log of fairseq-eval-lm")
        perplexities[str(path)] = float(said[-1])
    last = {
        name: run["train_inner"][-1] | (run["valid"] or [{}])[-1]
        for name, run in logs.items()
    }
    # one unit, where there are perplexities
    unit = "ppl" if all("ppl" in row for row in last.values()) else "loss"
    wanted = (unit, f"valid_{unit}", "valid_accuracy", *list(PANELS)[1:])
    # columns that one of the runs has
    keys = [key for key in wanted if any(key in row for row in last.values())]
    rows = (
        [name, row["num_updates"], *(row.get(key, "-") for key in keys)]
        for name, row in last.items()
    )
    print(markdown(["run", "update", *keys], rows))
    for path, perplexity in perplexities.items():
        print(f"perplexity {perplexity:.2f} in {path}")
    if output is not None:
        write_json(output, {"runs": logs, "perplexities": perplexities})
    if plot is not None:
        curves(panels_of(logs), plot)


def panels_of(runs: dict[str, Records]) -> list[Panel]:
    """The panels that at least one run has values for."""
    panels = []
    for key, empty in PANELS.items():
        panel = replace(empty, x="update", lines=[])
        for name, run in runs.items():
            if any(key in record for record in run["train_inner"]):
                panel.add(name, *series(run["train_inner"], key))
            if key == "loss" and run["valid"]:
                dots = {"linestyle": ":", "marker": "o", "markersize": 3}
                panel.add(name, *series(run["valid"], "valid_loss"), **dots)
        if panel.lines:
            panels.append(panel)
    if not panels:
        raise ValueError(f"no values of {', '.join(PANELS)} in {', '.join(runs)}")
    return panels
