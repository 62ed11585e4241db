"""Runs whose figures are known, and the report of a table of them."""

import json

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


class Report:
    """Runs of T1 and T2, and the report of a table of them."""

    def __init__(self, folder, capsys) -> None:
        self.folder, self._capsys = folder, capsys
        preset = yaml.safe_load((CONFIGS / "presets/smoke.yaml").read_text())
        del preset["sweep_values"]
        (folder / "smoke.yaml").write_text(yaml.safe_dump(preset))
        self.table = {
            "title": "Mine",
            "columns": {"ppl": {"metric": "valid_ppl"}},
            "rows": {
                "T1": {"config": "blm", "system": "t1", "paper": [3.0]},
                "T2": {"config": "blm", "system": "t2", "paper": [2.0]},
            },
        }

    def add(self, name: str, ppl: float, seed: int = 1, **changes):
        """A finished run; ``changes``: section -> values of its configuration."""
        path = self.folder / "runs/smoke" / name / f"seed{seed}"
        configuration = json.loads(json.dumps(CONFIGURATION))
        configuration["common"]["seed"] = seed
        for section, values in changes.items():
            configuration.setdefault(section, {}).update(values)
        finished_run(path, configuration, ppl, seed)
        return RunFolder(path)

    def __call__(self, *options: str, code: int = 0) -> tuple[dict, str]:
        """What was measured, and the page; ``output`` has the console's."""
        path = self.folder / "mine.yaml"
        path.write_text(yaml.safe_dump(self.table, sort_keys=False))
        out = ["--out", str(self.folder / "out")]
        out += ["--preset", str(self.folder / "smoke.yaml")]
        self._capsys.readouterr()
        runs = ["--runs-dir", str(self.folder / "runs")]
        found = main(["report", str(path), *out, *runs, *options])
        self.output = "\n".join(self._capsys.readouterr())
        assert found == code, self.output
        if code == 2:
            return {}, ""
        folder = self.folder / "out/smoke"
        measured = json.loads((folder / "mine.json").read_text())
        return measured, (folder / "mine.md").read_text()
