"""Curves of any number of runs side by side: loss, speed, gradients, memory.

    python -m fairseq_transnormer analyse run_curves T1=runs/t1 T2=runs/t2/train.log \\
        --plot runs.png

A log is the train.log of a run, or its folder, or what fairseq printed in any of its
formats; one that is still being written will do. Prints each run's last values.
"""

import argparse
from pathlib import Path

from ..cli import command_parser, run_command
from .figures import image_file, named_paths, pyplot, save
from .training_log import read_training_log

# key in the log -> (title, what is one of it, whether the axis is logarithmic)
PANELS = {
    "loss": ("Loss, training; validation dotted", "bits a token", False),
    "wps": ("Speed", "tokens a second", False),
    "gnorm": ("Norm of the gradient", "", True),
    "gb_peak": ("Peak memory", "GiB", False),
    "mfu": ("Model FLOPs utilisation", "", False),
}


def series(records: list[dict], key: str) -> tuple[list[int], list[float]]:
    """Updates and values of a key, where records have it."""
    updates = "valid_num_updates" if key.startswith("valid_") else "num_updates"
    points = [(int(r[updates]), float(r[key])) for r in records if key in r]
    return [update for update, _ in points], [value for _, value in points]


def plot_runs(runs: dict[str, dict[str, list[dict]]], target: Path) -> None:
    """Draw the panels that at least one run has values for.

    Args:
        runs: name -> what ``read_training_log`` returns.
        target: image to make.

    Raises:
        ValueError: no run has a value for any panel.
    """
    panels = [
        key
        for key in PANELS
        if any(key in record for run in runs.values() for record in run["train_inner"])
    ]
    if not panels:
        raise ValueError(
            f"{', '.join(runs)}: no values to draw; allowed: logs with one of "
            f"{', '.join(PANELS)}"
        )
    columns = min(len(panels), 3)
    rows = -(-len(panels) // columns)
    figure, grid = pyplot().subplots(
        rows,
        columns,
        figsize=(4.6 * columns, 3.4 * rows + 0.6),
        sharex=True,
        squeeze=False,
        layout="constrained",
    )
    for key, axes in zip(panels, grid.flat, strict=False):
        title, unit, logarithmic = PANELS[key]
        for number, (name, run) in enumerate(runs.items()):
            colour = f"C{number % 10}"
            style = ("-", "--", "-.")[number // 10 % 3]
            axes.plot(
                *series(run["train_inner"], key),
                style,
                color=colour,
                label=name,
                lw=1.2,
            )
            if key == "loss":
                axes.plot(*series(run["valid"], "valid_loss"), "o:", color=colour, ms=3)
        axes.set(title=title, xlabel="update", ylabel=unit)
        axes.tick_params(labelbottom=True)
        if logarithmic:
            axes.set_yscale("log")
        else:
            axes.set_ylim(bottom=None if key == "loss" else 0)
        axes.grid(alpha=0.3, which="both" if logarithmic else "major")
    for axes in grid.flat[len(panels) :]:
        axes.set_axis_off()
    handles, names = grid.flat[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=min(len(names), 6))
    save(figure, target)


def main(argv: list[str] | None = None) -> int:
    """Command line; returns the exit code."""
    parser = command_parser("fairseq_transnormer analyse run_curves", __doc__)
    parser.add_argument(
        "runs", nargs="+", metavar="NAME=LOG", help="log, or its folder"
    )
    parser.add_argument("--plot", type=image_file, required=True, help="image to make")
    options = parser.parse_args(argv)
    return run_command(parser.prog, lambda: _run(options))


def _run(options: argparse.Namespace) -> None:
    paths = named_paths(options.runs)
    runs = {name: read_training_log(path) for name, path in paths.items()}
    print("| run | update | " + " | ".join(PANELS) + " |")
    print("|---" * (len(PANELS) + 2) + "|")
    for name, run in runs.items():
        last = run["train_inner"][-1]
        values = [str(last.get(key, "-")) for key in PANELS]
        print(f"| {name} | {last['num_updates']} | {' | '.join(values)} |")
    plot_runs(runs, options.plot)
