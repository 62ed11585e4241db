"""Machines of the cost model: data sheets, and how much of them a run may get."""

from __future__ import annotations

from typing import NamedTuple

from fairseq_transnormer.models.utilisation import PEAK_TFLOPS

GIB = 2**30


class Machine(NamedTuple):
    """One device.

    Attributes:
        name: of the device.
        dtype: it is trained in: float16, bfloat16 or float32.
        flops: operations a second of products of matrices of this dtype, at most.
        single_flops: of float32's, without TF32, which torch does not use by itself.
        bandwidth: bytes a second between it and its memory.
        memory: bytes.
        link: bytes a second that it sends to others of its node, and receives.
        network: bytes a second that its node sends to other nodes.
    """

    name: str
    dtype: str
    flops: float
    single_flops: float
    bandwidth: float
    memory: float
    link: float = 1.0
    network: float = 1.0


def _gpu(name, dtype, bandwidth, gib, link, network) -> Machine:
    half, _, single = PEAK_TFLOPS[name]
    rates = (bandwidth * 1e9, gib * GIB, link * 1e9, network * 1e9)
    return Machine(name, dtype, half * 1e12, single * 1e12, *rates)


# SXM versions. Bandwidth, memory and NVLink by NVIDIA's data sheets (NVLink: half of
# the sum of both directions); network: 4 x 100, 8 x 200 and 8 x 400 Gbit/s a node
MACHINES = {
    "V100": _gpu("V100", "float16", 900, 32, 150, 50),
    "A100": _gpu("A100", "bfloat16", 2039, 80, 300, 200),
    "H100": _gpu("H100", "bfloat16", 3350, 80, 450, 400),
}


class Assumptions(NamedTuple):
    """How much of a machine a run gets.

    Attributes:
        products: share of the operations a second, in large products.
        bandwidth: share of the memory's bandwidth.
        kernel: seconds that a kernel takes at least: its launch.
        link: share of the bandwidth between devices.
        overlap: share of the exchange of gradients during which the backward pass
            continues.
    """

    products: float
    bandwidth: float
    kernel: float
    link: float
    overlap: float


# 3 us: kernels queue up behind each other; 10 us: they wait for Python's launches
GOOD = Assumptions(products=0.7, bandwidth=0.85, kernel=3e-6, link=0.8, overlap=0.9)
POOR = Assumptions(products=0.4, bandwidth=0.6, kernel=10e-6, link=0.5, overlap=0.0)
