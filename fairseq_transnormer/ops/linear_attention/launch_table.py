"""How the kernels of linear attention are launched: a fixed table, no autotuning.

Letters: B batch, N length, H heads, D head width of queries and keys, E of values.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..backend import capability, multiprocessors, tf32_is_allowed
from ..kernels.launch import empty_rows


@dataclass(frozen=True)
class Rule:
    """Which form a call takes, by its length and its programs a multiprocessor.

    Measured on an H100, bfloat16, heads of 64: launch_sweep of results/gpu/h100.json.

    one_segment: so many programs a multiprocessor keep the memory busy with one program
        for a tile of a sequence; then each tensor is read once.
    enough: programs a multiprocessor for which segments are made shorter.
    smallest_segment: tokens.
    balance: segments are near sqrt(balance * N), where the traffic of the states, each
        of which all later segments read, is that of the tokens.
    """

    one_segment: float = 0.25
    enough: float = 0.25
    smallest_segment: int = 256
    balance: int = 64


RULE = Rule()
# up to so many tokens a program of the bidirectional form writes one chunk
FEW_TOKENS = 512
# columns of a state that a program holds
WIDEST_TILE = 64

BFLOAT16, FLOAT16, FLOAT32 = torch.bfloat16, torch.float16, torch.float32
# Tokens of a chunk, warps and stages, by kernel, width and dtype, where they are not
# those of _usual: the largest chunk with which the values of a program stay in
# registers and its tiles in shared memory, as compiled ahead of time (docs/kernels.md).
# Three stages are the least with which tiles come ahead of the products that use them:
# with two they are asked for and waited for in the same turn of the loop. One, without
# copies, where nothing else keeps the values in registers.
_HOPPER = {
    ("segments forward", 64, FLOAT32): (32, 4, 3),
    ("segments forward", 128, FLOAT16): (32, 8, 3),
    ("segments forward", 128, FLOAT32): (32, 8, 3),
    ("segments backward", 64, FLOAT32): (32, 4, 3),
    ("segments backward", 128, FLOAT16): (32, 8, 3),
    ("segments backward", 128, FLOAT32): (32, 8, 3),
}
# Ampere and Ada; fits their smallest shared memory, 99 KB, so it serves newer ones too
_ELSEWHERE = {
    ("segments forward", 64, FLOAT16): (32, 4, 3),
    ("segments forward", 64, FLOAT32): (32, 4, 3),
    ("segments forward", 128, BFLOAT16): (32, 8, 3),
    ("segments forward", 128, FLOAT16): (32, 8, 3),
    ("segments forward", 128, FLOAT32): (16, 8, 3),
    ("segments backward", 64, FLOAT16): (32, 4, 3),
    ("segments backward", 64, FLOAT32): (32, 4, 3),
    ("segments backward", 128, BFLOAT16): (32, 8, 3),
    ("segments backward", 128, FLOAT16): (16, 8, 3),
    ("segments backward", 128, FLOAT32): (16, 8, 3),
    ("sums", 64, FLOAT32): (32, 4, 3),
    ("sums", 128, BFLOAT16): (32, 8, 3),
    ("sums", 128, FLOAT16): (32, 8, 3),
    ("sums", 128, FLOAT32): (32, 8, 3),
    ("bidirectional forward", 128, FLOAT16): (32, 8, 3),
    ("bidirectional forward", 128, FLOAT32): (32, 8, 3),
    ("bidirectional backward", 128, FLOAT16): (32, 8, 3),
    ("bidirectional backward", 128, FLOAT32): (32, 8, 3),
}


# stages where the tables say nothing, and of kernels that are not here 3
_STAGES = {
    "segments forward": 3,
    "segments backward": 3,
}


def _usual(kernel: str, width: int) -> tuple[int, int, int]:
    stages = _STAGES.get(kernel, 3)
    return 64, 4 if width <= 64 else 8, stages


class Plan(NamedTuple):
    """How a causal launch cuts the tokens.

    segment: tokens of a program. several: whether what came before a segment needs a
        launch of its own.
    """

    segment: int
    several: bool


def causal_plan(direction: str, query: Tensor, value: Tensor) -> Plan:
    """The plan of the "forward" or "backward" launch for these inputs.

    The two may differ: a gradient has more programs than its output.
    """
    batch, length, heads, width = query.shape
    tiles = value.shape[-1] // min(value.shape[-1], WIDEST_TILE)
    if direction == "backward":
        _, tiles = backward_tiles(width, value.shape[-1])
    if _is_busy(query, tiles):
        return Plan(length, False)
    segment = cut(length, batch * heads, multiprocessors(query.device))
    return Plan(segment, segment < length)


def sums_segment(key: Tensor, value: Tensor) -> int:
    """Tokens of a segment where no causal order asks for a state in front of each."""
    batch, length, heads, _ = key.shape
    if _is_busy(key, value.shape[-1] // min(value.shape[-1], WIDEST_TILE)):
        return length
    return cut(length, batch * heads, multiprocessors(key.device))


def rows_of_a_program(x: Tensor, tiles: int, chunk: int) -> int:
    """Tokens of a program of the bidirectional form: it reads the sums once.

    tiles: how many a token has.
    """
    batch, length, heads, _ = x.shape
    if _is_busy(x, tiles):
        return length
    if length <= FEW_TOKENS:
        return chunk
    return cut(length, batch * heads, multiprocessors(x.device))


def _is_busy(x: Tensor, tiles: int) -> bool:
    """Whether a program for each tile of a sequence keeps the GPU's memory busy."""
    programs = x.shape[0] * x.shape[2] * tiles
    return programs >= RULE.one_segment * multiprocessors(x.device)


