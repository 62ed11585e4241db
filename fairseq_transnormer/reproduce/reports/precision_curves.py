"""Losses of the same trainings in several precisions, against the noise of fp32.

    python -m fairseq_transnormer reproduce run precision --runs-dir runs/precision ...
    python -m fairseq_transnormer analyse precision_curves runs/precision/small \\
        --json results/precision/curves.json --plot results/precision/curves.png

Reads every run below the folder that has finished or is under way, with its precision
and seed from its configuration. The noise is the standard deviation of fp32 over seeds;
a precision is compared with fp32 of the same seed, so of the same batches, at the last
update that all of them have.
"""

import argparse
import math
import statistics
from pathlib import Path
from typing import Any

from ...analysis.figures import image_file, pyplot, save
from ...analysis.run_curves import series
from ...analysis.training_log import read_training_log
from ...data.training_records import LOG
from ...data.whole_files import write_json
from ...subcommands import command_parser, output_file, run_command
from ...training.config import flattened
from ..errors import ReproduceError
from ..runs.run_folder import CONFIGURATION, EARLIER, RunFolder

PRECISIONS = ("fp32", "bf16", "fp16", "bf16 memory-efficient", "fp16 memory-efficient")
PRECISIONS += ("amp",)
LAST_UPDATES = 100  # that a final training loss is the mean of
# in which trainings of several precisions and seeds differ, and those resumed elsewhere
MAY_DIFFER = ("common.", "task.seed", "task.data", "distributed_training.")
MAY_DIFFER += ("dataset.num_workers",)


def precision_of(common: dict) -> str:
    """The name of what a configuration's ``common`` trains in."""
    for name in ("fp16", "bf16"):
        if common[name]:
            efficient = common[f"memory_efficient_{name}"]
            return f"{name} memory-efficient" if efficient else name
    return "amp" if common["amp"] else "fp32"


def read_run(folder: Path) -> dict:
    """A run: model, precision, seed, layers, curves, and what it came to."""
    configuration = RunFolder(folder).configuration()
    log = folder / LOG
    records = read_training_log(log)
    updates, losses = series(records["train_inner"], "loss")
    valid_updates, valid_losses = series(records["valid"], "valid_loss")
    speeds = [float(each["wps"]) for each in records["train_inner"] if "wps" in each]
    model = configuration["model"]
    (*_, attempt) = RunFolder(folder).status()["attempts"]
    return {
        "model": model["_name"],
        "attention_types": model["attention_types"],
        "embed_dim": model["embed_dim"],
        "precision": precision_of(configuration["common"]),
        "seed": configuration["common"]["seed"],
        "updates_asked_for": configuration["optimization"]["max_update"],
        "updates": updates,
        "loss": losses,
        "final_loss": _training_loss(updates, losses, updates[-1]),
        "valid_updates": valid_updates,
        "valid_loss": valid_losses,
        "all_finite": all(map(math.isfinite, losses + valid_losses)),
        "overflows_skipped": log.read_text(encoding="utf-8").count("overflow detected"),
        "tokens_per_second": statistics.median(speeds),
        "machine": f"{attempt['machine']}; {attempt['device']}",
        "torch": attempt["versions"]["torch"],
    }


def _training_loss(updates: list[int], losses: list[float], last: int) -> float | None:
    """Mean of the last updates up to ``last``; None where none was logged."""
    some = [
        loss
        for update, loss in zip(updates, losses, strict=True)
        if last - LAST_UPDATES < update <= last
    ]
    return statistics.fmean(some) if some else None


