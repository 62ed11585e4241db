"""Writes what was measured: Markdown, JSON and pictures for each table."""

import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ...data.typed_mappings import shown
from ...data.whole_files import make_folder, write_json, write_text
from ..commands import filled
from ..errors import ReproduceError
from ..runs.execution import log_tail
from ..runs.run_folder import RunFolder
from ..tables.definitions import Table
from ..tables.jobs import Conditions
from ..tables.presets import Preset
from ..yaml_files import in_order
from .markdown import overview, table_page
from .plots import plot_bubbles, plot_columns, plot_sweep, plot_table
from .report_forms import check_report
from .results import measure
from .run_records import read_all, recorded_runs, trainings_of, with_common


def make_out(out: Path) -> None:
    """Make the folder of --out; raises ReproduceError where it cannot be written to."""
    try:
        make_folder(out, "--out")
    except ValueError as error:
        raise ReproduceError(str(error)) from error


@contextmanager
def written_to(out: Path) -> Iterator[None]:
    """Around what writes a report: ``make_out``, and a full disk is one line, too."""
    make_out(out)
    try:
        yield
    except OSError as error:
        what = error.strerror or error
        if error.filename is not None and out not in Path(error.filename).parents:
            raise ReproduceError(f"{error.filename}: {what}") from error  # of a run
        raise ReproduceError(
            f"--out {out}: {what}; allowed: a folder that can be written to"
        ) from error


def write_report(
    tables: list[Table],
    conditions: Conditions,
    runs_dir: Path,
    out: Path,
    command: str,
    add: bool = False,
) -> list[dict[str, Any]]:
    """Write TABLE.md, TABLE.json and TABLE.png for each table, and README.md, which
    lists those of earlier reports too.

    Args:
        tables: to report.
        conditions: whose preset names the runs.
        runs_dir: where the runs are.
        out: folder to write into.
        command: that made the report, for the pages.
        add: to the runs that ended of the reports in ``out``, this table's and others',
            whose folders are not in ``runs_dir``.

    Returns:
        what was measured, a mapping for each table.

    Raises:
        ReproduceError: a report that is to be added to is of another form, or has runs
            that the table's picture is drawn from; those before it are written.
    """
    out.mkdir(parents=True, exist_ok=True)
    all_measured = []
    for table in tables:
        path = out / f"{table.name}.json"
        earlier = _to_add_to(path, conditions.preset.name) if add else None
        recorded = {} if earlier is None else recorded_runs(earlier, path)
        # a picture is drawn from checkpoints, which are not in reports
        shares = add and table.figure is None
        others = _others(table, conditions.preset.name, out) if shares else []
        beside = trainings_of(others, table.curve)
        measured = measure(table, conditions, runs_dir, recorded, beside)
        measured |= {"preset": conditions.preset.name, "command": command}
        measured["images"] = _figure(table, measured, runs_dir, out)
        measured["attached"] = _attached(table, measured, runs_dir, out)
        measured["remarks"] = []
        own = {f"{name}/seed{seed}" for name, each in recorded.items() for seed in each}
        if earlier is not None and own & {*measured["added"]}:
            measured["attached"] = measured["attached"] or earlier["attached"]
            measured["remarks"] = earlier["remarks"]
            commands = dict.fromkeys([*earlier["command"].splitlines(), command])
            measured["command"] = "\n".join(commands)
        write_json(out / f"{table.name}.json", measured)
        _write_page(table, measured, out)
        all_measured.append(measured)
    _write_overview(conditions.preset, out)
    return all_measured


def _to_add_to(path: Path, preset: str) -> dict[str, Any] | None:
    """The report in a file; None if there is no file."""
    if not path.exists():
        return None
    found = read_report(path, preset)
    if found is None:
        raise ReproduceError(
            f"{path}: {of_other_table(path, preset)}; allowed: report without --add"
        )
    _check_form(found, path)
    return with_common(found)


def _others(table: Table, preset: str, out: Path) -> list[dict[str, Any]]:
    """The reports of the other tables in a folder."""
    others = [each for each in _reported(out, preset) if each["table"] != table.name]
    for each in others:
        _check_form(each, out / f"{each['table']}.json")
    return [with_common(each) for each in others]


def _check_form(measured: dict[str, Any], path: Path) -> None:
    """Raise ReproduceError unless a page can be made of what a file has, and its runs
    and their figures be read."""
    try:
        table_page(measured, {})
        read_all(measured)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise ReproduceError(
            f"{path}: of another form ({error!r}); report it from its runs"
        ) from error


def rewrite_report(
    tables: list[Table], preset: Preset, out: Path
) -> list[dict[str, Any]]:
    """Write pages and pictures anew of the JSON files that reports left.

    Figures, conditions and ``remarks``, which are added to a JSON file by hand, are the
    files'; titles and what stands below them are those of the tables today.

    Raises:
        ReproduceError: a table has no such file, or one of another form; nothing has
            been written then.
    """
    reported = {each["table"]: each for each in _reported(out, preset.name)}
    found = []
    for table in tables:
        path = out / f"{table.name}.json"
        if table.name not in reported:
            there = ", ".join(reported) or "none"
            raise ReproduceError(
                f"{path}: {of_other_table(path, preset.name)}; reported there: {there}"
            )
        measured = reported[table.name] | {"title": table.title, "task": table.task}
        _check_form(measured, path)
        found.append(measured)
    for table, measured in zip(tables, found, strict=True):
        _write_page(table, measured, out)
    _write_overview(preset, out)
    return found


