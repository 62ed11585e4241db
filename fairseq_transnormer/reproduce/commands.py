"""``python -m fairseq_transnormer reproduce``: list, run, status, report, claims.

Exit codes: 1: a run failed; 75: a signal stopped one; 130: interrupted.
"""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import Annotated, Literal

import tyro

from .. import cli
from ..installation import CONFIGS
from .options import (
    FINE_TUNING,
    RUNNING,
    RUNS,
    Names,
    Pairs,
    Problems,
    Running,
    Runs,
    Tables,
    Words,
    settings,
)

PROGRAM = "python -m fairseq_transnormer reproduce"
COMMANDS = {
    name: cli.Subcommand(f"{__name__}:{function}", summary)
    for name, function, summary in (
        ("list", "list_tables", "tables, their rows, and presets"),
        ("run", "run", "train what is not finished; the same command resumes"),
        ("status", "status", "how far every run is"),
        ("report", "report_tables", "add runs to runs.csv, write the preset's page"),
        ("claims", "claims", "judge the paper's claims by results/runs.csv"),
        ("finetune", "finetune", "fine-tune a checkpoint on GLUE or your problems"),
    )
}


def main(arguments: list[str] | None = None) -> int:
    """Run a command; returns its exit code."""
    return cli.run(
        PROGRAM,
        "Runs the paper's tables and compares results with its figures. "
        "docs/reproduce.md explains it.",
        COMMANDS,
        arguments,
    )


def list_tables(tables: Tables = (), /, *, config_dir: Path = CONFIGS) -> None:
    """Print tables and presets; of the tables that are named, the paper's figures.

    Args:
        tables: of configs/tables/, or YAML files; none: all of them, and presets.
        config_dir: with tables/ and presets/.
    """
    from .schema import load_preset, load_table, names_in
    from .text import number

    for name in tables or names_in(config_dir / "tables"):
        table = load_table(config_dir, name)
        heading = f"{table.name}: {table.file.title}"
        if not tables:
            print(heading)
            continue
        print(f"{heading}; the paper's figures")
        for row in table.rows:
            cells = [cell for cell in table.cells if cell.row == row]
            paper = ", ".join(f"{c.column} {number(c.paper) or '-'}" for c in cells)
            print(f"    {row}: {paper}")
    for name in [] if tables else names_in(config_dir / "presets"):
        print(f"preset {name}: {load_preset(config_dir, name).description}")


def run(
    tables: Tables,
    /,
    runs: Running = RUNNING,
    rows: Names = (),
    columns: Names = (),
    sweep: Pairs = (),
) -> int:
    """Train what is not finished; the same command resumes.

    Args:
        tables: of configs/tables/, YAML files, or all.
        rows: these rows only.
        columns: these columns only.
        sweep: of a table's sweep these values: optimization.lr=[0.0003].
    """
    from . import schema
    from .actions import run_cells

    if not tables:
        raise ValueError("which TABLE? reproduce list names them; or all")
    runs.check()
    chosen: dict[str, list] = {}
    for key, value in settings("--sweep", sweep):
        chosen.setdefault(key, []).extend(value if isinstance(value, list) else [value])
    preset = schema.load_preset(runs.config_dir, runs.preset)
    loaded = schema.load_tables(runs.config_dir, tables, preset)
    loaded = schema.with_sweep_values(loaded, chosen)
    names = [*chain.from_iterable(rows)], [*chain.from_iterable(columns)]
    return run_cells(schema.chosen_cells(loaded, *names, preset.columns), preset, runs)


def finetune(
    checkpoint: Annotated[Path, tyro.conf.arg(metavar="CHECKPOINT")],
    problems: Problems,
    /,
    runs: Running = FINE_TUNING,
    name: str | None = None,
    lr: tuple[float, ...] = (1e-5, 3e-5, 6e-5, 1e-4),
    pooling: Literal["first", "mean"] | None = None,
    results: Path = Path("results/finetune"),
) -> int:
    """Fine-tune a checkpoint on GLUE or your problems, at the best of some rates.

    The same command resumes. It ends with a report.

    Args:
        checkpoint: of a bidirectional model, pre-trained.
        problems: of configs/base/classification.yaml, all, or your own.
        name: of the checkpoint in folders; None: made of its weights.
        lr: learning rates to choose from on the development set.
        pooling: other than the checkpoint's.
        results: folder of runs.csv.
    """
    from .actions import conditions_of, report, run_cells
    from .finetune import checkpoint_table, trivial_figures
    from .schema import load_preset

    if not problems:
        raise ValueError("which PROBLEM? sst2, cola, ...; or all")
    runs.check()
    preset = load_preset(runs.config_dir, runs.preset)
    given = runs.config_dir, checkpoint, problems, lr, name, pooling
    table = checkpoint_table(*given)
    code = run_cells(table.cells, preset, runs)
    if runs.dry_run or runs.cluster == "slurm":
        return code
    said = trivial_figures(table, conditions_of(runs, preset))
    table.file.task = f"{table.file.task}; {said}"
    return report([table], preset, runs, results) or code


def status(preset: str = "paper", runs_dir: Path = Path("runs/tables")) -> None:
    """Print how far every run is.

    Args:
        preset: of configs/presets/, or a YAML file.
        runs_dir: folder of the runs.
    """
    from .runs import FACTS, UNREADABLE, RunFolder  # in a moment: nothing is composed

    name = Path(preset).name.removesuffix(".yaml").removesuffix(".yml")
    labels = name, f"{name}+*"
    paths = sorted(p for each in labels for p in runs_dir.glob(f"{each}/*/*/{FACTS}"))
    for folder in (RunFolder(path.parent) for path in paths):
        where = folder.path.relative_to(runs_dir)
        try:
            done, total = folder.updates_done, folder.facts["updates"]
            line = f"{folder.state:12} {done:>9,} of {total:>9,} updates  {where}"
            print(line, folder.last_validation, flush=True)
        except UNREADABLE as error:
            print(f"unreadable   {where}: {error}", flush=True)
    if not paths:
        print(f"no runs of preset {preset} in {runs_dir}")


def report_tables(
    tables: Tables = (), /, runs: Runs = RUNS, results: Path = Path("results")
) -> int:
    """Add the runs' figures to results/runs.csv, and write the preset's page.

    Args:
        tables: of configs/tables/, YAML files, or all; none: all.
        results: folder of runs.csv.
    """
    from .actions import report
    from .schema import load_preset, load_tables, names_in

    configs = runs.config_dir
    if not tables or "all" in tables:
        tables = (*names_in(configs / "tables"),)
    preset = load_preset(configs, runs.preset)
    return report(load_tables(configs, tables, preset), preset, runs, results)


def claims(
    results: Path = Path("results"),
    presets: Words = ("paper", "medium", "small"),
    page: Path = Path("docs/claims.md"),
    config_dir: Path = CONFIGS,
) -> None:
    """Judge the paper's claims by results/runs.csv.

    Args:
        results: folder of runs.csv.
        presets: a claim is judged by the first that has its figures.
        page: to write.
        config_dir: with claims/, tables/ and presets/.
    """
    from .claims import write

    write(config_dir, page, results, presets, f"{PROGRAM} claims")
    print(f"written: {page}")
