"""``python -m fairseq_transnormer reproduce``: list, run, status, report, claims."""

import argparse
import shlex
import sys
from pathlib import Path
from typing import Any

from ..argument_types import MOST_SEED, integer_between, positive_integer
from ..installation import CONFIGS

PROGRAM = "python -m fairseq_transnormer reproduce"
CLUSTERS, RATES = ("local", "slurm", "debug"), [1e-5, 3e-5, 6e-5, 1e-4]


def main(argv: list[str] | None = None) -> int:
    """Command line; returns the exit code.

    0: all is well; 1: a run failed; 2: a mistake in what was given; 75: a run was
    stopped by a signal of its own; 130: interrupted.
    """
    given = sys.argv[1:] if argv is None else argv
    options = parser().parse_args(given)
    options.command_line = shlex.join([*PROGRAM.split(), *given])
    try:
        if options.command == "status":  # in a moment: nothing is composed
            return _status(options)
        from .actions import ACTIONS

        return ACTIONS[options.command](options)
    except BrokenPipeError:
        raise  # no mistake: the door ends in silence
    except (ValueError, OSError) as error:  # of ours; a disk that is full
        print(f"{PROGRAM}: error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"{PROGRAM}: interrupted; the same command resumes", file=sys.stderr)
        return 130


def _status(options: argparse.Namespace) -> int:
    from .runs import FACTS, UNREADABLE, RunFolder

    runs = options.runs_dir
    preset = Path(options.preset).name.removesuffix(".yaml")
    paths = sorted(runs.glob(f"{preset}*/*/*/{FACTS}"))
    for folder in (RunFolder(path.parent) for path in paths):
        where = folder.path.relative_to(runs)
        try:
            done, total = folder.updates_done, folder.facts["updates"]
            line = f"{folder.state:12} {done:>9,} of {total:>9,} updates  {where}"
            print(line, folder.last_validation, flush=True)
        except UNREADABLE as error:
            print(f"unreadable   {where}: {error}", flush=True)
    if not paths:
        print(f"no runs of preset {options.preset} in {runs}")
    return 0


def _pair(text: str) -> tuple[str, str]:
    key, _, value = text.partition("=")
    if not (key and value):
        raise argparse.ArgumentTypeError(f"{text!r}: write it as KEY=VALUE")
    return key, value


def _setting(text: str) -> tuple[str, Any]:
    import yaml

    key, value = _pair(text)
    try:
        return key, yaml.safe_load(value)
    except yaml.YAMLError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: {error}") from error


_COUNT, _SEED = integer_between(0), integer_between(0, MOST_SEED)
_MANY: dict[str, Any] = {"nargs": "+", "action": "extend", "default": []}
_SETTINGS, _PAIRS = _MANY | {"type": _setting}, _MANY | {"type": _pair}
_DATA = "data for a task, as language_modeling, instead of the preset's"
_SET = "change a value of every run, as optimization.max_update=500, or of a task's "
_SET += "runs; folders and results are named by it"
_CLUSTER = "local: processes of this machine; slurm: its jobs; debug: this process"
_RATES = "learning rates to choose from on the development set"
_JUDGES = "a claim is judged by the first that has its figures"
_PAGE = Path("docs/does_the_paper_hold.md")
_TUNED = Path("runs/finetune"), Path("results/finetune")
# the help, and words of argparse; an option means the same in every command
OPTIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "tables": ("of configs/tables/, YAML files, or all", {"nargs": "*"}),
    "checkpoint": ("of a bidirectional model, pre-trained", {"type": Path}),
    "problems": ("in configs/base/classification.yaml, all, or own", {"nargs": "+"}),
    "--config-dir": ("with tables/ and presets/", {"type": Path, "default": CONFIGS}),
    "--preset": ("of configs/presets/, or a YAML file", {"default": "paper"}),
    "--runs-dir": ("of the runs", {"type": Path, "default": Path("runs/tables")}),
    "--results": ("with runs.csv", {"type": Path, "default": Path("results")}),
    "--rows": ("these rows only", _MANY | {"metavar": "ROW"}),
    "--columns": ("these columns only", _MANY | {"metavar": "COLUMN"}),
    "--sweep": (
        "of a table's sweep these values, as optimization.lr=[0.0003]",
        _SETTINGS | {"metavar": "KEY=[VALUE,...]"},
    ),
    "--data": (_DATA, _PAIRS | {"metavar": "TASK=DIR"}),
    "--set": (_SET, _SETTINGS | {"metavar": "[TASK:]KEY=VALUE"}),
    "--seeds": ("of the runs", {"nargs": "+", "type": _SEED, "default": [1]}),
    "--gpus": ("of each run; 0: the CPU; by default the preset's", {"type": _COUNT}),
    "--jobs": ("runs at once; by default as many as fit", {"type": positive_integer}),
    "--cluster": (_CLUSTER, {"choices": CLUSTERS, "default": CLUSTERS[0]}),
    "--slurm": (
        "an option of sbatch, as partition=gpu, or time=MINUTES",
        _PAIRS | {"metavar": "KEY=VALUE"},
    ),
    "--prepare": ("make missing data", {"action": "store_true"}),
    "--dry-run": ("print what would be run, and check it", {"action": "store_true"}),
    "--interval": ("seconds between lines of progress", {"type": float, "default": 30}),
    "--name": ("of the checkpoint in folders; by default of its weights", {}),
    "--lr": (_RATES, {"nargs": "+", "type": float, "default": RATES}),
    "--pooling": ("other than the checkpoint's", {"choices": ("first", "mean")}),
    "--presets": (_JUDGES, {"nargs": "+", "default": ["paper", "medium", "small"]}),
    "--page": ("to write", {"type": Path, "default": _PAGE}),
}
RUNNING = "--data --set --seeds --gpus --jobs --cluster --slurm --prepare --dry-run "
RUNNING += "--interval --preset --runs-dir"
# name -> help, options, other defaults
COMMANDS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "list": ("tables, their rows, and presets", "tables", {}),
    "run": (
        "train what is not finished; the same command resumes",
        f"tables --rows --columns --sweep {RUNNING}",
        {},
    ),
    "status": ("how far every run is", "--preset --runs-dir", {}),
    "report": (
        "add the runs' results to results/runs.csv, and write the preset's page",
        "tables --preset --runs-dir --results --data --set",
        {},
    ),
    "claims": (
        "judge the paper's claims by results/runs.csv",
        "--results --presets --page",
        {},
    ),
    "finetune": (
        "fine-tune a checkpoint on problems of GLUE or of yours, at the best of some "
        "learning rates; the same command resumes; ends with a report",
        f"checkpoint problems --name --lr --pooling --results {RUNNING}",
        {"preset": "finetune", "runs_dir": _TUNED[0], "results": _TUNED[1]},
    ),
}


def parser() -> argparse.ArgumentParser:
    """Of all commands."""
    made = argparse.ArgumentParser(
        prog=PROGRAM,
        description="Runs the paper's tables and compares results with its figures. "
        "docs/reproduction.md explains it.",
        allow_abbrev=False,
    )
    commands = made.add_subparsers(dest="command", required=True)
    shared = {"allow_abbrev": False}
    shared["formatter_class"] = argparse.ArgumentDefaultsHelpFormatter
    for name, (said, options, defaults) in COMMANDS.items():
        command = commands.add_parser(name, help=said, description=said, **shared)
        for option in ("--config-dir", *options.split()):
            says, values = OPTIONS[option]
            command.add_argument(option, help=says, **values)
        command.set_defaults(**defaults)
    return made
