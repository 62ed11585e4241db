"""Linear attention's kernels as compiled for GPUs: spills, memory, copies, products.

These are the launches closest to their limits; ``python -m
tests.ops.compilation.report`` compiles every one of them.
"""

import pytest
from triton.backends.compiler import GPUTarget
from triton.compiler import make_backend
from triton.runtime.jit import create_function_from_signature

from .compilation import (
    SHARED_MEMORY,
    STACK,
    serialized_products,
    transposed_accumulators,
    waits,
)
from .linear_attention_launches import (
    LAUNCHES,
    LENGTHS,
    STRIDED,
    compile_launch,
)

# in one quick run of the tests, kernels whose others are like them
QUICK = ("segments", "bidirectional forward", "segment sums", "step")


def check(name, dtype, width, capability, **widths):
    compiled = compile_launch(name, dtype, width, capability, **widths)
    assert compiled.stack <= STACK
    assert compiled.shared <= SHARED_MEMORY[capability]
    # each turn of a loop leaves copies for later ones in flight
    assert 0 not in waits(compiled)
    if LAUNCHES[name][1] and capability == 90:
        assert not transposed_accumulators(compiled)
        assert not serialized_products(compiled)
        assert compiled.instructions["wgmma"] or compiled.instructions["mma"]
    return compiled


@pytest.mark.parametrize(
    "name",
    [
        name
        if name.startswith(QUICK) and "," not in name
        else pytest.param(name, marks=pytest.mark.slow)
        for name in LAUNCHES
    ],
)
def test_the_papers_width_on_hopper(name):
    """Loads of tokens are of 16 bytes, and come ahead of the products."""
    compiled = check(name, "bf16", 64, 90)
    if LAUNCHES[name][1]:
        assert compiled.instructions["wgmma"] > 0
        assert compiled.instructions["cp.async 16"] > 0
        assert waits(compiled)
    # numbers of a token, its pad or its divisor, are narrow by nature
    if "," not in name and LAUNCHES[name][1]:
        assert compiled.instructions["narrow loads"] == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "dtype", "width", "capability"),
    [
        ("segments backward", "bf16", 64, 80),
        ("segments backward", "fp16", 64, 80),
        ("segments backward", "fp32", 64, 86),
        ("segments backward", "fp16", 64, 90),
        ("segments backward", "fp32", 64, 90),
        ("segments backward", "bf16", 128, 86),
        ("segments backward", "fp16", 128, 80),
        ("segments backward", "fp32", 128, 90),
        ("segments backward", "fp32", 32, 80),
        ("segments forward", "fp32", 64, 80),
        ("segments forward", "fp32", 128, 90),
        ("bidirectional backward", "fp16", 128, 86),
    ],
)
def test_values_stay_in_registers_and_tiles_in_memory(name, dtype, width, capability):
    check(name, dtype, width, capability)


@pytest.mark.slow
@pytest.mark.parametrize(("width", "value_width"), [(64, 128), (128, 64)])
def test_gradients_of_unequal_widths(width, value_width):
    """A path for each gradient: dQ and dK have other tiles than dV."""
    compiled = compile_launch(
        "segments backward", "bf16", 128, 90, D=width, E=value_width
    )
    assert compiled.stack <= STACK
    assert compiled.shared <= SHARED_MEMORY[90]
    assert not transposed_accumulators(compiled)
    assert not serialized_products(compiled)


def test_one_path_for_three_gradients():
    """They take the memory of one, and the products of one stand in the program."""
    forward, backward = (
        compile_launch(f"segments {direction}", "bf16", 64, 90)
        for direction in ("forward", "backward")
    )
    assert backward.shared <= 1.5 * forward.shared
    assert backward.instructions["wgmma"] == forward.instructions["wgmma"]


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
