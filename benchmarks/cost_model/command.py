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
from .traced import Cost, Model, traced

FOLDER = results.FOLDER.parent / "cost_model"
GPUS = 8


class Machine(NamedTuple):
    """What a run gets a second: operations of products in half precision and in float32
    (no TF32), bytes of memory and of the links between GPUs; seconds of a launch; the
    share of the exchange of gradients that the backward pass hides."""

    flops: float
    single_flops: float
    memory: float
    launch: float
    link: float = 1.0
    hidden: float = 0.0


# shares of products, memory and links; 3 us: kernels queue up; 10: they wait for Python
GOOD = {"flops": 0.7, "memory": 0.85, "link": 0.8, "launch": 3e-6, "hidden": 0.9}
POOR = {"flops": 0.4, "memory": 0.6, "link": 0.5, "launch": 10e-6, "hidden": 0.0}
# GB/s of memory and of NVLink, each way, by the data sheets of the SXM versions
RATES = {"V100": (900, 150), "A100": (2039, 300), "H100": (3350, 450)}


def machine_of(name: str, assumed: dict[str, float]) -> Machine:
    """One of ``RATES``, as far as ``GOOD`` or ``POOR`` give it to a run."""
    from fairseq_transnormer.models.utilisation import PEAK_TFLOPS

    half, _, single = (1e12 * assumed["flops"] * each for each in PEAK_TFLOPS[name])
    memory, link = (1e9 * each for each in RATES[name])
    memory, link = memory * assumed["memory"], link * assumed["link"]
    return Machine(half, single, memory, assumed["launch"], link, assumed["hidden"])


def kernels_take(kernels: DataFrame, machine: Machine) -> Series:
    """Seconds by what is waited for: a kernel takes the longest of its three."""
    rates = kernels.single.map({True: machine.single_flops, False: machine.flops})
    each = DataFrame({"products": kernels.flops / rates})
    each["memory"] = kernels.bytes / machine.memory
    each["launches"] = machine.launch
    waited = each.max(axis=1).groupby(each.idxmax(axis=1)).sum()
    return waited.reindex([*each.columns, "exchange"], fill_value=0.0)


def update_takes(cost: Cost, update_freq: int, machine: Machine) -> Series:
    """Seconds of one update, by what they wait for."""
    seconds = update_freq * kernels_take(cost.micro, machine)
    seconds += kernels_take(cost.optimizer, machine)
    # a ring's all-reduce, once an update
    exchange = 2 * (GPUS - 1) / GPUS * cost.gradient_bytes / machine.link
    seconds["exchange"] = exchange * (1 - machine.hidden)
    return seconds


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


ALM = Model("alm", dtype="bfloat16")
BLM = Model("blm", "T2", 768, 12, 12, 50265, dtype="bfloat16")
PAPER = [Run(f"ALM {v}", ALM._replace(variant=v)) for v in ("T1", "T2", "softmax")]
PAPER += [
    Run(f"BLM {v}", BLM._replace(variant=v), 512, 32, 50_000) for v in ("T1", "T2")
]
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


def modelled(runs: Iterable[Run], names: Iterable[str]) -> DataFrame:
    """A row for each run on each machine; "a - b": with good and poor assumptions."""
    rows = []
    for run, name in [(run, name) for run in runs for name in names]:
        batch, update_freq = run.layout()
        cost = traced(run.model, batch)
        waits = [
            update_takes(cost, update_freq, machine_of(name, each))
            for each in (GOOD, POOR)
        ]
        both = Series([each.sum() for each in waits])
        held = cost.pass_bytes + cost.held_bytes + cost.gradient_bytes
        row = {
            "run": run.name,
            "devices": f"{GPUS} x {name}",
            "batch x accumulated": f"{batch} x {update_freq}",
            "million parameters": f"{cost.parameters / 1e6:.0f}",
            "GiB a device": f"{held / 2**30:.1f}",
            "ms an update": _span(1e3 * both),
            "1,000 tokens/s": _span(run.sequences * run.model.length / both / 1e3),
            "hours": _span(both * run.updates / 3600),
        }
        for seconds, column in zip(waits, ("waits for (good)", "(poor)"), strict=True):
            share = seconds.max() / seconds.sum()
            row[column] = f"{seconds.idxmax()} {share:.0%}"
        rows.append(row)
    return DataFrame(rows).set_index("run")


def _span(values: Series) -> str:
    low, high = (f"{x:,.0f}" if x >= 100 else f"{x:.2g}" for x in sorted(values))
    return low if low == high else f"{low} - {high}"


HEAD = """# What training costs

Made by `python -m benchmarks cost_model`; [docs/cost.md](../../docs/cost.md) explains
it. All of this is worked out: **nothing was measured on a GPU.** The ends of "a - b"
come from good and poor assumptions, which docs/cost.md gives."""


def page() -> str:
    """All tables."""
    parts = {
        "The paper's runs": modelled(PAPER, RATES),
        "Growth with length, width and layers": modelled(GROWTH, ["A100"]),
    }
    sections = (f"## {title}\n\n{table(rows)}" for title, rows in parts.items())
    return "\n\n".join((HEAD, *sections)) + "\n"


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
