"""Linear attention's kernels as compiled for GPUs: spills, memory, transposes.

The launches of D = E = 64, the paper's width. Stack is what a thread spills, in bytes;
the budgets are what was reached.
"""

import pytest
import torch

from fairseq_transnormer.ops.triton_ops import (
    bidirectional_linear_attention_kernels as bidirectional,
)
from fairseq_transnormer.ops.triton_ops import causal_linear_attention_kernels as causal
from fairseq_transnormer.ops.triton_ops.linear_attention_options import launch_options
from fairseq_transnormer.ops.triton_ops.linear_attention_step import step_kernel
from fairseq_transnormer.ops.triton_ops.linear_attention_sums import segment_sums_kernel

from .compilation import SHARED_MEMORY, compile_kernel, transposed_accumulators

WIDTH = 64
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
FLOAT32 = {
    "initial",
    "final",
    "sums",
    "grad_final",
    "grad_sums",
    "grad_initial",
    "state",
}
OUTPUTS = {"output", "grad_output"}
# kernel, arguments that are None, further constants
LAUNCHES = {
    "short forward": (
        causal.causal_forward_kernel,
        ("pads", "initial", "sums", "final"),
        {"SHORT": True},
    ),
    "segments forward": (
        causal.causal_forward_kernel,
        ("pads", "initial", "final"),
        {"SHORT": False},
    ),
    "short backward": (
        causal.causal_backward_kernel,
        ("pads", "initial", "sums", "grad_final", "grad_sums", "grad_initial"),
        {"SHORT": True},
    ),
    "segments backward": (
        causal.causal_backward_kernel,
        ("pads", "initial", "grad_final", "grad_initial"),
        {"SHORT": False},
    ),
    "sums": (segment_sums_kernel, ("pads",), {}),
    "bidirectional forward": (bidirectional.bidirectional_forward_kernel, (), {}),
    "bidirectional backward": (
        bidirectional.bidirectional_backward_kernel,
        ("pads",),
        {},
    ),
    "step": (step_kernel, ("pads",), {}),
    # a model without LRPE, padded, that continues after a state
    "all at once": (
        causal.causal_forward_kernel,
        (),
        {"SHORT": False, "PHI": "1+elu"},
    ),
}


def compile_launch(name, dtype, capability):
    kernel, absent, constants = LAUNCHES[name]
    options = launch_options(DTYPES[dtype], WIDTH, WIDTH)
    launch = {k: options.pop(k) for k in ("num_warps", "num_stages")}
    constants = {
        "PHI": "identity",
        **dict.fromkeys(("D", "E", "TILE", "TILE_D", "TILE_E"), WIDTH),
        **options,
        # what a GPU runs float32 in
        "PRECISION": "tf32",
        **constants,
        **dict.fromkeys(absent),
    }
    constants = {k: v for k, v in constants.items() if k in kernel.arg_names}
    types = {}
    for argument in kernel.arg_names:
        if argument in constants:
            continue
        if "stride" in argument or argument.endswith(
            ("length", "heads", "segments", "segment", "parts", "part")
        ):
            types[argument] = "i32"
        elif argument == "pads":
            types[argument] = "*u8"
        elif argument in FLOAT32 or (argument in OUTPUTS and dtype == "fp16"):
            types[argument] = "*fp32"
        else:
            types[argument] = f"*{dtype}"
    compiled = compile_kernel(kernel, types, constants, capability=capability, **launch)
    assert compiled.shared <= SHARED_MEMORY[capability]
    if capability == 90:
        assert not transposed_accumulators(compiled)
    return compiled


@pytest.mark.parametrize("name", LAUNCHES)
@pytest.mark.parametrize("capability", [80, 90])
def test_bfloat16_does_not_spill(name, capability):
    stack = compile_launch(name, "bf16", capability).stack
    allowed = 64 if (name, capability) == ("all at once", 80) else 0
    assert stack <= allowed


@pytest.mark.parametrize(
    ("name", "dtype", "capability", "stack"),
    [
        ("short backward", "fp16", 90, 0),
        ("segments forward", "fp16", 90, 0),
        ("segments forward", "fp16", 80, 64),
        ("segments forward", "fp32", 90, 32),
        ("segments forward", "fp32", 80, 448),
    ],
)
def test_other_dtypes_spill_little(name, dtype, capability, stack):
    assert compile_launch(name, dtype, capability).stack <= stack


def test_the_smaller_shared_memory_of_sm_86():
    assert compile_launch("segments backward", "bf16", 86).stack <= 88
