"""Linear attention's kernels as compiled for GPUs: spills, memory, transposes.

These are the launches closest to their limits; ``python -m
tests.ops.compilation.report`` compiles every one of them.
"""

import pytest

from .compilation import SHARED_MEMORY, STACK, transposed_accumulators
from .linear_attention_launches import LAUNCHES, compile_launch


def check(name, dtype, width, capability):
    compiled = compile_launch(name, dtype, width, capability)
    assert compiled.stack <= STACK
    assert compiled.shared <= SHARED_MEMORY[capability]
    if capability == 90:
        assert not transposed_accumulators(compiled)
        if name != "step":
            assert compiled.instructions["wgmma"] or compiled.instructions["mma"]
    return compiled


@pytest.mark.parametrize("name", LAUNCHES)
def test_the_papers_width_on_hopper(name):
    check(name, "bf16", 64, 90)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "dtype", "width", "capability"),
    [
        ("segments backward", "bf16", 64, 80),
        ("segments backward", "fp16", 64, 80),
        ("segments backward", "fp32", 64, 86),
        ("segments backward", "fp16", 64, 90),
        ("segments backward", "bf16", 128, 86),
        ("segments backward", "fp16", 128, 80),
        ("segments backward", "fp32", 128, 90),
        ("segments backward", "fp32", 32, 80),
        ("segments forward", "fp32", 64, 80),
        ("segments forward", "fp32", 128, 90),
        ("short backward", "fp32", 64, 86),
        ("short backward", "fp16", 128, 86),
        ("short backward", "fp32", 128, 90),
        ("bidirectional backward", "fp16", 128, 86),
    ],
)
def test_values_stay_in_registers_and_tiles_in_memory(name, dtype, width, capability):
    check(name, dtype, width, capability)


@pytest.mark.slow
def test_loads_are_wide_and_run_ahead():
    """16 bytes a thread and load, copied while the products before them run."""
    compiled = check("segments forward", "bf16", 64, 90)
    assert compiled.instructions["cp.async 16"] > 0
    assert compiled.instructions["wgmma"] > 0
    assert compiled.instructions["narrow loads"] == 0
