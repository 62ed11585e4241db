"""Runs whose figures are known, and the report of a table of them."""

import functools
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from fairseq_transnormer.reproduce.command_line import main
from fairseq_transnormer.reproduce.runs.run_folder import RunFolder
from tests.paths import CONFIGS

from .stand_in import finished_run

CONFIGURATION = {
    "model": {"_name": "x", "dropout": 0.1},
    "optimization": {"lr": [0.1], "max_update": 3},
    "common": {"seed": 1},
}


@functools.cache
def preset_with_sweeps(name: str) -> str:
    """A preset's file, for every value of a sweep."""
    content = yaml.safe_load((CONFIGS / f"presets/{name}.yaml").read_text())
    content.pop("sweep_values", None)
    return yaml.safe_dump(content)


class Report:
    """Runs and the report of a table of them.

    Attributes:
        folder: runs/, out/ and the files of table and preset are in it.
        preset: its runs are reported.
        table: what the table's file says, or a name of configs/tables.
        output: of the last call, on the console.
    """

    def __init__(self, folder: Path, capsys) -> None:
        self.folder, self.preset, self._capsys = folder, "smoke", capsys
        self.table = {
            "title": "Mine",
            "columns": {"ppl": {"metric": "valid_ppl"}},
            "rows": {
                "T1": {"config": "blm", "system": "t1", "paper": [3.0]},
                "T2": {"config": "blm", "system": "t2", "paper": [2.0]},
            },
        }

    @property
    def out(self) -> Path:
        """The folder of the pages."""
        return self.folder / "out" / self.preset

    @property
    def file(self) -> Path:
        """What was measured."""
        name = self.table if isinstance(self.table, str) else "mine"
        return self.out / f"{name}.json"

    def add(self, name: str, ppl: float, seed: int = 1, **changes) -> RunFolder:
        """A finished run; ``changes``: section -> values of its configuration."""
        path = self.folder / "runs" / self.preset / name / f"seed{seed}"
        configuration = json.loads(json.dumps(CONFIGURATION))
        configuration["common"]["seed"] = seed
        for section, values in changes.items():
            configuration.setdefault(section, {}).update(values)
        finished_run(path, configuration, ppl, seed)
        return RunFolder(path)

    def change(self, change: Callable[[dict], object], file: str = "mine.json") -> Path:
        """Change what a report measured, by hand; its file."""
        path = self.out / file
        measured = json.loads(path.read_text())
        change(measured)
        path.write_text(json.dumps(measured))
        return path

    def of(self, runs: dict[str, float | dict[int, float]]) -> tuple[dict, str]:
        """The report with these runs: name -> perplexity, of seed 1 or of each."""
        for name, figures in runs.items():
            each = figures if isinstance(figures, dict) else {1: figures}
            for seed, ppl in each.items():
                self.add(name, ppl, seed)
        return self()

    def __call__(self, *options: str, code: int = 0) -> tuple[dict, str]:
        """What was measured, and the page; ``output`` has the console's."""
        table = self.table
        if isinstance(table, dict):
            table = str(self.folder / "mine.yaml")
            Path(table).write_text(yaml.safe_dump(self.table, sort_keys=False))
        preset = self.folder / f"{self.preset}.yaml"
        preset.write_text(preset_with_sweeps(self.preset))
        places = ["--preset", str(preset), "--out", str(self.folder / "out")]
        places += ["--runs-dir", str(self.folder / "runs")]
        self._capsys.readouterr()
        found = main(["report", table, *options, *places])
        self.output = "\n".join(self._capsys.readouterr())
        assert found == code, self.output
        if code == 2:
            return {}, ""
        page = self.file.with_suffix(".md").read_text()
        return json.loads(self.file.read_text()), page


@pytest.fixture
def report(tmp_path, capsys) -> Report:
    return Report(tmp_path, capsys)
