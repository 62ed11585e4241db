"""Resources of block attention's kernels, by ahead-of-time compilation."""

import pytest
import torch

from fairseq_transnormer.ops.triton_ops import block_attention_kernels as kernels
from fairseq_transnormer.ops.triton_ops.block_tiles import (
    num_warps,
    transposes_products,
)

from .compilation import SHARED_MEMORY, compile_kernel, transposed_accumulators

TYPES = {torch.bfloat16: "bf16", torch.float16: "fp16", torch.float32: "fp32"}


def compile_for(name, capability, dtype, width, activation="softmax"):
    """One of the kernels for blocks of 64, as the launcher would have it compiled."""
    kernel = getattr(kernels, f"block_attention_{name}")
    wide = dtype == torch.float16 and activation == "relu"
    constants = {
        "BLOCK_SIZE": 64,
        "D": width,
        "E": width,
        "CAUSAL": True,
        "ACTIVATION": activation,
        "WIDE": wide,
        "PRECISION": "tf32",
        "TRANSPOSE": transposes_products(divmod(capability, 10)),
    }
    types = {"pads": "*i1", "state_length": "*i64", "new_length": "*i64"}
    types |= dict.fromkeys(("length", "blocks", "heads"), "i32") | {"scale": "fp32"}
    if wide:
        types |= dict.fromkeys(("output", "output_gradient"), "*fp32")
    for argument in kernel.arg_names:
        if argument not in constants:
            pointer = f"*{TYPES[dtype]}"
            types.setdefault(argument, "i32" if "stride" in argument else pointer)
    used = {k: v for k, v in constants.items() if k in kernel.arg_names}
    return compile_kernel(
        kernel,
        types,
        used,
        capability=capability,
        num_warps=num_warps(64, width),
        num_stages=1,
    )


@pytest.mark.parametrize(
    ("name", "capability", "dtype", "width", "activation", "stack"),
    [
        ("forward", 80, torch.bfloat16, 64, "softmax", 0),
        ("forward", 86, torch.float32, 64, "softmax", 0),
        ("forward", 90, torch.bfloat16, 128, "softmax", 0),
        ("backward", 80, torch.bfloat16, 64, "softmax", 0),
        ("backward", 86, torch.bfloat16, 128, "softmax", 0),
        ("backward", 86, torch.float32, 64, "softmax", 512),
        ("backward", 90, torch.bfloat16, 64, "softmax", 0),
        ("backward", 90, torch.float16, 64, "relu", 0),
        ("backward", 90, torch.float32, 64, "softmax", 0),
        ("backward", 90, torch.float32, 128, "softmax", 0),
        ("step", 80, torch.bfloat16, 64, "softmax", 0),
    ],
)
def test_resources(name, capability, dtype, width, activation, stack):
    """Shared memory fits; spills, in bytes of a thread, stay where they were seen."""
    compiled = compile_for(name, capability, dtype, width, activation)
    print(capability, name, dtype, width, compiled.registers, compiled.shared)
    assert compiled.shared <= SHARED_MEMORY[capability]
    assert compiled.stack <= stack
    if capability == 90:
        assert transposed_accumulators(compiled) == []


def test_the_lint_sees_transposed_products(monkeypatch):
    """Without the rule for Hopper it would fire there."""
    monkeypatch.setitem(globals(), "transposes_products", lambda _: True)
    assert transposed_accumulators(compile_for("backward", 90, torch.bfloat16, 64))
