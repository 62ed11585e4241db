"""Machines by their data sheets, what a run gets of them, and what it waits for."""

from __future__ import annotations

from typing import NamedTuple

from pandas import DataFrame, Series

from .training_step import Cost

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
# what the machine's configuration trains in
DTYPES = {"V100": "float16", "A100": "bfloat16", "H100": "bfloat16"}


def machine_of(name: str, assumed: dict[str, float]) -> Machine:
    """One of ``RATES``, as far as ``GOOD`` or ``POOR`` give it to a run."""
    from fairseq_transnormer.plugin.models.utilisation import PEAK_TFLOPS

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
    seconds = kernels_take(cost.first, machine)
    seconds += (update_freq - 1) * kernels_take(cost.further, machine)
    seconds += kernels_take(cost.update, machine)
    # a ring's all-reduce, once an update
    exchange = 2 * (GPUS - 1) / GPUS * cost.gradient_bytes / machine.link
    seconds["exchange"] = exchange * (1 - machine.hidden)
    return seconds
