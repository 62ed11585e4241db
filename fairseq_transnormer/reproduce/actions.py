"""What the commands do: tables are chosen, checked and run, figures are reported."""

import sys
from argparse import Namespace
from pathlib import Path

from ..installation import working_folder
from ..training.exit_code import EXIT_RESUMABLE
from . import data, launcher, schema
from .finetune import checkpoint_table
from .jobs import job_of, of_seeds, with_needs
from .metrics import reader_of
from .plan import Conditions
from .runs import FAILED, INTERRUPTED, RUNNING, RunFolder
from .schema import Cell, Preset, Table, load_preset, load_table, load_tables, names_in
from .text import number


def list_tables(options: Namespace) -> int:
    """Tables with the paper's figures, and presets."""
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


def conditions_of(options: Namespace, preset: Preset, gpus: int = 0) -> Conditions:
    """Of all runs of a command."""
    return Conditions(
        configs=options.config_dir.resolve(),
        root=working_folder(),
        preset=preset,
        gpus=gpus,
        data={task: str(Path(folder).resolve()) for task, folder in options.data},
        overrides=dict(options.set),
    )


def run(options: Namespace) -> int:
    """Train what is not finished."""
    if not options.tables:
        raise ValueError("run: which TABLE? reproduce list names them; or all")
    preset = load_preset(options.config_dir, options.preset)
    chosen: dict[str, list] = {}
    for key, value in options.sweep:
        chosen.setdefault(key, []).extend(value if isinstance(value, list) else [value])
    tables = load_tables(options.config_dir, options.tables, preset)
    tables = schema.with_sweep_values(tables, chosen)
    rows, columns = options.rows, options.columns
    cells = schema.chosen_cells(tables, rows, columns, preset.columns)
    return _run_cells(cells, preset, options)


def finetune(options: Namespace) -> int:
    """Fine-tune a checkpoint, and report."""
    preset = load_preset(options.config_dir, options.preset)
    given = options.checkpoint, options.problems, options.lr, options.name
    table = checkpoint_table(options.config_dir, *given, options.pooling)
    code = _run_cells(table.cells, preset, options)
    if options.dry_run or options.cluster == "slurm":
        return code
    return _write([table], preset, options) or code


def _run_cells(cells: list[Cell], preset: Preset, options: Namespace) -> int:
    gpus = _gpus(cells, preset, options)
    conditions = conditions_of(options, preset, gpus)
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
    todo = []
    for name, (cell, own) in planned.items():  # all are checked before one is touched
        folder = RunFolder(runs / name)
        if wanted[name] in missing:
            print(f"{folder.state:12} {folder.path}: not checked without data")
            continue
        planned_run = job_of(cell).run(cell, own)
        same = folder.check(planned_run)
        if options.dry_run:
            print(f"{folder.state:12} {folder.path}")
        elif not (same and folder.is_finished) and not is_held(folder):
            todo.append((folder, planned_run))
    if options.dry_run:
        return 0
    for folder, planned_run in todo:
        folder.prepare(planned_run)
    print(f"{len(planned)} runs, {len(todo)} to do", flush=True)
    folders = [folder for folder, _ in todo]
    if options.cluster == "slurm":
        launcher.submit_all(folders, runs, gpus, dict(options.slurm))
        return 0
    in_process = options.cluster == "debug"
    slots = launcher.Slots(gpus, 1 if in_process else options.jobs)
    ended = launcher.run_all(folders, runs, slots, in_process, options.interval)
    if ended[FAILED]:
        print(f"to resume: {options.command_line}")
        return 1
    return EXIT_RESUMABLE if ended[INTERRUPTED] else 0


def _gpus(cells: list[Cell], preset: Preset, options: Namespace) -> int:
    """GPUs of each run: as asked for, or the preset's where the machine has some."""
    gpus = options.gpus
    if gpus is None:
        gpus = preset.gpus_per_run
        if options.cluster != "slurm" and not launcher.visible_gpus():
            if gpus > 1:
                why = f"takes {gpus} GPUs a run and this machine has none"
                raise ValueError(f"--preset {preset.name} {why}; --gpus 0: the CPU")
            gpus = 0
    limits = [job_of(cell).most_gpus for cell in with_needs(cells)]
    return min(gpus, *limits) if all(limits) else gpus


def _check_set(cells: list[Cell], options: Namespace) -> None:
    """Refuse a ``--set`` that would take from a table what it compares."""
    for given, value in options.set:
        task, _, key = given.rpartition(":")
        if any(key in cell.sweep for cell in cells):
            why = "the table has values to choose from; --sweep takes some of them"
            raise ValueError(f"--set {given}: {why}")
        own = [cell.overrides.get(key, value) for cell in cells]
        if not task and (others := [each for each in own if each != value]):
            why = f"rows or columns have values of their own, as {others[0]}"
            allowed = "--rows and --columns without them"
            raise ValueError(f"--set {given}={value}: {why}; allowed: {allowed}")


def _check_tasks(options: Namespace, used: set[str]) -> None:
    """Refuse what reaches no run."""
    given = {f"--data {task}=...": task for task, _ in options.data}
    given |= {f"--set {key}": key.rpartition(":")[0] for key, _ in options.set}
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


def report_tables(options: Namespace) -> int:
    """Add the runs' figures to the results, and write the page."""
    configs, names = options.config_dir, options.tables
    if not names or "all" in names:
        names = names_in(configs / "tables")
    preset = load_preset(configs, options.preset)
    return _write(load_tables(configs, names, preset), preset, options)


def _write(tables: list[Table], preset: Preset, options: Namespace) -> int:
    from . import report  # it imports pandas and scipy: a second

    conditions, runs = conditions_of(options, preset), options.runs_dir.resolve()
    problems = report.write(tables, conditions, runs, options.results)
    for line in problems:
        print(line, file=sys.stderr)
    return 1 if problems else 0


def judge_claims(options: Namespace) -> int:
    """Write the page of verdicts."""
    from . import claims

    given = options.config_dir, options.page, options.results, options.presets
    claims.write(*given, options.command_line)
    print(f"written: {options.page}")
    return 0


ACTIONS = {
    "list": list_tables,
    "run": run,
    "finetune": finetune,
    "report": report_tables,
    "claims": judge_claims,
}
