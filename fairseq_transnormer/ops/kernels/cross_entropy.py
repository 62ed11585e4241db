"""Cross entropy's kernel and its launch; ``ops.cross_entropy`` says what is computed.

Letters: N rows, V vocabulary.

A program takes a row, TILE logits at a time, twice: for the sum of the exponentials and
for the gradient. In the first pass each lane has a maximum of its own. A vocabulary of
hundreds of thousands fits in no program's registers.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from .launch import in_place, launch, with_contiguous_rows

# 16 bytes of half precision a thread: two programs a multiprocessor have the registers
TILE = 4096
WARPS = 16


def cross_entropy_in_place(
    logits: Tensor,
    targets: Tensor,
    ignore_index: int,
    scale: float,
    with_gradient: bool,
) -> Tensor:
    """``ops.cross_entropy.cross_entropy_in_place``, for rows of any stride."""
    rows = with_contiguous_rows(logits)
    losses = _run(rows, targets.contiguous(), ignore_index, scale, with_gradient)[0]
    if rows is not logits and with_gradient:
        logits.copy_(rows)
    return losses


def _launch(
    logits: Tensor,
    targets: Tensor,
    ignore_index: int,
    scale: float,
    with_gradient: bool,
) -> tuple[Tensor]:
    rows, vocabulary = logits.shape
    losses = torch.empty(rows, dtype=torch.float32, device=logits.device)
    tile = min(TILE, max(1024, triton.next_power_of_2(vocabulary)))
    launch(
        cross_entropy_kernel,
        (rows,),
        logits,
        targets,
        losses,
        vocabulary,
        logits.stride(0),
        ignore_index,
        float(scale),
        TILE=tile,
        WITH_GRADIENT=with_gradient,
        num_warps=WARPS,
    )
    return (losses,)


@triton.jit(do_not_specialize=["vocabulary", "ignore_index"])
def cross_entropy_kernel(
    logits,
    targets,
    losses,
    vocabulary,
    row_stride,
    ignore_index,
    scale,
    TILE: tl.constexpr,
    WITH_GRADIENT: tl.constexpr,
):
    """row_stride: of the logits. scale: of the gradient."""
    row = tl.program_id(0).to(tl.int64)
    logits += row * row_stride
    target = tl.load(targets + row)
    counts = target != ignore_index
    # tiles without a mask, which would make loads and stores narrow, and what is left
    whole = vocabulary // TILE * TILE
    lane = tl.arange(0, TILE)
    left = whole + lane < vocabulary
    highest = tl.full((TILE,), float("-inf"), tl.float32)
    total = tl.zeros((TILE,), tl.float32)
    for start in range(0, whole, TILE):
        x = tl.load(logits + start + lane)
        highest, total = _add_exponentials(x.to(tl.float32), highest, total)
    x = tl.load(logits + whole + lane, mask=left, other=float("-inf"))
    highest, total = _add_exponentials(x.to(tl.float32), highest, total)
    top = tl.max(highest, 0)
    total_of_row = tl.sum(total * tl.exp(highest - top), 0)
    exists = (target >= 0) & (target < vocabulary)
    of_target = tl.load(logits + target, mask=exists, other=0.0).to(tl.float32)
    loss = tl.where(exists, tl.log(total_of_row) - (of_target - top), float("nan"))
    tl.store(losses + row, tl.where(counts, loss, 0.0))
    if WITH_GRADIENT:
        # all threads have read the target's logit before one overwrites it
        tl.debug_barrier()
        factor = tl.where(counts, scale, 0.0)
        share = factor / total_of_row
        for start in range(0, whole, TILE):
            at = logits + start + lane
            change = tl.where(start + lane == target, factor, 0.0)
            y = tl.exp(tl.load(at).to(tl.float32) - top) * share - change
            tl.store(at, y.to(logits.dtype.element_ty))
        at = logits + whole + lane
        change = tl.where(whole + lane == target, factor, 0.0)
        x = tl.load(at, mask=left, other=0.0).to(tl.float32)
        y = tl.exp(x - top) * share - change
        tl.store(at, y.to(logits.dtype.element_ty), mask=left)


@triton.jit
def _add_exponentials(x, highest, total):
    """Each lane's maximum, and its sum of exp(x - maximum), with one more logit."""
    higher = tl.where(x > highest, x, highest)
    # -inf where the lane has seen nothing yet
    base = tl.where(higher > float("-inf"), higher, 0.0)
    total = total * tl.exp(tl.where(total > 0, highest - base, 0.0))
    # NaN is not above anything, and stays in the sum
    return higher, total + tl.exp(x - base)


_run = in_place(
    "cross_entropy",
    _launch,
    "(Tensor(a!) logits, Tensor targets, int ignore_index, float scale, "
    "bool with_gradient) -> Tensor",
    ("logits",),
)
