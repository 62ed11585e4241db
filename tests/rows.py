"""Trains rows of the tables for a few updates: a row a job and architecture, or "all".

usage: python -m tests.rows [all] OPTION... (those of ``reproduce run``)

tests/reproduce looks at the others. All runs are in this process, which imports fairseq
once.
"""

import sys
from dataclasses import replace

from fairseq_transnormer.reproduce import commands, schema
from fairseq_transnormer.reproduce.schema import Cell, chosen_cells, load_tables
from tests.paths import CONFIGS

PRESET = schema.load_preset(CONFIGS, "smoke")
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
            load_tables(CONFIGS, [name], PRESET), rows, (), PRESET.columns
        )
    ]


def main(words: list[str]) -> int:
    """``reproduce run --preset smoke``; returns its exit code."""
    command = ["run", *ROWS, "--preset", "smoke", "--cluster", "debug", *words]
    if words[:1] == ["all"]:
        command[1 : 1 + len(ROWS)] = []
        return commands.main(command)
    cells = trained()
    schema.chosen_cells = lambda *_: cells
    short = replace(PRESET, speed=PRESET.speed | {"lengths": [1024]})
    schema.load_preset = lambda *_: short
    return commands.main(command)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
