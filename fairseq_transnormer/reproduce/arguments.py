"""The command line's options."""

import argparse
from pathlib import Path
from typing import Any

import yaml

from ..argument_types import MOST_SEED, integer_between, positive_integer
from ..installation import CONFIGS

PROGRAM = "python -m fairseq_transnormer reproduce"
WHICH_GPUS = (
    "which GPUs of this machine, by number: 1 is the second one, not one GPU (train's "
    "--gpus is a count); none trains on the CPU"
)


def parser() -> argparse.ArgumentParser:
    """The parser of ``python -m fairseq_transnormer reproduce``."""
    main = argparse.ArgumentParser(
        prog=PROGRAM,
        description="Runs the paper's tables and sets what is measured beside them. "
        "docs/reproduction.md explains it.",
        allow_abbrev=False,
    )
    commands = main.add_subparsers(dest="command", required=True)
    _list(commands)
    _run(commands)
    _status(commands)
    _report(commands)
    _claims(commands)
    _finetune(commands)
    _execute(commands)
    return main


def _command(commands, name: str, help_text: str) -> argparse.ArgumentParser:
    command = commands.add_parser(
        name, help=help_text, description=help_text, allow_abbrev=False
    )
    command.add_argument(
        "--config-dir",
        type=Path,
        default=CONFIGS,
        metavar="DIR",
        help="configurations, with tables/ and presets/ (default: the package's)",
    )
    return command


def _add_tables(command: argparse.ArgumentParser, count: str = "+") -> None:
    help_text = "names in configs/tables/, paths of YAML files, or all"
    command.add_argument("tables", nargs=count, metavar="TABLE", help=help_text)


def _add_place(
    command: argparse.ArgumentParser,
    preset: str = "paper",
    runs_dir: str = "runs/tables",
) -> None:
    command.add_argument(
        "--preset",
        default=preset,
        metavar="NAME",
        help="a name in configs/presets/ or a path of a YAML file (default: "
        "%(default)s)",
    )
    command.add_argument(
        "--runs-dir",
        type=Path,
        default=Path(runs_dir),
        metavar="DIR",
        help="where the runs are (default: %(default)s)",
    )


def _add_out(command: argparse.ArgumentParser, folder: str = "results/tables") -> None:
    command.add_argument(
        "--out",
        type=Path,
        default=Path(folder),
        metavar="DIR",
        help="folder; the preset's name is added (default: %(default)s)",
    )


def _list(commands) -> None:
    command = _command(commands, "list", "tables, their rows, and presets")
    _add_tables(command, "*")


def _run(commands) -> None:
    command = _command(
        commands,
        "run",
        "train what is not finished yet; the same command again resumes",
    )
    add = command.add_argument
    _add_tables(command)
    _add_place(command)
    only = {"action": "extend", "nargs": "+"}
    add("--rows", metavar="ROW", help="these rows only", **only)
    add("--columns", metavar="COLUMN", help="these columns only", **only)
    add(
        "--sweep",
        action="extend",
        nargs="+",
        type=_setting,
        default=[],
        metavar="KEY=[VALUE,...]",
        help="of a table's sweep these values only, as optimization.lr=[0.0003]",
    )
    _add_running(command)


def _claims(commands) -> None:
    command = _command(
        commands, "claims", "judge the paper's claims by what reports measured"
    )
    add = command.add_argument
    add(
        "--results",
        type=Path,
        default=Path("results/tables"),
        metavar="DIR",
        help="where reports are, in a folder a preset (default: %(default)s); a claim "
        "whose sweep_from is NAME reads DIR/../NAME, too",
    )
    add(
        "--presets",
        nargs="+",
        default=["paper", "medium", "small"],
        metavar="NAME",
        help="a claim is judged by the first that has its figures "
        "(default: paper medium small)",
    )
    add(
        "--page",
        type=Path,
        default=Path("docs/does_the_paper_hold.md"),
        metavar="FILE",
        help="to write (default: %(default)s)",
    )


