"""``python -m fairseq_transnormer reproduce``: list, run, status, report, claims."""

import argparse
import shlex
import sys
from pathlib import Path
from typing import Any

from ..data.whole_files import write_text
from ..installation import working_folder
from ..missing_packages import explanation
from ..training.config import ConfigurationError
from ..training.exit_code import EXIT_RESUMABLE
from .arguments import PROGRAM, parser
from .errors import ReproduceError
from .reports.claims import judge, load_claims
from .reports.claims_page import claims_page
from .reports.markdown import correlations_of, deviation_of, number
from .reports.reporting import make_out, rewrite_report, write_report, written_to
from .reports.results import errors_of
from .reports.run_figures import incomplete_folders, seeds_of
from .runs import slurm
from .runs.devices import Slot, chosen_gpus, make_slots
from .runs.forking import Forks
from .runs.metrics import NotMeasured, RunResults, read_metric
from .runs.plans import Plan
from .runs.processes import Launch, LoggedProcess
from .runs.progress import Progress
from .runs.run_folder import RunFolder
from .runs.scheduling import run_all
from .tables import corpora
from .tables.definitions import (
    Cell,
    Table,
    chosen_cells,
    load_tables,
    plain,
    table_names,
    with_sweep_values,
)
from .tables.fine_tuning import check_name, checkpoint_table
from .tables.jobs import Conditions, check_checkpoints, job_of, with_needs
from .tables.planning import plan_all
from .tables.presets import Preset, load_preset
from .yaml_files import names_in


def main(argv: list[str] | None = None) -> int:
    """Command line; returns the exit code.

    0: all is well; 1: a run failed; 2: a mistake in what was given; 75: a run was
    stopped by a signal of its own; 130: interrupted.
    """
    arguments = parser().parse_args(argv)
    commands = {
        "list": _list,
        "run": _run,
        "status": _status,
        "report": _report,
        "claims": _claims,
        "finetune": _finetune,
        "execute": _execute,
    }
    try:
        _require_configurations(arguments.config_dir)
        arguments.command_line = shlex.join(
            [
                *PROGRAM.split(),
                *(sys.argv[1:] if argv is None else argv),
            ]
        )
        return commands[arguments.command](arguments)
    except (ReproduceError, ConfigurationError) as error:
        print(f"{PROGRAM}: error: {error}", file=sys.stderr)
        return 2
    except ImportError as error:
        print(
            f"{PROGRAM} {arguments.command}: error: {explanation(error)}",
            file=sys.stderr,
        )
        return 2
    except KeyboardInterrupt:
        print(
            f"{PROGRAM}: interrupted; the same command resumes",
            file=sys.stderr,
        )
        return 130


def _require_configurations(folder: Path) -> None:
    if not (folder / "tables").is_dir():
        raise ReproduceError(
            f"--config-dir {folder}: no folder tables/ in it; give the configs/ of the "
            "repository"
        )


def _list(arguments: argparse.Namespace) -> int:
    configs = arguments.config_dir
    for table in load_tables(configs, arguments.tables or ["all"]):
        print(f"{table.name}: {table.title}")
        for row in table.rows:
            cells = [table.cell(row, column) for column in table.columns]
            paper = ", ".join(f"{c.column} {number(c.paper) or '-'}" for c in cells)
            print(f"    {row}: {paper}")
    if not arguments.tables:
        for name in names_in(configs / "presets"):
            print(f"preset {name}: {load_preset(configs, name).description}")
    return 0


def _conditions(
    arguments: argparse.Namespace, preset: Preset, seed: int, gpus: int
) -> Conditions:
    return Conditions(
        configs=arguments.config_dir,
        root=working_folder(),
        preset=preset,
        seed=seed,
        gpus=gpus,
        data={task: str(Path(folder).resolve()) for task, folder in arguments.data},
        overrides=dict(arguments.set),
    )


def _run(arguments: argparse.Namespace) -> int:
    configs = arguments.config_dir
    preset = load_preset(configs, arguments.preset)
    tables = load_tables(configs, arguments.tables, preset)
    chosen: dict[str, list] = {}
    for key, value in arguments.sweep:
        chosen.setdefault(key, []).extend(value if isinstance(value, list) else [value])
    tables = with_sweep_values(tables, chosen)
    cells = chosen_cells(tables, arguments.rows, arguments.columns, preset.columns)
    return _run_cells(cells, arguments, preset)