def cut(length: int, sequences: int, processors: int) -> int:
    """Tokens of a segment: a power of two near the balance.

    Shorter where the programs would not reach all multiprocessors.

    Args:
        length: N; torch.compile may leave it open until run time.
        sequences: B * H.
        processors: multiprocessors of the GPU.
    """
    enough = RULE.enough * processors
    segment = RULE.smallest_segment
    while segment * segment < RULE.balance * length:
        segment *= 2
    while (
        segment > RULE.smallest_segment and sequences * -(-length // segment) < enough
    ):
        segment //= 2
    return segment


def launch_options(kernel: str, query: Tensor, value: Tensor) -> dict[str, Any]:
    """Chunk, precision of products, warps and stages for these inputs.

    Args:
        kernel: segments or bidirectional, and forward or backward; or sums.
        query, value: for widths, dtype and device.
    """
    return table_entry(
        kernel,
        query.dtype,
        # an int, also where torch.compile leaves sizes open
        int(max(query.shape[-1], value.shape[-1])),
        capability(query.device),
        tf32_is_allowed(),
    )


@functools.cache
def table_entry(
    kernel: str,
    dtype: torch.dtype,
    width: int,
    capability: tuple[int, int],
    tf32: bool,
) -> dict[str, Any]:
    """launch_options by numbers; width is the wider of D and E.

    float16 always multiplies its float32 sums in TF32, which has its ten bits.
    """
    table = _HOPPER if capability[0] == 9 else _ELSEWHERE
    usual = _usual(kernel, width)
    chunk, num_warps, num_stages = table.get((kernel, width, dtype), usual)
    return {
        "CHUNK": chunk,
        "PRECISION": "ieee" if dtype == FLOAT32 and not tf32 else "tf32",
        "num_warps": num_warps,
        "num_stages": num_stages,
    }


def step_warps(tile: int) -> int:
    """Warps of a decoding step with so many columns of the state."""
    return 4 if tile <= WIDEST_TILE else 8


def backward_tiles(width: int, value_width: int) -> tuple[dict[str, int], int]:
    """The kernels' tile widths, and how many tiles dQ, dK and dV have together.

    The gradients are tasks of one launch, a tile of one of them each.
    """
    tile_d, tile_e = min(width, WIDEST_TILE), min(value_width, WIDEST_TILE)
    tasks = 2 * (width // tile_d) + value_width // tile_e
    return {"TILE_D": tile_d, "TILE_E": tile_e}, tasks


def empty_grads(*tensors: Tensor) -> list[Tensor]:
    """Room for the gradients of (B, N, H, D) tensors."""
    return [empty_rows(x, x.shape[1], x.shape[3], x.dtype) for x in tensors]


# forward and backward
FORMS = (
    "segments/segments",
    "segments/one segment",
    "one segment/one segment",
)
LENGTHS = (200, 1100)


def form_of(query: Tensor, value: Tensor) -> str:
    """Which of FORMS a causal call with these tensors takes."""
    return _form(query.shape, value.shape[-1], query.dtype, query.device)


def sizes_of_form(
    form: str,
    widths: tuple[int, int],
    dtype: torch.dtype,
    device: torch.device,
) -> list[tuple[int, int, int]]:
    """(B, H, N) of a small and of a large call that takes a form; none if none does.

    Lengths fill no last chunk; the large one has more programs than run at once. Only
    the small one for the interpreter, which runs one program after the other.
    """
    most = multiprocessors(device)
    batches = [(batch, 2) for batch in (1, 2, 3)]
    batches += [(batch, 4) for batch in range(2, most + 4, 2)]
    batches = [(1, 1), *batches]
    found = [
        (batch, heads, length)
        for batch, heads in batches
        for length in LENGTHS
        if _form((batch, length, heads, widths[0]), widths[1], dtype, device) == form
    ]
    # three rows, where there are pads, if they may be few
    few = [size for size in found if size[0] == 3 and size[1] == 2] or found
    many = sorted(found, key=lambda size: (size[2], -size[0] * size[1]))
    return few[:1] if device.type != "cuda" else few[:1] + many[:1]


# an op asks at every call
@functools.lru_cache(maxsize=4096)
def _form(
    shape: tuple[int, ...],
    value_width: int,
    dtype: torch.dtype,
    device: torch.device,
) -> str:
    one = torch.empty(1, dtype=dtype, device=device)
    tensors = one.expand(shape), one.expand(*shape[:-1], value_width)
    plans = (causal_plan(name, *tensors) for name in ("forward", "backward"))
    return "/".join("segments" if plan.several else "one segment" for plan in plans)