def read_runs(folder: Path) -> list[dict]:
    """All runs below ``folder`` that have logged an update.

    Raises:
        ValueError: there is none, or two of one model that are not of one experiment.
    """
    found = []
    first: dict[str, tuple[Path, dict]] = {}
    place: dict[tuple, Path] = {}
    for path in sorted(folder.rglob(CONFIGURATION)):
        # what an attempt with other settings left is another run
        if path.parent.name.startswith(EARLIER):
            continue
        try:
            run = read_run(path.parent)
        except (FileNotFoundError, ValueError):  # not begun
            continue
        settings = _settings(path.parent)
        same, there = first.setdefault(run["model"], (path.parent, settings))
        for key in sorted(settings.keys() | there.keys()):
            if settings.get(key) != there.get(key):
                raise ValueError(
                    f"{path.parent}: {key}={settings.get(key)!r}, and "
                    f"{there.get(key)!r} in {same}; allowed: runs of one experiment"
                )
        precision, seed = run["precision"], run["seed"]
        other = place.setdefault((run["model"], precision, seed), path.parent)
        if other != path.parent:
            raise ValueError(
                f"{path.parent}: {precision} with seed {seed}, as {other}; allowed: "
                "one run of each precision and seed"
            )
        found.append(run)
    if not found:
        raise ValueError(f"{folder}: no runs in it; allowed: what reproduce run makes")
    order = PRECISIONS.index
    return sorted(found, key=lambda r: (r["model"], order(r["precision"]), r["seed"]))


def _settings(folder: Path) -> dict[str, Any]:
    """Those in which compared runs must agree."""
    values = flattened(RunFolder(folder).configuration())
    return {k: v for k, v in values.items() if not k.startswith(MAY_DIFFER)}


def compare(runs: list[dict]) -> list[dict]:
    """A row for each model and precision: losses, and differences in units of noise.

    Differences are means over the seeds that fp32 has, too; None where there are none,
    or, in units of noise, fewer than two seeds of fp32.
    """
    rows = []
    for model, of_model in _by_model(runs).items():
        fp32 = _fp32_by_seed(of_model)
        for precision in dict.fromkeys(run["precision"] for run in of_model):
            same = [run for run in of_model if run["precision"] == precision]
            rows.append(_row(model, precision, same, fp32))
    return rows


def _by_model(runs: list[dict]) -> dict[str, list[dict]]:
    models: dict[str, list[dict]] = {}
    for run in runs:
        models.setdefault(run["model"], []).append(run)
    return models


def _fp32_by_seed(runs: list[dict]) -> dict[int, dict]:
    return {run["seed"]: run for run in runs if run["precision"] == "fp32"}


def _row(model: str, precision: str, runs: list[dict], fp32: dict[int, dict]) -> dict:
    compared = [*runs, *fp32.values()]
    last = min(run["updates"][-1] for run in compared)
    last_valid = min(max(run["valid_updates"], default=0) for run in compared)

    def final(run: dict, which: str) -> float | None:
        if which == "final_loss":
            return _training_loss(run["updates"], run["loss"], last)
        until = sum(update <= last_valid for update in run["valid_updates"])
        return run["valid_loss"][until - 1] if until else None

    row = {
        "model": model,
        "precision": precision,
        "seeds": [run["seed"] for run in runs],
        "updates": last,
        "all_finite": all(run["all_finite"] for run in runs),
        "overflows_skipped": sum(run["overflows_skipped"] for run in runs),
        "tokens_per_second": statistics.median(r["tokens_per_second"] for r in runs),
    }
    for which in ("final_loss", "valid_loss"):
        values = [v for run in runs if (v := final(run, which)) is not None]
        reference = [v for run in fp32.values() if (v := final(run, which)) is not None]
        differences = [
            ours - theirs
            for run in runs
            if run["seed"] in fp32
            and (ours := final(run, which)) is not None
            and (theirs := final(fp32[run["seed"]], which)) is not None
        ]
        noise = statistics.stdev(reference) if len(reference) > 1 else None
        difference = statistics.fmean(differences) if differences else None
        comparable = precision != "fp32" and noise and difference is not None
        row[which] = statistics.fmean(values) if values else None
        row[f"{which}_noise"] = noise
        row[f"{which}_difference"] = None if precision == "fp32" else difference
        row[f"{which}_in_noise"] = difference / noise if comparable else None
    return row