def _finetune(commands) -> None:
    command = _command(
        commands,
        "finetune",
        "fine-tune a checkpoint on problems of GLUE or of yours, with a sweep over "
        "learning rates; the same command again resumes; ends with a report",
    )
    add = command.add_argument
    add("checkpoint", type=Path, help="of a bidirectional model, pre-trained")
    add(
        "problems",
        nargs="+",
        metavar="PROBLEM",
        help="names in configs/classification/: mnli, qnli, ...; all are the paper's "
        "seven columns, own is a folder of yours",
    )
    add(
        "--name",
        help="of the checkpoint in folders (default: the model's, and the fingerprint "
        "of its weights)",
    )
    add(
        "--lr",
        nargs="+",
        type=float,
        default=[1e-5, 3e-5, 6e-5, 1e-4],
        metavar="RATE",
        help="learning rates to choose from on the development set (default: the "
        "paper's: 1e-5 3e-5 6e-5 1e-4)",
    )
    add("--pooling", choices=("first", "mean"), help="(default: the checkpoint's)")
    _add_place(command, "finetune", "runs/finetune")
    _add_out(command, "results/finetune")
    _add_running(command)


def _add_running(command: argparse.ArgumentParser) -> None:
    """Options of what trains."""
    add = command.add_argument
    add(
        "--seeds",
        nargs="+",
        type=integer_between(0, MOST_SEED),
        default=[1],
        metavar="N",
        help="(default: 1)",
    )
    add(
        "--gpus",
        default="auto",
        metavar="auto|none|N,N,...",
        help=WHICH_GPUS + " (default: all there are, or the CPU)",
    )
    add(
        "--gpus-per-run",
        type=positive_integer,
        metavar="N",
        help="GPUs of one run (default: the preset's)",
    )
    add(
        "--jobs",
        type=positive_integer,
        metavar="N",
        help="runs at once (default: one a GPU or group of GPUs, one on the CPU); more "
        "share the GPUs",
    )
    add(
        "--fork",
        action="store_true",
        help="fork the runs off this process, which saves each of them the seconds "
        "that fairseq takes to be imported; on the CPU",
    )
    add(
        "--data",
        action="extend",
        nargs="+",
        type=_pair,
        default=[],
        metavar="TASK=DIR",
        help="data for a fairseq task (language_modeling, masked_lm, "
        "sentence_prediction, long_range_arena, associative_recall) or a table's "
        "conditions (copy_task, digits, recall_capacity), instead of the preset's",
    )
    add("--prepare", action="store_true", help="make missing data as the preset says")
    add(
        "--set",
        action="extend",
        nargs="+",
        type=_setting,
        default=[],
        metavar="[TASK:]KEY=VALUE",
        help="change a value of every run, as optimization.max_update=500, or of the "
        "runs of a fairseq task, as masked_lm:optimization.max_update=500",
    )
    add("--slurm", action="store_true", help="submit each run by sbatch")
    add(
        "--sbatch",
        action="append",
        default=[],
        metavar="OPTION",
        help="an option of sbatch, as --sbatch=--partition=gpu; may be repeated",
    )
    add("--dry-run", action="store_true", help="print what would be run, and check it")
    add(
        "--interval",
        type=float,
        default=30,
        metavar="SECONDS",
        help="between two lines of progress (default: 30)",
    )


def _status(commands) -> None:
    command = _command(commands, "status", "how far every run is")
    _add_tables(command, "*")
    _add_place(command)


def _report(commands) -> None:
    command = _command(commands, "report", "write tables, plots and rank agreement")
    _add_tables(command, "*")
    _add_place(command)
    _add_out(command)
    source = command.add_mutually_exclusive_group()
    source.add_argument(
        "--from-results",
        action="store_true",
        help="write pages and plots anew of the JSON files in the folder of --out, "
        "without the runs (default of TABLE: those that are there)",
    )
    source.add_argument(
        "--add",
        action="store_true",
        help="keep what the reports in the folder of --out, this table's and others', "
        "have of runs that have ended and are not in --runs-dir, as those of another "
        "machine",
    )


def _execute(commands) -> None:
    command = _command(commands, "execute", "run one prepared folder, as in a job")
    command.add_argument("folder", type=Path)
    command.add_argument("--gpus", default="auto", help=WHICH_GPUS)


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not (key and equals and value):
        raise argparse.ArgumentTypeError(f"{text!r}: write it as KEY=VALUE")
    return key, value


def _setting(text: str) -> tuple[str, Any]:
    key, value = _pair(text)
    try:
        return key, yaml.safe_load(value)
    except yaml.YAMLError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: {error}") from error