def _write_page(table: Table, measured: dict[str, Any], out: Path) -> None:
    """The table's pictures, and its page with those that there are."""
    pictures = {}
    name = f"{table.name}.png"
    if plot_table(measured, out / name):
        pictures[name] = f"{table.title}: the rows' figures and learning curves"
    for image in measured["images"]:
        pictures[image] = f"{table.title}: {Path(image).stem}"
    name = f"{table.name}_sweep.png"
    if table.sweep and plot_sweep(measured, out / name):
        pictures[name] = f"{table.title}: the values of the sweep"
    name = f"{table.name}_columns.png"
    if table.column_axis and plot_columns(measured, table.column_axis, out / name):
        pictures[name] = f"{table.title}: over {table.column_axis}"
    name = f"{table.name}_bubbles.png"
    if table.bubbles and plot_bubbles(measured, table.bubbles, out / name):
        pictures[name] = f"{table.title}: {', '.join(table.bubbles.values())}"
    write_text(out / f"{table.name}.md", table_page(measured, pictures))


def _write_overview(preset: Preset, out: Path) -> None:
    page = overview(_reported(out, preset.name), preset.name, preset.description)
    write_text(out / "README.md", page)


def _reported(out: Path, preset: str) -> list[dict[str, Any]]:
    """What the folder's JSON files of tables hold; others are left alone."""
    found = {
        path.stem: content
        for path in out.glob("*.json")
        if (content := read_report(path, preset)) is not None
    }
    return [found[name] for name in in_order(found)]


def read_report(path: Path, preset: str) -> dict[str, Any] | None:
    """What a table's report holds; None for a file that is none of this preset.

    Raises:
        ReproduceError: it cannot be read, or is a report of another form or with
            figures that are not the means of their seeds.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(content, dict):
            return None
        if (content.get("table"), content.get("preset")) != (path.stem, preset):
            return None
        check_report(content, path)
        overview([content], preset, "")
    except (OSError, ValueError, RecursionError) as error:
        raise ReproduceError(f"{path}: cannot be read: {error}") from error
    except (AttributeError, IndexError, KeyError, TypeError) as error:
        raise ReproduceError(
            f"{path}: no report of a table ({error!r}); remove it"
        ) from error
    return content


def of_other_table(path: Path, preset: str) -> str:
    """A phrase for a file that ``read_report`` has no report in."""
    phrase = f"no report of the table {path.stem}, preset {preset}"
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return phrase
    if not isinstance(content, dict) or "table" not in content:
        return phrase
    its = (shown(content.get(key)) for key in ("table", "preset"))
    return f"{phrase}, but of {', preset '.join(its)}"


def _attached(
    table: Table, measured: dict[str, Any], runs_dir: Path, out: Path
) -> str | None:
    """Copy the folder that the table attaches; its page, from that of the table."""
    if table.attach is None:
        return None
    cell = measured["rows"][table.rows[0]][table.columns[0]]
    for seed, run in measured["runs"][cell["run"]].items():
        if run["state"] != "finished":
            continue
        source = runs_dir / cell["run"] / f"seed{seed}" / table.attach
        if (source / "README.md").exists():
            shutil.copytree(source, out / table.name, dirs_exist_ok=True)
            return f"{table.name}/README.md"
    return None


def _figure(
    table: Table, measured: dict[str, Any], runs_dir: Path, out: Path
) -> list[str]:
    """Run the table's own command on its finished rows; names of its images.

    Raises:
        ReproduceError: the command failed.
    """
    if table.figure is None:
        return []
    folder = out / table.name
    rows: list[str] = []
    data = None
    fingerprints: dict[str, str] = {}
    for row, columns in measured["rows"].items():
        cell = columns[table.columns[0]]
        for seed in list(cell["seeds"])[:1]:
            if f"{cell['run']}/seed{seed}" in measured["added"]:
                raise ReproduceError(
                    f"{table.name}: its picture is drawn from checkpoints; "
                    f"{runs_dir / cell['run']}/seed{seed}: no such folder; allowed: "
                    "report without --add"
                )
            run = RunFolder(runs_dir / cell["run"] / f"seed{seed}")
            description = run.description()
            fingerprints[description["data_fingerprint"]] = row
            data = description["data"]
            checkpoint = str(run.checkpoints / "checkpoint_best.pt")
            rows += filled(
                table.figure.each_row, {"row": row, "checkpoint": checkpoint}
            )
    if data is None:
        return []
    if len(fingerprints) > 1:
        shown = ", ".join(f"{row}: {mark}" for mark, row in fingerprints.items())
        raise ReproduceError(
            f"{table.name}: its figure takes rows of the same data; there are {shown}"
        )
    # made elsewhere: what else lies in the folder may be the user's
    with tempfile.TemporaryDirectory() as made:
        values = {"data": data, "output": made}
        command = [*filled(table.figure.command, values), *rows]
        log = Path(made) / "command.log"
        with log.open("w", encoding="utf-8") as output:
            try:
                code = subprocess.run(command, stdout=output, stderr=output).returncode
            except OSError as error:
                raise ReproduceError(f"{table.name}: {command[0]}: {error}") from error
        if code:
            raise ReproduceError(
                f"{table.name}: the figure's command failed: {' '.join(command)}\n"
                f"{log_tail(log, 5)}"
            )
        shutil.copytree(made, folder, dirs_exist_ok=True)
        images = sorted(path.name for path in Path(made).glob("*.png"))
    return [f"{table.name}/{name}" for name in images]
