"""The files that benchmarks write and the report reads."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from pathlib import Path

from fairseq_transnormer.cli import output_file
from fairseq_transnormer.data.whole_files import write_json, write_text

FOLDER = Path("results") / "benchmarks"


def write(
    path: Path,
    *,
    benchmark: str,
    command: str,
    environment: dict[str, object],
    settings: dict[str, object],
    measurements: list[dict[str, object]],
    complete: bool = True,
) -> None:
    """Write one run of a benchmark as JSON.

    Args:
        path: the file; folders are made.
        benchmark: name of the module, e.g. "kernels".
        command: the command line that made the data.
        environment: see ``environment.describe``.
        settings: shapes, dtype, repeats, methods.
        measurements: a row each; ``seconds`` holds every sample, and a row that could
            not be measured says why in ``skipped``.
        complete: False while rows are still to come.

    Raises:
        ValueError: another file is at ``path``.
    """
    require_run(path)
    run = {
        "benchmark": benchmark,
        "command": command,
        "environment": environment,
        "settings": settings,
        "complete": complete,
        "measurements": measurements,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, run)


class Record:
    """A run that is written anew with each addition.

    path, run: the arguments of ``write``, without measurements. Raises ValueError
    where another file is at ``path``, before anything is measured.
    """

    def __init__(self, path: Path, **run):
        require_run(path)
        self._path, self._run = path, run
        self._measurements: list[dict[str, object]] = []

    def add(self, rows: Iterable[dict[str, object]]) -> None:
        """Write these rows too."""
        self._measurements += rows
        self._write(complete=False)

    def finish(self) -> None:
        """All rows are there."""
        self._write(complete=True)
        print(f"{self._run['benchmark']}: wrote {self._path}")

    def _write(self, complete: bool) -> None:
        write(
            self._path,
            **self._run,
            measurements=self._measurements,
            complete=complete,
        )


def read(path: Path) -> dict:
    """The run that ``write`` wrote."""
    return json.loads(path.read_text(encoding="utf-8"))


def read_all(path: Path) -> dict[str, object]:
    """Name -> what a file has: one run, of the file's name, or several by name."""
    content = read(path)
    if isinstance(content, dict) and any(
        isinstance(each, dict) and "benchmark" in each for each in content.values()
    ):
        return content
    return {path.stem: content}


def require_run(path: Path) -> None:
    """Raises ValueError where there is a file that ``write`` did not write."""
    if not path.exists():
        return
    try:
        run = read(path)
    except (OSError, ValueError, RecursionError):
        run = None
    if not (isinstance(run, dict) and "benchmark" in run):
        raise ValueError(
            f"{path}: a file that no benchmark wrote, and left alone; allowed is a new "
            "name, or that of an earlier run"
        )


def run_file(name: str) -> Path:
    """An argparse type: a new file, whose folder is made, or one ``write`` wrote."""
    path = output_file(name)
    try:
        require_run(path)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return path


def write_page(path: Path, text: str) -> None:
    """Writes Markdown over an earlier page of the same title.

    Raises ValueError where a page of another title is there.
    """
    title = text.partition("\n")[0]
    if path.exists():
        there = path.read_text(encoding="utf-8", errors="replace").partition("\n")[0]
        if there != title:
            raise ValueError(
                f"{path}: a page of another title, {there[:60]!r}, and left alone; "
                f"allowed is {title!r}"
            )
    write_text(path, text)