def _run_cells(cells: list[Cell], arguments: argparse.Namespace, preset: Preset) -> int:
    gpus_per_run, slots = _devices(arguments, preset, cells)
    all_conditions = [
        _conditions(arguments, preset, seed, gpus_per_run)
        for seed in dict.fromkeys(arguments.seeds)
    ]
    _check_settings(cells, all_conditions[0], arguments)
    cells = with_needs(cells)
    launch = _launcher(arguments, slots)
    data = [job_of(cell).data(cell, all_conditions[0]) for cell in cells]
    if arguments.dry_run:
        missing = corpora.foretell(
            preset, set(data), working_folder(), arguments.prepare
        )
        without = [
            cell for cell, its in zip(cells, data, strict=True) if its in missing
        ]
        _foretell(without, all_conditions, arguments)
        cells = [
            cell for cell, its in zip(cells, data, strict=True) if its not in missing
        ]
    else:
        corpora.require(preset, set(data), working_folder(), arguments.prepare)
    folders = _prepared(plan_all(cells, all_conditions), arguments)
    if arguments.dry_run:
        return 0
    if arguments.slurm:
        return _submit(folders, gpus_per_run, arguments.sbatch)
    progress = Progress(folders, arguments.interval)
    ended = run_all(folders, slots, progress, launch)
    for folder in ended["failed"]:
        print(f"failed: {folder.path}; its log: {folder.path / 'train.log'}")
    if ended["failed"]:
        print(f"to resume: {arguments.command_line}")
    return _exit_code(ended)


def _check_settings(
    cells: list[Cell], conditions: Conditions, arguments: argparse.Namespace
) -> None:
    """Raise ReproduceError for --data and --set that no run takes, or that would take
    from the table what it compares."""
    swept = {
        (job_of(cell).data(cell, conditions).task, key)
        for cell in cells
        for key in cell.sweep
    }
    own = [
        (job_of(cell).data(cell, conditions).task, cell.overrides)
        for cell in with_needs(cells)
    ]
    tasks = sorted({task for task, _ in own} - {""})
    for option in ("data", "set"):
        keys = [key for key, _ in getattr(arguments, option)]
        twice = [key for key in dict.fromkeys(keys) if keys.count(key) > 1]
        if twice:
            raise ReproduceError(f"--{option} {twice[0]}: given twice; allowed: once")
    for task in conditions.data or {}:
        _check_task(f"--data {task}=...", task, tasks)
    for given, value in (conditions.overrides or {}).items():
        task, colon, key = given.rpartition(":")
        _check_task(f"--set {given}", task if colon else None, tasks)
        if any(key == each and task in ("", of) for of, each in swept):
            raise ReproduceError(
                f"--set {given}: the table has values of its own to choose from; "
                "--sweep (run) or --lr (finetune) takes some of them"
            )
        others = [
            its[key]
            for of, its in own
            if task in ("", of) and key in its and its[key] != value
        ]
        if others:
            raise ReproduceError(
                f"--set {given}={value}: rows or columns have values of their own, by "
                f"which they are named, as {others[0]}; allowed: --rows and --columns "
                "without them, or a table of yours"
            )


def _check_task(given: str, task: str | None, tasks: list[str]) -> None:
    """Raise ReproduceError unless what is given reaches a run."""
    if tasks and (task is None or task in tasks):
        return
    allowed = ", ".join(tasks) or "none, for what is run is a measurement"
    raise ReproduceError(f"{given}: tasks of what is run are: {allowed}")


def _finetune(arguments: argparse.Namespace) -> int:
    """Fine-tune the checkpoint and report, finished or not."""
    configs = arguments.config_dir
    preset = load_preset(configs, arguments.preset)
    table = checkpoint_table(
        configs,
        arguments.checkpoint,
        arguments.problems,
        arguments.lr,
        arguments.name,
        arguments.pooling,
    )
    check_name(table, arguments.checkpoint, arguments.runs_dir / preset.name)
    if not (arguments.dry_run or arguments.slurm):
        make_out(arguments.out / preset.name)
    status = _run_cells(chosen_cells([table], None), arguments, preset)
    if not (arguments.dry_run or arguments.slurm):
        status = _write([table], arguments, preset) or status
    return status


def _devices(
    arguments: argparse.Namespace, preset: Preset, cells: list[Cell]
) -> tuple[int, list[Slot]]:
    """GPUs of each run (0: the CPU) and the slots for runs."""
    per_run = arguments.gpus_per_run or preset.gpus_per_run
    limits = [job_of(cell).most_devices for cell in cells]
    if limits and None not in limits:
        per_run = min(per_run, *limits)
    if arguments.slurm:
        slurm.require_slurm()
        return (0 if arguments.gpus == "none" else per_run), []
    gpus = chosen_gpus(arguments.gpus)
    if not gpus and arguments.gpus == "auto" and per_run > 1:
        raise ReproduceError(
            f"--preset {preset.name} takes {per_run} GPUs a run and this machine has "
            "none; --gpus none trains on the CPU all the same"
        )
    return (per_run if gpus else 0), make_slots(gpus, per_run, arguments.jobs)


