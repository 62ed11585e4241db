"""Trains rows of the tables for a few updates: a row a job and architecture, or "all".

usage: python -m tests.rows [all] OPTION... (those of ``reproduce run``)

tests/reproduce/test_tables.py looks at the others. Data that are missing are made in
forks of this process, which imports fairseq for the trainings anyway.
"""

import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

from fairseq_transnormer.reproduce import command_line
from fairseq_transnormer.reproduce.runs.forking import ForkedProcess
from fairseq_transnormer.reproduce.tables import corpora
from fairseq_transnormer.reproduce.tables.definitions import (
    Cell,
    chosen_cells,
    load_tables,
)
from fairseq_transnormer.reproduce.tables.presets import load_preset
from tests.paths import CONFIGS

PRESET = load_preset(CONFIGS, "smoke")
# The run of table7, and of figure1, takes a step of every system of the arena. The
# other tables change a value of T1 or T2 a row (8 to 12, precision, lrpe), fine-tune as
# table5 does (topics), or train the same models on symbols, at other rates
# (learning_rates) or with two other settings (tnl).
ROWS = {
    "table1": ["1+elu w/o scaling", "NormAttention"],
    "table2": ["Performer", "Vanilla"],
    "table3": ["Vanilla / 1+elu"],
    "table4": [
        *("Vanilla", "LS", "FLASH-quad", "FLASH", "TransNormer T1", "TransNormer T2"),
        "TransNormer T2 without LRPE",
    ],
    "table5": ["Vanilla", "TransNormer T2"],
    "table6": ["Transformer", "Reformer", "BigBird", "TransNormer T1"],
    "table7": ["Transformer"],
    "figure2": ["TransNormer T1"],
}


def trained() -> list[Cell]:
    """The cells of ROWS, each with its run."""
    return [
        cell
        for name, rows in ROWS.items()
        for cell in chosen_cells(
            load_tables(CONFIGS, [name], PRESET), rows, None, PRESET.columns
        )
    ]


def run_in_a_fork(command: list[str], cwd: Path) -> SimpleNamespace:
    """As ``subprocess.run`` of ``python -m MODULE``; what it prints goes to stdout."""
    process = ForkedProcess(command, cwd, "/dev/stdout", dict(os.environ))
    while process.poll() is None:
        time.sleep(0.1)
    return SimpleNamespace(returncode=process.exit_code)


def main(words: list[str]) -> int:
    """``reproduce run --preset smoke``; returns its exit code."""
    corpora.subprocess = SimpleNamespace(run=run_in_a_fork)
    if words[:1] == ["all"]:
        return command_line.main(["run", *words, "--preset", "smoke", "--fork"])
    cells = trained()
    command_line.chosen_cells = lambda *_: cells
    short = replace(PRESET, speed=PRESET.speed | {"lengths": [1024]})
    command_line.load_preset = lambda *_: short
    return command_line.main(["run", *ROWS, *words, "--preset", "smoke", "--fork"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
