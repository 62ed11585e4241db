"""The files that benchmarks write and the report reads."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

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
    """
    run = {
        "benchmark": benchmark,
        "command": command,
        "environment": environment,
        "settings": settings,
        "complete": complete,
        "measurements": measurements,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    # in one go, so that a run that is cut off leaves a whole file
    part = path.with_name(path.name + ".part")
    part.write_text(json.dumps(run, indent=1) + "\n", encoding="utf-8")
    part.replace(path)


class Record:
    """A run that is written anew with each addition.

    path, run: the arguments of ``write``, without measurements.
    """

    def __init__(self, path: Path, **run):
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