def markdown(rows: list[dict]) -> str:
    """The rows as a table."""

    def shown(value: float | None, digits: str) -> str:
        return "-" if value is None else f"{value:{digits}}"

    lines = [
        "| model | precision | seeds | updates | NaN | training loss | - fp32 | valid "
        "loss | - fp32 | noise | overflows |",
        "|---|---|--:|--:|---|--:|--:|--:|--:|--:|--:|",
    ]
    for row in rows:
        cells = [
            row["model"],
            row["precision"],
            len(row["seeds"]),
            row["updates"],
            "none" if row["all_finite"] else "yes",
            shown(row["final_loss"], ".3f"),
            shown(row["final_loss_difference"], "+.3f"),
            shown(row["valid_loss"], ".3f"),
            shown(row["valid_loss_difference"], "+.3f"),
            shown(row["valid_loss_noise"], ".3f"),
            row["overflows_skipped"],
        ]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def plot(runs: list[dict], target: Path) -> None:
    """Above the losses of all runs, below what they are above fp32 of the same seed."""
    models = _by_model(runs)
    figure, grid = pyplot().subplots(
        2,
        len(models),
        figsize=(4.2 * len(models), 7),
        sharex=True,
        sharey="row",
        squeeze=False,
        layout="constrained",
        height_ratios=(3, 2),
    )
    for (above, below), (model, of_model) in zip(grid.T, models.items(), strict=True):
        fp32 = _fp32_by_seed(of_model)
        first = next(iter(fp32.values()), None)
        for run in of_model:
            plain = run["precision"] == "fp32"
            colour = "0.6" if plain else f"C{PRECISIONS.index(run['precision']) - 1}"
            style = {"color": colour, "lw": 2 if plain else 1.1, "zorder": 2 - plain}
            name = "fp32, each seed" if plain else run["precision"]
            above.plot(run["updates"], run["loss"], label=name, **style)
            against = first if plain else fp32.get(run["seed"])
            if against is not None and against is not run:
                # a log may lack updates that another has
                theirs = dict(zip(against["updates"], against["loss"], strict=True))
                pairs = zip(run["updates"], run["loss"], strict=True)
                there = [(at, loss) for at, loss in pairs if at in theirs]
                below.plot(
                    [at for at, _ in there],
                    [loss - theirs[at] for at, loss in there],
                    **style,
                )
        above.set(title=model)
        below.set(xlabel="update")
        for axes in (above, below):
            axes.grid(alpha=0.3)
    grid[0, 0].set_ylabel("training loss (bits a token)")
    grid[1, 0].set_ylabel("minus fp32 of the same seed\n(grey: other seeds)")
    labelled = dict(
        pair[::-1]
        for axes in grid[0]
        for pair in zip(*axes.get_legend_handles_labels(), strict=True)
    )
    figure.legend(
        labelled.values(), labelled.keys(), loc="outside lower center", ncols=5
    )
    save(figure, target)


def main(argv: list[str] | None = None) -> int:
    """Command line; returns the exit code."""
    parser = command_parser("fairseq_transnormer analyse precision_curves", __doc__)
    parser.add_argument("folder", type=Path, help="that has the runs below it")
    parser.add_argument("--json", type=output_file, required=True, help="file to make")
    parser.add_argument("--plot", type=image_file, required=True, help="image to make")
    options = parser.parse_args(argv)
    mistakes = (ReproduceError, OSError, ValueError)
    return run_command(parser.prog, lambda: _run(options), mistakes)


def _run(options: argparse.Namespace) -> None:
    runs = read_runs(options.folder)
    rows = compare(runs)
    found = {"last_updates": LAST_UPDATES, "rows": rows, "runs": runs}
    write_json(options.json, found, indent=None)
    print(markdown(rows))
    plot(runs, options.plot)
