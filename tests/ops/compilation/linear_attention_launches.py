"""The launches of linear attention that are shipped, ready to be compiled."""

import torch

from fairseq_transnormer.ops.linear_attention import bidirectional, kernels
from fairseq_transnormer.ops.linear_attention.launch_table import (
    WIDEST_TILE,
    step_warps,
    table_entry,
)
from fairseq_transnormer.ops.linear_attention.segment_sums import segment_sums_kernel
from fairseq_transnormer.ops.linear_attention.step import step_kernel

from .compilation import STRIDES, Compiled, compile_kernel

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
OUTPUTS = {"output", "grad_output"}
LENGTHS = ("length", "heads", "segments", "segment", "parts", "part")
TUPLES = {
    "inputs": ("query", "key", "value", "grad_output"),
    "grads": ("grad_query", "grad_key", "grad_value"),
    "states": ("initial", "state sums", "final"),
    "before": ("initial", "state sums"),
    "after": ("grad_final", "state sums", "grad_initial"),
}
# how many tensors each kernel gets the strides of
STRIDED = {
    kernels.causal_forward_kernel: 4,
    kernels.causal_backward_kernel: 7,
    segment_sums_kernel: 2,
    bidirectional.bidirectional_forward_kernel: 2,
    bidirectional.bidirectional_backward_kernel: 7,
    step_kernel: 6,
}
# of float32, where they are not left out
SUMS = {
    *("initial", "state sums", "final", "grad_final", "grad_initial"),
    *("state", "vector"),
}
# of the tensors that a call may be without, those that it has
STATES = ("pads", "initial", "final", "grad_final", "grad_initial")
FORWARD = kernels.causal_forward_kernel
BACKWARD = kernels.causal_backward_kernel
ROWS = bidirectional.bidirectional_forward_kernel
ROWS_BACKWARD = bidirectional.bidirectional_backward_kernel
# kernel, its entry in the table, optional tensors that it has, further constants
LAUNCHES = {
    "segments forward": (FORWARD, "segments forward", ("state sums",), {}),
    "segments backward": (BACKWARD, "segments backward", ("state sums",), {}),
    "one segment forward": (FORWARD, "segments forward", (), {}),
    "one segment backward": (BACKWARD, "segments backward", (), {}),
    "segment sums": (segment_sums_kernel, "sums", (), {}),
    "bidirectional forward": (ROWS, "bidirectional forward", (), {}),
    "bidirectional backward": (ROWS_BACKWARD, "bidirectional backward", (), {}),
    "step": (step_kernel, None, (), {}),
    # padded, and continued after a state
    **{
        f"{name}, all options": (
            kernel,
            name.replace("segment ", ""),
            STATES + (("state sums",) if "segments" in name else ()),
            {},
        )
        for name, kernel in (
            ("segments forward", FORWARD),
            ("segments backward", BACKWARD),
            ("segment sums", segment_sums_kernel),
            ("bidirectional forward", ROWS),
            ("bidirectional backward", ROWS_BACKWARD),
        )
    },
    "step, normalized": (step_kernel, None, ("vector",), {"PHI": "1+elu"}),
}


def launch_configuration(name: str, dtype: str, width: int, capability: int) -> dict:
    """Warps, stages and, where the table has them, chunk and precision."""
    entry = LAUNCHES[name][1]
    if entry is None:
        warps = step_warps(width) if name == "step, normalized" else 4
        return {"num_warps": warps, "num_stages": 3}
    # float32 as a GPU runs it: in TF32
    return table_entry(entry, DTYPES[dtype], width, divmod(capability, 10), True)


def compile_launch(
    name: str, dtype: str, width: int, capability: int, **widths
) -> Compiled:
    """One of LAUNCHES for D = E = width, but for what ``widths`` says of D or E."""
    kernel, _, present, constants = LAUNCHES[name]
    key_width, value_width = (widths.get(letter, width) for letter in "DE")
    options = dict(launch_configuration(name, dtype, width, capability))
    launch = {k: options.pop(k) for k in ("num_warps", "num_stages")}
    tiles = {
        "TILE_D": min(key_width, WIDEST_TILE),
        "TILE_E": min(value_width, WIDEST_TILE),
    }
    one_program = name == "step, normalized"
    constants = {
        "PHI": "identity",
        "D": key_width,
        "E": value_width,
        "TILE": value_width if one_program else tiles["TILE_E"],
        **tiles,
        **options,
        **constants,
    }
    constants = {k: v for k, v in constants.items() if k in kernel.arg_names}
    types = {
        name: _type(name, dtype, present, kernel)
        for name in kernel.arg_names
        if name not in constants
    }
    types["strides"] = (STRIDES,) * STRIDED[kernel]
    return compile_kernel(kernel, types, constants, capability=capability, **launch)


def _type(name: str, dtype: str, present: tuple, kernel) -> str | tuple | None:
    """Triton type of an argument, or of a part of one."""
    parts = TUPLES.get(name)
    if parts:
        return tuple(_type(part, dtype, present, kernel) for part in parts)
    if name == "eps":
        return "fp32"
    if name.endswith(LENGTHS):
        return "i32"
    optional = name in SUMS or name == "pads"
    if optional and name not in present and name != "state":
        return None
    if name == "pads":
        return "*u8"
    if optional or name in ("sums", "grad_sums"):
        return "*fp32"
    # a sum leaves float16's range
    return "*fp32" if name in OUTPUTS and dtype == "fp16" else f"*{dtype}"