def _launcher(arguments: argparse.Namespace, slots: list[Slot]) -> Launch:
    """How the runs' processes are started."""
    if not arguments.fork:
        return LoggedProcess
    if arguments.slurm or any(slot.gpus for slot in slots):
        raise ReproduceError(
            "--fork is for runs on the CPU of this machine; allowed: with --gpus none, "
            "without --slurm"
        )
    threads = {slot.environment()["OMP_NUM_THREADS"] for slot in slots}
    if threads != {"1"}:
        # OpenMP's threads are not in a fork, which would wait for them for ever
        raise ReproduceError(
            f"--fork with {', '.join(threads)} threads a run; allowed: 1, by "
            "OMP_NUM_THREADS=1 or as many --jobs as there are cores"
        )
    return Forks()


def _prepared(plans: list[Plan], arguments: argparse.Namespace) -> list[RunFolder]:
    """The folders of what is to be run; all are checked before the first is touched."""
    runs_dir = arguments.runs_dir.resolve()
    folders = [(RunFolder(runs_dir / plan.name), plan) for plan in plans]
    states, holders = {}, {}
    for folder, plan in folders:
        status = folder.status()
        states[plan.name], holders[plan.name] = status["state"], _holder(status)
        folder.check(plan, holders[plan.name])
        check_checkpoints(folder, plan)
    todo = []
    for folder, plan in folders:
        if holders[plan.name]:
            print(f"skipped  {folder.path}: {holders[plan.name]}")
        elif arguments.dry_run:
            print(f"{states[plan.name]:12} {folder.path}")
        else:
            try:
                folder.prepare(plan)
            except OSError as error:
                raise ReproduceError(
                    f"{folder.path}: {error.strerror}; allowed: a --runs-dir that can "
                    "be written to"
                ) from error
            if not folder.is_finished():
                todo.append(folder)
    if not arguments.dry_run:
        print(f"{len(folders)} runs, {len(todo)} to do", flush=True)
    return todo


def _holder(status: dict[str, Any]) -> str:
    """Who has a run already, as a phrase; empty if nobody has."""
    state, job = status["state"], status.get("slurm_job")
    if state == "running":
        return "another runner is at work in it"
    # a job that was requeued waits with the state of its last attempt
    if job and state in ("submitted", "interrupted") and slurm.is_queued(job):
        return f"job {job} of Slurm has it"
    return ""


def _foretell(
    cells: list[Cell], all_conditions: list[Conditions], arguments: argparse.Namespace
) -> None:
    """Print the runs that cannot be checked before their data are there."""
    names = {
        job_of(cell).name(cell, each if cell.seed is None else each.of(cell.seed)): None
        for each in all_conditions
        for cell in cells
    }
    for name in names:
        folder = RunFolder(arguments.runs_dir.resolve() / name)
        print(f"{folder.status()['state']:12} {folder.path}: not checked without data")


def _submit(folders: list[RunFolder], gpus: int, options: list[str]) -> int:
    jobs: dict[Path, str] = {}
    for folder in folders:
        unfinished = [each for each in folder.needs() if not each.is_finished()]
        before = [
            jobs.get(each.path) or each.status().get("slurm_job") for each in unfinished
        ]
        if None in before:
            raise ReproduceError(
                f"{folder.path} needs {unfinished[before.index(None)].path}, which is "
                "neither finished nor submitted"
            )
        after = []
        if before:
            # else it stays pending for ever once a run that it needs has failed
            numbers = [job.partition(";")[0] for job in before]
            after += [f"--dependency=afterok:{':'.join(numbers)}"]
            after += ["--kill-on-invalid-dep=yes"]
        jobs[folder.path] = slurm.submit(folder, gpus, [*after, *options])
        print(f"submitted {folder.path}: job {jobs[folder.path]}")
    return 0


def _status(arguments: argparse.Namespace) -> int:
    configs = arguments.config_dir
    preset = load_preset(configs, arguments.preset)
    conditions = Conditions(configs, working_folder(), preset)
    for table in load_tables(configs, arguments.tables or ["all"], preset):
        # rows take seconds to be composed
        print(f"{table.name}: {table.title}", flush=True)
        shown = set()
        for cell in with_needs(chosen_cells([table], None, None, preset.columns)):
            runs = seeds_of(cell, conditions, arguments.runs_dir)
            if runs.name in shown:
                continue
            shown.add(runs.name)
            if not runs.seeds:
                print(f"    {cell.row} ({runs.name}): not run", flush=True)
            for seed, results in runs.seeds.items():
                total = results.folder.description()["updates"]
                done = read_metric("updates", results) or 0
                name, figure = _best_validation(results)
                other = results.is_finished and results.problem
                print(
                    f"    {cell.row} ({runs.name}) seed {seed}: "
                    f"{results.status['state']}, {done:.0f}/{total} updates, "
                    f"validation {name} {number(figure) or '-'}"
                    + (f"; not reported: {other}" if other else ""),
                    flush=True,
                )
        for line in incomplete_folders([table], conditions, arguments.runs_dir):
            print(f"    {line}")
    return 0


