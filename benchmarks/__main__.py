"""``python -m benchmarks COMMAND``: every benchmark, and the page made of them."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import tyro

from fairseq_transnormer.cli import Subcommand, run
from fairseq_transnormer.data.whole_files import write_json

from . import options as kinds
from .gpu_check import gpu_check
from .options import FOLDER, Options, check_run_file

# command -> the file of its generator of rows, and its options
BENCHMARKS: dict[str, tuple[str, type[Options]]] = {
    "ops": ("ops", kinds.Ops),
    "launch_sweep": ("launch_sweep", kinds.LaunchSweep),
    "training_step": ("training_step", kinds.TrainingStep),
    "update_cost": ("update_cost", kinds.UpdateCost),
    "lra_speed": ("lra_speed", kinds.LRASpeed),
    "generation_cost": ("generation", kinds.GenerationCost),
    "token_cost": ("generation", kinds.TokenCost),
    "image_generation": ("generation", kinds.ImageGeneration),
    "attention_lengths": ("linear_transformers", kinds.AttentionLengths),
    "linear_attention_forms": ("linear_transformers", kinds.LinearAttentionForms),
}


def command(name: str) -> Callable[[Options], int]:
    """A benchmark as a function whose signature tyro reads."""
    file, kind = BENCHMARKS[name]

    def benchmark(options) -> int:
        rows_of = getattr(import_module(f"benchmarks.{file}"), name)
        return measured(name, rows_of, options)

    benchmark.__annotations__["options"] = Annotated[kind, tyro.conf.arg(name="")]
    benchmark.__doc__ = kind.__doc__
    return benchmark


def measured(name: str, rows_of: Callable, options: Options) -> int:
    """Write a run's JSON file, anew with each addition, so that it is always whole.

    rows_of: takes the options and the run's settings, to which it may add; yields rows.

    Returns:
        1 where ours gave wrong results, else 0.
    """
    import torch

    from fairseq_transnormer.devices import usable_device

    from .measure import describe

    kind = usable_device(options.device).type
    options.complete()
    torch.set_num_threads(options.threads or torch.get_num_threads())
    torch.manual_seed(0)
    path = options.output or FOLDER / f"{name}_{kind}.json"
    check_run_file(path, "--output")
    rows: kinds.Rows = []
    run: dict[str, Any] = {
        "benchmark": name,
        "command": shlex.join(["python", "-m", "benchmarks", *sys.argv[1:]]),
        "environment": describe(options.device),
        "settings": options.settings(),
        "complete": False,
        "measurements": rows,
    }
    for found in rows_of(options, run["settings"]):
        rows += found
        write_json(path, run)
        for row in [row for row in found if row.get("wrong")] or found[-1:]:
            print(f"{name}: {_shown(row)}", flush=True)
    run["complete"] = True
    write_json(path, run)
    print(f"{name}: wrote {path}")
    return int(any(row.get("wrong") and row["ours"] for row in rows))


def _shown(row: dict[str, Any]) -> str:
    """What a row is of, for a line of progress."""
    names = ("op", "variant", "part", "sweep", "mode", "phase", "model", "batch")
    names += ("length", "width", "context", "tokens")
    if row.get("wrong"):
        names += ("provider", "errors", "yardstick", "skipped")
    shown = ", ".join(str(row[name]) for name in names if row.get(name))
    return f"WRONG: {shown}" if row.get("wrong") else shown


def cost(gpus: int = 8) -> None:
    """The least that the paper's trainings take, by data sheets.

    Args:
        gpus: of a run.
    """
    from .cost import rows
    from .report import table

    print(table(rows(gpus)))


def report(folder: Path = FOLDER) -> None:
    """One page of what the benchmarks measured: pivots of the rows of JSON files.

    Reads results/benchmarks/*.json and results/gpu/*.json, of one run each or of
    several by name, and writes results/benchmarks/README.md with its pictures. The same
    JSON gives the same page.

    Args:
        folder: of the JSON files; those of GPUs are in the folder gpu next to it.
    """
    from .report import write_page

    write_page(folder)


FUNCTIONS = {name: command(name) for name in BENCHMARKS}
FUNCTIONS |= {"cost": cost, "report": report, "gpu_check": gpu_check}
globals().update(FUNCTIONS)
COMMANDS = {
    name: Subcommand(f"{__name__}:{name}", function.__doc__.partition(".\n")[0])
    for name, function in FUNCTIONS.items()
}


def main(arguments: list[str] | None = None) -> int:
    """Run a benchmark; returns its exit code."""
    return run(
        "python -m benchmarks",
        "Speed and memory of this package and its peers; each writes a JSON file.",
        COMMANDS,
        arguments,
    )


if __name__ == "__main__":
    sys.exit(main())
