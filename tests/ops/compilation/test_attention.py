"""Launches of the attentions as compiled for GPUs: spills, memory, copies, products.

These are the launches closest to their limits; ``python -m
tests.ops.compilation.report`` compiles every one of them.
"""

import pytest
from triton.backends.compiler import GPUTarget
from triton.compiler import make_backend
from triton.runtime.jit import create_function_from_signature

from .linear_attention_launches import LENGTHS, STRIDED, compile_launch
from .report import excess, measure

# in each run of the tests, kernels whose others are like them
QUICK = [
    *("segments forward", "segments backward", "segment sums"),
    *("bidirectional forward", "step"),
    *("block backward, softmax", "block backward, softmax, dropout"),
]
SLOW = [
    ("one segment backward", "bf16", 64, 90),
    ("segments backward, all options", "bf16", 64, 90),
    ("bidirectional backward, all options", "bf16", 64, 90),
    ("step, normalized", "bf16", 64, 90),
    ("segments backward", "bf16", 64, 80),
    ("segments backward", "fp32", 64, 86),
    ("segments backward", "fp16", 64, 90),
    ("segments backward", "bf16", 128, 86),
    ("segments backward", "fp32", 128, 90),
    ("segments forward", "fp32", 64, 80),
    ("bidirectional backward", "fp16", 128, 86),
    ("block forward, softmax", "bf16", 128, 90),
    ("block backward, softmax", "fp32", 64, 86),
    ("block backward, relu", "fp16", 64, 90),
    ("block backward, softmax, dropout", "fp32", 128, 90),
    ("block step, softmax", "bf16", 64, 80),
]


@pytest.mark.parametrize(
    ("name", "dtype", "width", "capability"),
    [
        *((name, "bf16", 64, 90) for name in QUICK),
        *(pytest.param(*launch, marks=pytest.mark.slow) for launch in SLOW),
    ],
)
def test_a_launch_keeps_to_its_budgets(name, dtype, width, capability):
    row = measure(name, dtype, width, capability)
    assert excess(row) is None
    # each turn of a loop leaves copies for later ones in flight
    assert 0 not in row["waits"]


def test_one_path_for_three_gradients():
    """They take the memory of one, and the products of one stand in the program."""
    forward, backward = (
        compile_launch(f"segments {direction}", "bf16", 64, 90)
        for direction in ("forward", "backward")
    )
    # loads of tokens are of 16 bytes, and come ahead of the products
    assert (
        forward.instructions["cp.async 16"] and not forward.instructions["narrow loads"]
    )
    assert backward.shared <= 1.5 * forward.shared
    assert backward.instructions["wgmma"] == forward.instructions["wgmma"] > 0


@pytest.mark.parametrize("kernel", STRIDED, ids=lambda kernel: kernel.__name__)
def test_counts_compile_nothing_anew(kernel):
    """1, 8 and 16 heads, lengths and segments are one kernel."""
    bind = create_function_from_signature(
        kernel.signature, kernel.params, make_backend(GPUTarget("cuda", 90, 32))
    )
    counts = [name for name in kernel.arg_names if name.endswith(LENGTHS)]
    assert "heads" in counts

    def specialization(count):
        arguments = {
            name: count if name in counts else None for name in kernel.arg_names
        }
        return bind(**arguments)[1]

    assert specialization(1) == specialization(8) == specialization(16)