def _best_validation(results: RunResults) -> tuple[str, float | None]:
    """By what the best checkpoint is chosen; perplexity rather than the loss."""
    name = results.selection[0]
    shown, metric = (
        ("perplexity", "valid_ppl") if name == "loss" else (name, "selection")
    )
    try:
        return shown, read_metric(metric, results)
    except NotMeasured:
        return shown, None


def _report(arguments: argparse.Namespace) -> int:
    configs = arguments.config_dir
    preset = load_preset(configs, arguments.preset)
    if not arguments.from_results:
        tables = load_tables(configs, arguments.tables or ["all"], preset)
        return _write(tables, arguments, preset, arguments.add)
    out = arguments.out / preset.name
    names = arguments.tables or [
        name for name in table_names(configs) if (out / f"{name}.json").exists()
    ]
    if not names:
        raise ReproduceError(
            f"--out {out}: no reports in it; allowed: a folder that report has written"
        )
    tables = load_tables(configs, names, preset)
    with written_to(out):
        all_measured = rewrite_report(tables, preset, out)
    return _tell(all_measured, out)


def _write(
    tables: list[Table],
    arguments: argparse.Namespace,
    preset: Preset,
    add: bool = False,
) -> int:
    """Write the report; 1 if a finished run has no figure to report."""
    out = arguments.out / preset.name
    conditions = Conditions(arguments.config_dir, working_folder(), preset)
    with written_to(out):
        all_measured = write_report(
            tables, conditions, arguments.runs_dir, out, arguments.command_line, add
        )
    for line in incomplete_folders(tables, conditions, arguments.runs_dir):
        print(line, file=sys.stderr)
    return _tell(all_measured, out)


def _tell(all_measured: list[dict[str, Any]], out: Path) -> int:
    """Print what a report says; its exit code."""
    for measured in all_measured:
        for column, found in measured["agreement"].items():
            if found:
                spearman = correlations_of(found)[0]
                ranks = f"Spearman {spearman}, " if spearman else ""
                print(
                    f"{measured['table']} {column}: {found['rows']} rows, {ranks}"
                    f"{len(found['disagreements'])} pairs in another order"
                )
        if not measured["agreement"]:
            _print_figures(measured)
    print(f"written: {out}")
    errors = [error for measured in all_measured for error in errors_of(measured)]
    for error in dict.fromkeys(errors):
        print(f"error: {error}", file=sys.stderr)
    return 1 if errors else 0


def _print_figures(measured: dict[str, Any]) -> None:
    """Of a table without an order to compare."""
    for row, cells in measured["rows"].items():
        for column, cell in cells.items():
            if cell["measured"] is None:
                continue
            deviation = deviation_of(cell["measured"], cell["deviation"])
            chosen = [
                " ".join(
                    f"{key}={plain(value)}" for key, value in each["values"].items()
                )
                for each in cell.get("sweep", ())
                if each["run"] == cell["run"]
            ]
            seeds = f"seeds {', '.join(map(str, cell['seeds']))}"
            how = "; ".join([*chosen, seeds, *filter(None, [cell["not_complete"]])])
            print(f"{row} {column}: {number(cell['measured'])}{deviation} ({how})")


def _claims(arguments: argparse.Namespace) -> int:
    sections = load_claims(arguments.config_dir, arguments.page.stem)
    folders = [arguments.results / name for name in arguments.presets]
    if not any(folder.is_dir() for folder in folders):
        raise ReproduceError(
            f"--results {arguments.results}: no folder "
            f"{' or '.join(arguments.presets)} in it; report writes them"
        )
    judged = {
        section: [judge(claim, folders) for claim in claims]
        for section, claims in sections.items()
    }
    page = claims_page(judged, arguments.page.parent, arguments.command_line)
    try:
        write_text(arguments.page, page)
    except OSError as error:
        raise ReproduceError(
            f"--page {arguments.page}: {error.strerror}; allowed: a file that can be "
            "written"
        ) from error
    print(f"written: {arguments.page}")
    return 0


def _execute(arguments: argparse.Namespace) -> int:
    folder = RunFolder(arguments.folder.resolve())
    if not folder.exists():
        raise ReproduceError(f"{folder.path}: no run was prepared in this folder")
    gpus = chosen_gpus(arguments.gpus)
    slots = [Slot(tuple(gpus))] if gpus else make_slots([], 1, None)
    return _exit_code(run_all([folder], slots, Progress([folder], interval=60)))


def _exit_code(ended: dict[str, list[RunFolder]]) -> int:
    if ended["failed"]:
        return 1
    return EXIT_RESUMABLE if ended["interrupted"] else 0
