"""How the kernels of linear attention are launched: fixed tables, no autotuning.

Letters: B batch, N length, H heads, D head width of queries and keys, E of values.
"""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from ...backend import capability, multiprocessors, tf32_is_allowed
from ..launching import empty_rows

# up to here summing up the tokens before a chunk again beats a launch for the states
SHORT_LENGTH = 1024
SMALLEST_SEGMENT = 256
# columns of a state that a program holds
WIDEST_TILE = 64

BFLOAT16, FLOAT16, FLOAT32 = torch.bfloat16, torch.float16, torch.float32
# Tokens of a chunk, warps and stages, by form, width and dtype: the largest chunk, then
# the most stages, with which the values of a program stay in registers and its tiles in
# shared memory, as compiled ahead of time (docs/kernels.md).
_NARROW = {
    (64, BFLOAT16): (64, 4, 2),
    (64, FLOAT16): (64, 4, 2),
    (64, FLOAT32): (64, 4, 2),
}
_HOPPER = {
    "short": _NARROW
    | {
        (128, BFLOAT16): (64, 8, 2),
        (128, FLOAT16): (64, 8, 2),
        (128, FLOAT32): (64, 8, 1),
    },
    "segments": _NARROW
    | {
        (128, BFLOAT16): (64, 8, 2),
        (128, FLOAT16): (32, 8, 2),
        (128, FLOAT32): (32, 8, 2),
    },
    "bidirectional": _NARROW
    | {
        (128, BFLOAT16): (64, 8, 2),
        (128, FLOAT16): (64, 8, 2),
        (128, FLOAT32): (64, 8, 2),
    },
}
# Ampere and Ada; fits their smallest shared memory, 99 KB, so it serves newer ones too
_ELSEWHERE = {
    "short": _NARROW
    | {
        (128, BFLOAT16): (64, 8, 2),
        (128, FLOAT16): (32, 8, 2),
        (128, FLOAT32): (32, 8, 2),
    },
    "segments": _NARROW
    | {
        (64, FLOAT16): (32, 4, 2),
        (64, FLOAT32): (32, 4, 2),
        (128, BFLOAT16): (64, 8, 2),
        (128, FLOAT16): (32, 8, 1),
        (128, FLOAT32): (32, 8, 1),
    },
    "bidirectional": _NARROW
    | {
        (128, BFLOAT16): (64, 8, 2),
        (128, FLOAT16): (64, 8, 2),
        (128, FLOAT32): (64, 8, 1),
    },
}


def causal_form(length: int) -> str:
    """Which of the causal kernels' two forms takes so many tokens."""
    return "short" if length <= SHORT_LENGTH else "segments"


def launch_options(form: str, query: Tensor, value: Tensor) -> dict:
    """Chunk, precision of products, warps and stages for these inputs.

    Args:
        form: "short", "segments" or "bidirectional".
        query, value: for widths, dtype and device.
    """
    return table_entry(
        form,
        query.dtype,
        # an int, also where torch.compile leaves sizes open
        int(max(query.shape[-1], value.shape[-1])),
        capability(query.device),
        tf32_is_allowed(),
    )


@functools.cache
def table_entry(
    form: str,
    dtype: torch.dtype,
    width: int,
    capability: tuple[int, int],
    tf32: bool,
) -> dict:
    """launch_options by numbers; width is the wider of D and E.

    float16 always multiplies its float32 sums in TF32, which has its ten bits.
    """
    table = (_HOPPER if capability[0] == 9 else _ELSEWHERE)[form]
    narrow = width <= 64
    # a width of 32 keeps its values with the largest chunk everywhere
    entries = _NARROW if width == 32 else table
    chunk, num_warps, num_stages = entries[64 if narrow else 128, dtype]
    return {
        "CHUNK": chunk,
        "PRECISION": "ieee" if dtype == FLOAT32 and not tf32 else "tf32",
        "num_warps": num_warps,
        "num_stages": num_stages,
    }


def segment_length(x: Tensor) -> int:
    """Tokens of a segment of (B, N, H, D): a power of two, or one segment of all.

    A state is read once by each later segment, so that the states' traffic falls with
    the segment and is balanced with the tokens' near sqrt(128 N). Shorter where the
    programs would not reach all multiprocessors; all tokens where the sequences alone
    keep them busy.
    """
    batch, length, heads = x.shape[:3]
    # close to two programs for each of them
    enough = multiprocessors(x.device) * 7 // 4
    return cut(length, batch * heads, enough)


def cut(length: int, sequences: int, enough: int) -> int:
    """segment_length by numbers, which torch.compile may leave open until run time.

    Args:
        length: N.
        sequences: B * H.
        enough: programs that keep the GPU busy.
    """
    if sequences >= enough:
        return length
    segment = SMALLEST_SEGMENT
    while segment * segment < 128 * length:
        segment *= 2
    while segment > SMALLEST_SEGMENT and sequences * -(-length // segment) < enough:
        segment //= 2
    return segment


def backward_tiles(width: int, value_width: int) -> tuple[dict, int]:
    """The kernels' tile widths, and how many tiles dQ, dK and dV have together.

    The gradients are tasks of one launch, a tile of one of them each.
    """
    tile_d, tile_e = min(width, WIDEST_TILE), min(value_width, WIDEST_TILE)
    tasks = 2 * (width // tile_d) + value_width // tile_e
    return {"TILE_D": tile_d, "TILE_E": tile_e}, tasks


def empty_grads(*tensors: Tensor) -> list[Tensor]:
    """Room for the gradients of (B, N, H, D) tensors."""
    return [empty_rows(x, x.shape[1], x.shape[3], x.dtype) for x in tensors]
