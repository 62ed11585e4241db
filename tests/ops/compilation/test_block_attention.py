"""Resources of block attention's kernels, by ahead-of-time compilation."""

import pytest

from .block_attention_launches import STACKS, compile_launch
from .compilation import SHARED_MEMORY, STACK, transposed_accumulators

OTHERS = [
    ("block forward, softmax", "bf16", 64, 80),
    ("block forward, softmax", "fp32", 64, 86),
    ("block forward, softmax", "bf16", 128, 90),
    ("block backward, softmax", "bf16", 64, 80),
    ("block backward, softmax", "bf16", 128, 86),
    ("block backward, softmax", "fp32", 64, 86),
    ("block backward, relu", "fp16", 64, 90),
    ("block backward, softmax", "fp32", 64, 90),
    ("block backward, softmax", "fp32", 128, 90),
    ("block step, softmax", "bf16", 64, 80),
    ("block forward, softmax, dropout", "bf16", 64, 80),
    ("block backward, softmax, dropout", "bf16", 64, 80),
    ("block backward, softmax, dropout", "bf16", 32, 90),
    ("block backward, relu, dropout", "fp16", 64, 90),
    ("block backward, softmax, dropout", "fp32", 128, 90),
]


@pytest.mark.parametrize(
    ("name", "dtype", "width", "capability"),
    [
        ("block backward, softmax", "bf16", 64, 90),
        ("block backward, softmax, dropout", "bf16", 64, 90),
        *(pytest.param(*launch, marks=pytest.mark.slow) for launch in OTHERS),
    ],
)
def test_resources(name, dtype, width, capability):
    """Shared memory fits; spills, in bytes of a thread, stay where they were seen."""
    compiled = compile_launch(name, dtype, width, capability)
    assert compiled.shared <= SHARED_MEMORY[capability]
    assert compiled.stack <= STACKS.get((name, dtype, width, capability), STACK)
    if capability == 90:
        assert transposed_accumulators(compiled) == []


@pytest.mark.slow
def test_the_lint_sees_transposed_products():
    """Without the rule for Hopper it would fire there."""
    name = "block backward, softmax"
    assert transposed_accumulators(
        compile_launch(name, "bf16", 64, 90, transposes=True)
    )
