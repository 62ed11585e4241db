"""What training costs, worked out: time and memory on machines that are not here.

    python -m benchmarks cost_model

writes results/cost_model/README.md; docs/cost.md says how, and has an update by hand.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from pandas import DataFrame, Series

from ..harness import results
from ..harness.markdown import table
from .machines import DTYPES, GOOD, GPUS, POOR, RATES, machine_of, update_takes
from .training_step import AFTER, BEFORE, Cost, Model, Way, traced

FOLDER = results.FOLDER.parent / "cost_model"


class Run(NamedTuple):
    """Training on 8 GPUs; most: sequences that a GPU takes at once."""

    name: str
    model: Model
    sequences: int = 128
    most: int = 8
    updates: int = 100_000

    def layout(self) -> tuple[int, int]:
        """Batch and accumulated batches of each GPU."""
        batch = min(self.most, self.sequences // GPUS)
        return batch, self.sequences // GPUS // batch

    def cost(self, machine: str, way: Way) -> Cost:
        """Of a pass and an update, in the precision of that machine."""
        model = self.model._replace(dtype=DTYPES[machine])
        return traced(model, self.layout()[0], way._replace(device=_kind_of(machine)))


ALM = Model("alm")
BLM = Model("blm", "T2", 768, 12, 12, 50265)
PAPER = [Run(f"ALM {v}", ALM._replace(variant=v)) for v in ("T1", "T2", "softmax")]
PAPER += [
    Run(f"BLM {v}", BLM._replace(variant=v), 512, 32, 50_000) for v in ("T1", "T2")
]
# the same updates, nothing accumulated
AT_ONCE = [Run("ALM T2", ALM, most=16), Run("BLM T2", BLM, 512, 64, 50_000)]
# with a vocabulary that leaves something to see of the layers
LONG = {
    f"{kind}, length {n}, 32,768 words": ALM._replace(
        variant=kind, length=n, vocabulary=32768
    )
    for kind in ("T2", "softmax")
    for n in (512, 2048, 8192)
}
WIDE = {
    f"T2, width {d}": ALM._replace(width=d, heads=d // 64)
    for d in (256, 512, 1024, 2048)
}
GROWTH = [Run(k, m, 65536 // m.length, 8192 // m.length) for k, m in LONG.items()]
GROWTH += [Run(name, model) for name, model in WIDE.items()]
GROWTH += [Run("T2, 12 layers", ALM._replace(layers=12))]
# what an update takes with one of the parts alone, and with all
PARTS = {
    "before": BEFORE,
    "Triton's kernels alone": BEFORE._replace(backend=AFTER.backend),
    "chunked criterion alone": BEFORE._replace(chunked=True),
    "fused Adam alone": BEFORE._replace(optimizer=AFTER.optimizer),
    "after": AFTER,
}
# how many sequences fit is worked out for the variant that needs more memory
NEEDY = {
    "ALM": (ALM._replace(variant="T1"), 8),
    "BLM": (BLM._replace(variant="T1"), 32),
}
PRECISIONS = {"float32": "V100", "float16": "V100", "bfloat16": "A100"}


def _kind_of(machine: str) -> str:
    return "V100" if machine == "V100" else "A100"


def _waits(run: Run, machine: str, way: Way) -> list[Series]:
    """Seconds of an update by what is waited for, by good and by poor assumptions."""
    cost, (_, update_freq) = run.cost(machine, way), run.layout()
    rates = (machine_of(machine, each) for each in (GOOD, POOR))
    return [update_takes(cost, update_freq, each) for each in rates]


def modelled(runs: Iterable[Run], machines: Iterable[str]) -> DataFrame:
    """A row for each run on each machine; "a - b": with good and poor assumptions."""
    rows = []
    for run, name in [(run, name) for run in runs for name in machines]:
        batch, update_freq = run.layout()
        costs = [run.cost(name, way) for way in (BEFORE, AFTER)]
        waits = [_waits(run, name, way) for way in (BEFORE, AFTER)]
        before, after = (Series([each.sum() for each in both]) for both in waits)
        row = {
            "run": run.name,
            "devices": f"{GPUS} x {name}",
            "batch x accumulated": f"{batch} x {update_freq}",
            "million parameters": f"{costs[0].parameters / 1e6:.0f}",
        }
        gib = [f"{cost.peak_bytes(update_freq) / 2**30:.1f}" for cost in costs]
        tokens = run.sequences * run.model.length / 1e3
        row |= _pair("GiB", *gib)
        row |= _pair("ms", *(_span(1e3 * each) for each in (before, after)))
        row |= _pair("1,000 tokens/s", *(_span(tokens / x) for x in (before, after)))
        row |= _pair("hours", *(_span(x * run.updates / 3600) for x in (before, after)))
        row["times as fast"] = _span(before / after)
        for seconds, column in zip(
            waits[1], ("waits for (good)", "(poor)"), strict=True
        ):
            share = seconds.max() / seconds.sum()
            row[column] = f"{seconds.idxmax()} {share:.0%}"
        rows.append(row)
    return DataFrame(rows).set_index("run")


def parts(runs: Iterable[Run], machines: Iterable[str]) -> DataFrame:
    """ms of an update with each of ``PARTS``, and how many times as fast that is."""
    rows = []
    for run in runs:
        for name, way in PARTS.items():
            row = {"run": run.name, "computed": name}
            for machine in machines:
                now, before = (
                    Series([each.sum() for each in _waits(run, machine, each_way)])
                    for each_way in (way, BEFORE)
                )
                row[f"{machine}, ms"] = _span(1e3 * now)
                row[f"{machine}, times as fast"] = _span(before / now)
            rows.append(row)
    return DataFrame(rows).set_index("run")


class Need(NamedTuple):
    """GB on a GPU among several: of the model, and of each sequence of a batch."""

    model: float
    sequence: float


def need(model: Model, batch: int, dtype: str) -> Need:
    """What batches of up to twice ``batch`` take at the most, as a line."""
    way = AFTER._replace(device=PRECISIONS[dtype])
    model = model._replace(dtype=dtype)
    one, some, more = (
        traced(model, size, way).peak_bytes(2) / 1e9 for size in (1, batch, 2 * batch)
    )
    sequence = (more - some) / batch
    return Need(max(one - sequence, some - batch * sequence), sequence)


def needs() -> DataFrame:
    """A row for each of the paper's models and precisions."""
    rows = []
    for name, (model, batch) in NEEDY.items():
        for dtype in PRECISIONS:
            found = need(model, batch, dtype)
            rows.append(
                {
                    "model": name,
                    "dtype": dtype,
                    "GB of the model": f"{found.model:.2f}",
                    "GB a sequence": f"{found.sequence:.3f}",
                }
            )
    return DataFrame(rows).set_index("model")


