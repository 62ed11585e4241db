"""What commands share: cells are checked and run, figures are reported."""

import sys
from pathlib import Path

from ..installation import working_folder
from ..training.exit_code import EXIT_RESUMABLE
from . import data, launcher, schema
from .jobs import job_of, of_seeds, with_needs
from .metrics import reader_of
from .options import Running, Runs, pairs, settings
from .plan import Conditions, task_of
from .runs import FAILED, INTERRUPTED, RUNNING, RunFolder
from .schema import Cell, Preset, Table, plain


def conditions_of(options: Runs, preset: Preset, gpus: int = 0) -> Conditions:
    """Of all runs of a command."""
    folders = dict(pairs("--data", options.data))
    return Conditions(
        configs=options.config_dir.resolve(),
        root=working_folder(),
        preset=preset,
        gpus=gpus,
        data={task: str(Path(folder).resolve()) for task, folder in folders.items()},
        overrides=dict(settings("--set", options.set)),
    )


def run_cells(cells: list[Cell], preset: Preset, options: Running) -> int:
    """Train what is not finished of the cells' runs; returns the exit code."""
    gpus = _gpus(cells, preset, options)
    conditions = conditions_of(options, preset, gpus)
    _check_set(cells, conditions)
    runs = options.runs_dir.resolve()
    print(f"checking runs; figures: {len(cells)}", flush=True)  # takes seconds
    planned = of_seeds(cells, conditions, options.seeds)
    wanted = {n: job_of(cell).data(cell, own) for n, (cell, own) in planned.items()}
    _check_tasks(conditions, {each.conditions for each in wanted.values()})
    for cell in cells:
        reader_of(cell.metric)  # or raises
    early = {
        name: job_of(cell).run(cell, own)  # before data are prepared, or raises
        for name, (cell, own) in planned.items()
        if not job_of(cell).reads_data
    }
    missing = data.require(
        preset, {*wanted.values()}, working_folder(), options.prepare, options.dry_run
    )
    todo = []
    for name, (cell, own) in planned.items():  # all are checked before one is touched
        folder = RunFolder(runs / name)
        if wanted[name] in missing:
            print(f"{folder.state:12} {folder.path}: not checked without data")
            continue
        planned_run = early.get(name) or job_of(cell).run(cell, own)
        same = folder.check(planned_run)
        if options.dry_run:
            print(f"{folder.state:12} {folder.path}")
        elif not (same and folder.is_finished) and not is_held(folder):
            todo.append((folder, planned_run))
    if options.dry_run:
        return 0
    for folder, planned_run in todo:
        folder.prepare(planned_run)
    many = "s" * (len(planned) != 1)
    print(f"{len(planned)} run{many}, {len(todo)} to do", flush=True)
    folders = [folder for folder, _ in todo]
    if options.cluster == "slurm":
        launcher.submit_all(folders, runs, gpus, dict(pairs("--slurm", options.slurm)))
        return 0
    in_process = options.cluster == "debug"
    slots = launcher.Slots(gpus, 1 if in_process else options.jobs)
    ended = launcher.run_all(folders, runs, slots, in_process, options.interval)
    if ended[FAILED]:
        print("the same command resumes")
        return 1
    return EXIT_RESUMABLE if ended[INTERRUPTED] else 0


def _gpus(cells: list[Cell], preset: Preset, options: Running) -> int:
    """GPUs of each run: as asked for, or the preset's where the machine has some."""
    gpus = options.gpus
    if gpus is None:
        gpus = preset.gpus_per_run
        if options.cluster != "slurm" and not launcher.visible_gpus():
            if gpus > 1:
                why = f"--preset {preset.name} takes {gpus} GPUs a run, here are none"
                raise ValueError(f"{why}; --gpus 0: the CPU")
            gpus = 0
    limits = [job_of(cell).most_gpus for cell in with_needs(cells)]
    return min(gpus, *limits) if all(limits) else gpus


def _check_set(cells: list[Cell], conditions: Conditions) -> None:
    """Refuse a ``--set`` that would take from a table what it compares."""
    for given, value in conditions.overrides.items():
        task, _, key = given.rpartition(":")
        if any(key in cell.sweep for cell in cells):
            why = "the table has values to choose from; --sweep takes some of them"
            raise ValueError(f"--set {given}: {why}")
        own = [
            cell.overrides.get(key)
            for cell in cells
            if not task or cell.job != "train" or task == task_of(cell, conditions)
        ]
        named = [each for each in own if each is not None]
        if named and any(plain(each) != plain(value) for each in own):
            why = f"rows or columns have values of their own, as {named[0]}"
            allowed = "--rows and --columns without them"
            raise ValueError(f"--set {given}={value}: {why}; allowed: {allowed}")


def _check_tasks(conditions: Conditions, used: set[str]) -> None:
    """Refuse what reaches no run."""
    given = {f"--data {task}=...": task for task in conditions.data}
    given |= {f"--set {key}": key.rpartition(":")[0] for key in conditions.overrides}
    for said, task in given.items():
        if task:
            schema.named_in(f"{said}: task", task, sorted(used))


def is_held(folder: RunFolder) -> bool:
    """Whether somebody has a run already, which is printed."""
    if folder.state == RUNNING:
        print(f"skipped  {folder.path}: another process trains it")
        return True
    # a job that was requeued waits with the state of its last attempt
    if folder.job and launcher.is_queued(folder.job):
        print(f"skipped  {folder.path}: job {folder.job} of Slurm has it")
        return True
    return False


def report(tables: list[Table], preset: Preset, options: Runs, results: Path) -> int:
    """Add the runs' figures to the results, and write the page; the exit code."""
    from .report import write  # it imports pandas and scipy: a second

    conditions, runs = conditions_of(options, preset), options.runs_dir.resolve()
    problems = write(tables, conditions, runs, results)
    for line in problems:
        print(line, file=sys.stderr)
    return 1 if problems else 0
