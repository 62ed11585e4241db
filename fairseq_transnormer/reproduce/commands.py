"""``python -m fairseq_transnormer reproduce``: list, run, status, report, claims."""

import argparse
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..argument_types import MOST_SEED, integer_between, positive_integer
from ..installation import CONFIGS, working_folder
from ..missing_packages import explanation
from ..training.exit_code import EXIT_RESUMABLE

PROGRAM = "python -m fairseq_transnormer reproduce"


def main(argv: list[str] | None = None) -> int:
    """Command line; returns the exit code.

    0: all is well; 1: a run failed; 2: a mistake in what was given; 75: a run was
    stopped by a signal of its own; 130: interrupted.
    """
    given = sys.argv[1:] if argv is None else argv
    options = _parser().parse_args(given)
    options.command_line = shlex.join([*PROGRAM.split(), *given])
    try:
        if not (options.config_dir / "tables").is_dir():
            raise ValueError(
                f"--config-dir {options.config_dir}: it has no folder tables/; give "
                "the configs/ of the repository"
            )
        return options.function(options)
    except BrokenPipeError:
        raise  # no mistake: the door ends in silence
    except (ValueError, OSError) as error:  # of ours; a disk that is full
        print(f"{PROGRAM}: error: {error}", file=sys.stderr)
        return 2
    except ImportError as error:
        told = explanation(error)
        print(f"{PROGRAM} {options.command}: error: {told}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"{PROGRAM}: interrupted; the same command resumes", file=sys.stderr)
        return 130


def _list(options: argparse.Namespace) -> int:
    from .schema import load_preset, load_table, names_in
    from .text import number

    configs = options.config_dir
    for name in options.tables or names_in(configs / "tables"):
        table = load_table(configs, name)
        print(f"{table.name}: {table.file.title}")
        for row in table.rows:
            cells = [cell for cell in table.cells if cell.row == row]
            paper = ", ".join(f"{c.column} {number(c.paper) or '-'}" for c in cells)
            print(f"    {row}: {paper}")
    for name in [] if options.tables else names_in(configs / "presets"):
        print(f"preset {name}: {load_preset(configs, name).description}")
    return 0


def _conditions(options: argparse.Namespace, preset: Any, gpus: int = 0) -> Any:
    from .plan import Conditions

    data = {task: str(Path(folder).resolve()) for task, folder in options.data}
    return Conditions(
        configs=options.config_dir.resolve(),
        root=working_folder(),
        preset=preset,
        gpus=gpus,
        data=data,
        overrides=dict(options.set),
    )


def _run(options: argparse.Namespace) -> int:
    from .schema import chosen_cells, load_preset, load_tables, with_sweep_values

    if not options.tables:
        raise ValueError("run: which TABLE? reproduce list names them; or all")
    preset = load_preset(options.config_dir, options.preset)
    chosen: dict[str, list[Any]] = {}
    for key, value in options.sweep:
        chosen.setdefault(key, []).extend(value if isinstance(value, list) else [value])
    tables = load_tables(options.config_dir, options.tables, preset)
    tables = with_sweep_values(tables, chosen)
    cells = chosen_cells(tables, options.rows, options.columns, preset.columns)
    return _run_cells(cells, preset, options)


def _finetune(options: argparse.Namespace) -> int:
    from .finetune import checkpoint_table
    from .schema import load_preset

    preset = load_preset(options.config_dir, options.preset)
    table = checkpoint_table(
        options.config_dir,
        options.checkpoint,
        options.problems,
        options.lr,
        options.name,
        options.pooling,
    )
    code = _run_cells(table.cells, preset, options)
    if options.dry_run or options.cluster == "slurm":
        return code
    return _write([table], preset, options) or code


def _run_cells(cells: list[Any], preset: Any, options: argparse.Namespace) -> int:
    from . import data
    from .jobs import job_of, of_seeds
    from .launcher import Slots, run_all, submit_all
    from .metrics import reader_of
    from .runs import FAILED, INTERRUPTED, RunFolder

    gpus = _gpus(cells, preset, options)
    conditions = _conditions(options, preset, gpus)
    _check_set(cells, options)
    runs = options.runs_dir.resolve()
    print(f"checking the runs of {len(cells)} figures", flush=True)  # takes seconds
    planned = of_seeds(cells, conditions, options.seeds)
    wanted = {n: job_of(cell).data(cell, own) for n, (cell, own) in planned.items()}
    _check_tasks(options, {each.conditions for each in wanted.values()})
    for cell in cells:
        reader_of(cell.metric)  # or raises
    missing = data.require(
        preset, {*wanted.values()}, working_folder(), options.prepare, options.dry_run
    )
    found = {
        name: None if wanted[name] in missing else job_of(cell).run(cell, own)
        for name, (cell, own) in planned.items()
    }
    todo = []
    for name, run in found.items():  # all are checked before the first is touched
        folder = RunFolder(runs / name)
        if run is None:
            print(f"{folder.state:12} {folder.path}: not checked without data")
            continue
        same = folder.check(run)
        if options.dry_run:
            print(f"{folder.state:12} {folder.path}")
        elif not (same and folder.is_finished) and not _is_held(folder):
            todo.append((folder, run))
    if options.dry_run:
        return 0
    for folder, run in todo:
        folder.prepare(run)
    print(f"{len(found)} runs, {len(todo)} to do", flush=True)
    folders = [folder for folder, _ in todo]
    if options.cluster == "slurm":
        submit_all(folders, runs, gpus, dict(options.slurm))
        return 0
    in_process = options.cluster == "debug"
    slots = Slots(gpus, 1 if in_process else options.jobs)
    ended = run_all(folders, runs, slots, in_process, options.interval)
    if ended[FAILED]:
        print(f"to resume: {options.command_line}")
        return 1
    return EXIT_RESUMABLE if ended[INTERRUPTED] else 0


def _gpus(cells: list[Any], preset: Any, options: argparse.Namespace) -> int:
    """GPUs of each run: as asked for, or the preset's where the machine has some."""
    from .jobs import job_of, with_needs
    from .launcher import visible_gpus

    gpus = options.gpus
    if gpus is None:
        gpus = preset.gpus_per_run
        if options.cluster != "slurm" and not visible_gpus():
            if gpus > 1:
                raise ValueError(
                    f"--preset {preset.name} takes {gpus} GPUs a run and this machine "
                    "has none; --gpus 0 trains on the CPU"
                )
            gpus = 0
    limits = [job_of(cell).most_gpus for cell in with_needs(cells)]
    return min(gpus, *limits) if all(limits) else gpus


def _check_set(cells: list[Any], options: argparse.Namespace) -> None:
    """Refuse a ``--set`` that would take from a table what it compares."""
    for given, value in options.set:
        task, _, key = given.rpartition(":")
        if any(key in cell.sweep for cell in cells):
            raise ValueError(
                f"--set {given}: the table has values of its own to choose from; "
                "--sweep takes some of them"
            )
        others = [
            c.overrides[key] for c in cells if c.overrides.get(key, value) != value
        ]
        if others and not task:
            raise ValueError(
                f"--set {given}={value}: rows or columns have values of their own, as "
                f"{others[0]}; allowed: --rows and --columns without them"
            )


def _check_tasks(options: argparse.Namespace, used: set[str]) -> None:
    """Refuse what reaches no run."""
    given = {f"--data {task}=...": task for task, _ in options.data}
    given |= {f"--set {key}": key.rpartition(":")[0] for key, _ in options.set}
    for said, task in given.items():
        if task and task not in used:
            allowed = ", ".join(sorted(used))
            raise ValueError(f"{said}: tasks of these runs are: {allowed}")


def _is_held(folder: Any) -> bool:
    """Whether somebody has a run already, which is printed."""
    from .launcher import is_queued
    from .runs import RUNNING

    if folder.state == RUNNING:
        print(f"skipped  {folder.path}: another process trains it")
        return True
    # a job that was requeued waits with the state of its last attempt
    if folder.job and is_queued(folder.job):
        print(f"skipped  {folder.path}: job {folder.job} of Slurm has it")
        return True
    return False


def _status(options: argparse.Namespace) -> int:
    """From the folders alone: nothing is composed."""
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


def _report(options: argparse.Namespace) -> int:
    from .schema import load_preset, load_tables, names_in

    known = names_in(options.config_dir / "tables")
    names = known if "all" in options.tables else options.tables or known
    preset = load_preset(options.config_dir, options.preset)
    return _write(load_tables(options.config_dir, names, preset), preset, options)


def _write(tables: list[Any], preset: Any, options: argparse.Namespace) -> int:
    """Add rows of the runs to the results, and write their pages."""
    from .report import write

    conditions = _conditions(options, preset)
    problems = write(tables, conditions, options.runs_dir.resolve(), options.results)
    for line in problems:
        print(line, file=sys.stderr)
    return 1 if problems else 0


def _claims(options: argparse.Namespace) -> int:
    from . import claims

    claims.write(
        options.config_dir,
        options.page.stem,
        options.results,
        options.presets,
        options.page,
        options.command_line,
    )
    print(f"written: {options.page}")
    return 0


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not (key and equals and value):
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
_YAML = "a name in configs/presets/ or a path of a YAML file"
_TABLES = "names in configs/tables/, paths of YAML files, or all"
_SET = "change a value of every run, as optimization.max_update=500, or of a task's "
_SET += "runs; folders and results are named by it"
# the help, and what argparse is told; an option means the same in every command
OPTIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "tables": (_TABLES, {"nargs": "*", "metavar": "TABLE"}),
    "checkpoint": ("of a bidirectional model, pre-trained", {"type": Path}),
    "problems": ("in configs/classification/, all, or own", {"nargs": "+"}),
    "--config-dir": ("with tables/ and presets/", {"type": Path, "default": CONFIGS}),
    "--preset": (_YAML, {"default": "paper"}),
    "--runs-dir": ("of the runs", {"type": Path, "default": Path("runs/tables")}),
    "--results": ("with runs.csv", {"type": Path, "default": Path("results")}),
    "--rows": ("these rows only", _MANY | {"metavar": "ROW"}),
    "--columns": ("these columns only", _MANY | {"metavar": "COLUMN"}),
    "--sweep": (
        "of a table's sweep these values, as optimization.lr=[0.0003]",
        _MANY | {"type": _setting, "metavar": "KEY=[VALUE,...]"},
    ),
    "--data": (
        "data for a task of the preset, as language_modeling, instead of its own",
        _MANY | {"type": _pair, "metavar": "TASK=DIR"},
    ),
    "--set": (_SET, _MANY | {"type": _setting, "metavar": "[TASK:]KEY=VALUE"}),
    "--seeds": ("of the runs", {"nargs": "+", "type": _SEED, "default": [1]}),
    "--gpus": ("of each run; 0: the CPU; by default the preset's", {"type": _COUNT}),
    "--jobs": ("runs at once; by default as many as fit", {"type": positive_integer}),
    "--cluster": (
        "local: processes of this machine; slurm: its jobs; debug: this process",
        {"choices": ("local", "slurm", "debug"), "default": "local"},
    ),
    "--slurm": (
        "an option of sbatch, as partition=gpu, or time=MINUTES",
        _MANY | {"type": _pair, "metavar": "KEY=VALUE"},
    ),
    "--prepare": ("make missing data", {"action": "store_true"}),
    "--dry-run": ("print what would be run, and check it", {"action": "store_true"}),
    "--interval": ("seconds between lines of progress", {"type": float, "default": 30}),
    "--name": ("of the checkpoint in folders; by default of its weights", {}),
    "--lr": (
        "learning rates to choose from on the development set",
        {"nargs": "+", "type": float, "default": [1e-5, 3e-5, 6e-5, 1e-4]},
    ),
    "--pooling": ("other than the checkpoint's", {"choices": ("first", "mean")}),
    "--presets": (
        "a claim is judged by the first that has its figures",
        {"nargs": "+", "default": ["paper", "medium", "small"]},
    ),
    "--page": (
        "to write",
        {"type": Path, "default": Path("docs/does_the_paper_hold.md")},
    ),
}
RUNNING = "--data --set --seeds --gpus --jobs --cluster --slurm --prepare --dry-run "
RUNNING += "--interval --preset --runs-dir"
# name -> function, help, options, other defaults
COMMANDS: dict[str, tuple[Callable[..., int], str, str, dict[str, Any]]] = {
    "list": (_list, "tables, their rows, and presets", "tables", {}),
    "run": (
        _run,
        "train what is not finished; the same command resumes",
        f"tables --rows --columns --sweep {RUNNING}",
        {},
    ),
    "status": (_status, "how far every run is", "--preset --runs-dir", {}),
    "report": (
        _report,
        "add the runs' results to results/runs.csv, and write the preset's page",
        "tables --preset --runs-dir --results --data --set",
        {},
    ),
    "claims": (
        _claims,
        "judge the paper's claims by results/runs.csv",
        "--results --presets --page",
        {},
    ),
    "finetune": (
        _finetune,
        "fine-tune a checkpoint on problems of GLUE or of yours, at the best of some "
        "learning rates; the same command resumes; ends with a report",
        f"checkpoint problems --name --lr --pooling --results {RUNNING}",
        {
            "preset": "finetune",
            "runs_dir": Path("runs/finetune"),
            "results": Path("results/finetune"),
        },
    ),
}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        description="Runs the paper's tables and sets what is measured beside them. "
        "docs/reproduction.md explains it.",
        allow_abbrev=False,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    for name, (function, told, options, defaults) in COMMANDS.items():
        command = commands.add_parser(
            name,
            help=told,
            description=told,
            allow_abbrev=False,
            formatter_class=argparse.ArgumentDefaultsHelpFormatter,
        )
        for option in ("--config-dir", *options.split()):
            says, values = OPTIONS[option]
            command.add_argument(option, help=says, **values)
        command.set_defaults(function=function, **defaults)
    return parser
