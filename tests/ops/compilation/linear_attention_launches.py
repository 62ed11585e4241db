"""The launches of linear attention that are shipped, ready to be compiled."""

import torch

from fairseq_transnormer.ops.triton_ops.linear_attention import (
    bidirectional,
    causal_kernels,
)
from fairseq_transnormer.ops.triton_ops.linear_attention.options import (
    WIDEST_TILE,
    table_entry,
)
from fairseq_transnormer.ops.triton_ops.linear_attention.step import step_kernel
from fairseq_transnormer.ops.triton_ops.linear_attention.sums import segment_sums_kernel

from .compilation import STRIDES, Compiled, compile_kernel

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
STATES = {
    *("initial", "final", "sums", "grad_final", "grad_sums", "grad_initial"),
    "state",
}
OUTPUTS = {"output", "grad_output"}
LENGTHS = ("length", "heads", "segments", "segment", "parts", "part")
TUPLES = {
    "inputs": ("query", "key", "value", "grad_output"),
    "grads": ("grad_query", "grad_key", "grad_value"),
    "states": ("initial", "sums", "final"),
    "before": ("initial", "sums"),
    "after": ("grad_final", "grad_sums", "grad_initial"),
}
# how many tensors each kernel gets the strides of
STRIDED = {
    causal_kernels.causal_forward_kernel: 4,
    causal_kernels.causal_backward_kernel: 7,
    segment_sums_kernel: 2,
    bidirectional.bidirectional_forward_kernel: 2,
    bidirectional.bidirectional_backward_kernel: 7,
    step_kernel: 5,
}
# kernel, form, tensors that are None, further constants
LAUNCHES = {
    "short forward": (
        causal_kernels.causal_forward_kernel,
        "short",
        ("pads", "initial", "sums", "final"),
        {"SHORT": True},
    ),
    "short backward": (
        causal_kernels.causal_backward_kernel,
        "short",
        ("pads", "initial", "sums", "grad_final", "grad_sums", "grad_initial"),
        {"SHORT": True},
    ),
    "segments forward": (
        causal_kernels.causal_forward_kernel,
        "segments",
        ("pads", "initial", "final"),
        {"SHORT": False},
    ),
    "segments backward": (
        causal_kernels.causal_backward_kernel,
        "segments",
        ("pads", "initial", "grad_final", "grad_initial"),
        {"SHORT": False},
    ),
    "segment sums": (segment_sums_kernel, "segments", ("pads",), {}),
    "bidirectional forward": (
        bidirectional.bidirectional_forward_kernel,
        "bidirectional",
        (),
        {},
    ),
    "bidirectional backward": (
        bidirectional.bidirectional_backward_kernel,
        "bidirectional",
        ("pads",),
        {},
    ),
    "step": (step_kernel, None, ("pads",), {}),
    # a model without LRPE, padded, that continues after a state
    "segments forward, all options": (
        causal_kernels.causal_forward_kernel,
        "segments",
        (),
        {"SHORT": False, "PHI": "1+elu"},
    ),
}


def launch_configuration(name: str, dtype: str, width: int, capability: int) -> dict:
    """Warps, stages and, but for the decoding step, chunk and precision."""
    form = LAUNCHES[name][1]
    if form is None:
        return {"num_warps": 4, "num_stages": 3}
    # float32 as a GPU runs it: in TF32
    return table_entry(form, DTYPES[dtype], width, divmod(capability, 10), True)


def compile_launch(name: str, dtype: str, width: int, capability: int) -> Compiled:
    """One of LAUNCHES for D = E = width."""
    kernel, _, absent, constants = LAUNCHES[name]
    options = dict(launch_configuration(name, dtype, width, capability))
    launch = {k: options.pop(k) for k in ("num_warps", "num_stages")}
    tile = min(width, WIDEST_TILE)
    constants = {
        "PHI": "identity",
        **dict.fromkeys(("D", "E"), width),
        **dict.fromkeys(("TILE", "TILE_D", "TILE_E"), tile),
        **options,
        **constants,
    }
    constants = {k: v for k, v in constants.items() if k in kernel.arg_names}
    types = {
        name: _type(name, dtype, absent)
        for name in kernel.arg_names
        if name not in constants
    }
    types["strides"] = (STRIDES,) * STRIDED[kernel]
    return compile_kernel(kernel, types, constants, capability=capability, **launch)


def _type(name: str, dtype: str, absent: tuple[str, ...]) -> str | tuple | None:
    """Triton type of an argument, or of a part of one."""
    if name in absent:
        return None
    if name in TUPLES:
        return tuple(_type(part, dtype, absent) for part in TUPLES[name])
    if name == "pads":
        return "*u8"
    if name in STATES:
        return "*fp32"
    if name.endswith(LENGTHS):
        return "i32"
    return "*fp32" if name in OUTPUTS and dtype == "fp16" else f"*{dtype}"
