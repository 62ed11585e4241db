"""Prints the counted and the resident peak of the naive attention, in bytes.

    python -m tests.benchmarks.harness.resident_peak MODE

A process of its own: what other tests have freed is resident already.
"""

import sys
from pathlib import Path

import torch

from benchmarks.harness.memory import peak_bytes
from benchmarks.kernels.contestants.contestant import Contestant
from benchmarks.kernels.contestants.equations import causal_linear_attention
from benchmarks.kernels.kernel_measurement import make_call

# resets the high-water mark of the resident set (proc(5)); Linux only
CLEAR, STATUS = Path("/proc/self/clear_refs"), Path("/proc/self/status")


def resident_peak(call):
    def read(name):
        for line in STATUS.read_text().splitlines():
            if line.startswith(name):
                return int(line.split()[1]) * 1024

    CLEAR.write_text("5")
    before = read("VmRSS")
    call()
    return read("VmHWM") - before


if __name__ == "__main__":
    # several matrices of 64 MiB, which malloc does not keep
    inputs = [torch.randn(1, 2048, 4, 16, requires_grad=True) for _ in range(3)]
    call, _ = make_call(
        Contestant("naive", causal_linear_attention), inputs, sys.argv[1]
    )
    call()
    print(peak_bytes(call, torch.device("cpu")), resident_peak(call))