def _pair(column: str, before: str, after: str) -> dict[str, str]:
    return {f"{column} before": before, f"{column} after": after}


def _span(values: Series) -> str:
    low, high = (f"{x:,.0f}" if x >= 100 else f"{x:.2g}" for x in sorted(values))
    return low if low == high else f"{low} - {high}"


HEAD = """# What training costs

Made by `python -m benchmarks cost_model`; [docs/cost.md](../../docs/cost.md) explains
it. All of this is worked out: **nothing was measured on a GPU.** The ends of "a - b"
come from good and poor assumptions, which docs/cost.md gives. Before: torch's ops,
fairseq's criterion and Adam. After: what the configurations do, on each machine; for
that is said what it waits for."""


def page() -> str:
    """All tables."""
    sections = {
        "The paper's runs": modelled(PAPER, RATES),
        "What each part brings": parts((PAPER[1], PAPER[4]), RATES),
        "Nothing accumulated": modelled(AT_ONCE, RATES),
        "Memory of a GPU": needs(),
        "Growth with length, width and layers": modelled(GROWTH, ["A100"]),
    }
    texts = (f"## {title}\n\n{table(rows)}" for title, rows in sections.items())
    return "\n\n".join((HEAD, *texts)) + "\n"


def main(arguments: list[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks cost_model", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--folder", type=Path, default=FOLDER, help="of README.md")
    folder = parser.parse_args(arguments).folder
    try:
        results.write_page(folder / "README.md", page())
    except ValueError as error:
        parser.error(str(error))
    print(f"cost_model: wrote {folder / 'README.md'}")
