"""The launches of block attention for blocks of 64, ready to be compiled."""

import torch

from fairseq_transnormer.ops.block_attention.kernels import (
    block_attention_backward,
    block_attention_forward,
    block_attention_step,
)
from fairseq_transnormer.ops.block_attention.sizes import (
    LARGEST_TILE,
    num_warps,
    transposes_products,
)

from .compilation import STRIDES, Compiled, compile_kernel

TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
BLOCK_SIZE = 64
# kernel, activation, whether weights are dropped
LAUNCHES = {
    f"block {name}, {activation}{', dropout' if drops else ''}": (
        *(kernel, activation, drops),
    )
    for name, kernel in (
        ("forward", block_attention_forward),
        ("backward", block_attention_backward),
        ("step", block_attention_step),
    )
    for activation in ("softmax", "relu")
    for drops in (False, True)
    if not drops or kernel is not block_attention_step
}
# bytes of a thread that some launches spill beyond the budget of all others
STACKS = {("block backward, softmax", "fp32", 64, 86): 512}


def _is_wide(name: str, dtype: str) -> bool:
    return dtype == "fp16" and LAUNCHES[name][1] == "relu"


def launch_configuration(
    name: str, dtype: str, width: int, capability: int
) -> dict | None:
    """Warps and stages; None where torch takes the block."""
    size = 4 if _is_wide(name, dtype) else TYPES[dtype].itemsize
    if BLOCK_SIZE * width * size > LARGEST_TILE[divmod(capability, 10)]:
        return None
    return {"num_warps": num_warps(BLOCK_SIZE, width), "num_stages": 3}


def compile_launch(
    name: str, dtype: str, width: int, capability: int, transposes=None
) -> Compiled:
    """One of LAUNCHES for D = E = width.

    transposes: whether products are transposed; None for what is shipped.
    """
    kernel, activation, drops = LAUNCHES[name]
    wide = _is_wide(name, dtype)
    if transposes is None:
        transposes = transposes_products(divmod(capability, 10))
    constants = {
        "BLOCK_SIZE": BLOCK_SIZE,
        "D": width,
        "E": width,
        "CAUSAL": True,
        "ACTIVATION": activation,
        "WIDE": wide,
        "PRECISION": "tf32",
        "TRANSPOSE": transposes,
        "DROPS": drops,
    }
    constants = {k: v for k, v in constants.items() if k in kernel.arg_names}
    tensor = f"*{dtype}"
    output = "*fp32" if wide else tensor
    types = {"pads": "*i1", "state_length": "*i64", "new_length": "*i64"}
    types |= dict.fromkeys(("length", "blocks", "heads"), "i32") | {"scale": "fp32"}
    types |= {"seed": "i64", "threshold": "i32", "growth": "fp32"}
    types |= dict.fromkeys(("pads_stride_b", "pads_stride_n"), "i32")
    types |= {"inputs": (tensor,) * 3, "grads": (output, *[tensor] * 3)}
    types |= {"output": output, "output_strides": STRIDES}
    types |= {"strides": (STRIDES,) * (6 if kernel is block_attention_step else 3)}
    types |= {"grad_strides": (STRIDES,) * 4}
    for argument in kernel.arg_names:
        types.setdefault(argument, tensor)
    options = launch_configuration(name, dtype, width, capability)
    return compile_kernel(kernel, types, constants, capability=capability, **options)
