"""The gradient of y = u / max(t, eps), by which the sum normaliser makes averages.

Letters: B batch, N length, H heads, E head width of values. u: sum_j s_j v_j, t:
sum_j s_j, over the scores s of a query.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from ...backend import unscaled_output_dtype
from ..launching import empty_rows, launch, strides
from ..tiles import head_rows, inside_rows, load_tile, store_tile

# elements of a program's tile: 32 for each thread of 4 warps
TILE = 4096


@triton.jit(do_not_specialize=["length", "heads", "chunks"])
def normalizer_backward_kernel(
    grad_output,
    output,
    rest,
    score_sums,
    grad_sums,
    score_grads,
    strides,
    length,
    heads,
    chunks,
    eps,
    E: tl.constexpr,
    ROWS: tl.constexpr,
):
    """du = dy / max(t, eps), and g = -(du . y) where t is no less than eps, else 0.

    y: output, and rest, what rounding took off it, unless that is None.
    strides: of grad_output, output, grad_sums (du) and rest. score_sums (t) and
    score_grads (g): (B * H, N). Grid: (B * H * chunks,).
    """
    program = tl.program_id(0).to(tl.int64)
    sequence = program // chunks
    row, head = sequence // heads, sequence % heads
    start = program % chunks * ROWS
    inside = inside_rows(start, length, ROWS)
    tokens = sequence * length + start + tl.arange(0, ROWS)
    total = tl.load(score_sums + tokens, mask=inside, other=1.0)
    dy = load_tile(
        head_rows(grad_output, strides[0], row, head),
        start,
        inside,
        True,
        ROWS,
        E,
        "identity",
    )
    y = load_tile(
        head_rows(output, strides[1], row, head),
        start,
        inside,
        True,
        ROWS,
        E,
        "identity",
    )
    y = y.to(tl.float32)
    if rest is not None:
        low = load_tile(
            head_rows(rest, strides[3], row, head),
            start,
            inside,
            True,
            ROWS,
            E,
            "identity",
        )
        y += low.to(tl.float32)
    du = dy.to(tl.float32) / tl.maximum(total, eps)[:, None]
    # as rounded as the scores that g is added to, so that the same parts cancel
    du = du.to(grad_sums.dtype.element_ty)
    grads = tl.sum(du.to(tl.float32) * y, 1)
    grads = tl.where(total >= eps, -grads, 0.0)
    store_tile(
        du,
        head_rows(grad_sums, strides[2], row, head),
        start,
        inside,
        inside,
        None,
        False,
        ROWS,
        E,
        "identity",
    )
    tl.store(score_grads + tokens, grads, mask=inside)


def normalizer_gradients(
    grad_output: Tensor,
    output: Tensor,
    rest: Tensor | None,
    score_sums: Tensor,
    eps: float,
) -> tuple[Tensor, Tensor]:
    """Gradients of u, (B, N, H, E), and of t, (B * H, N), float32.

    Args:
        grad_output, output: of y, (B, N, H, E).
        rest: what rounding took off the output, unless that is float32.
        score_sums: t, (B * H, N), float32.
        eps: smallest divisor.

    The gradient of u is float32 for float16 inputs: divided by a sum over many tokens
    it may be smaller than float16's numbers.
    """
    batch, length, heads, width = output.shape
    grad_sums = empty_rows(output, length, width, unscaled_output_dtype(output.dtype))
    score_grads = torch.empty_like(score_sums)
    rows = TILE // width
    chunks = triton.cdiv(length, rows)
    if output.dtype == torch.float32:
        # nothing; under torch.compile an empty tensor
        rest = None
    strided = (grad_output, output, grad_sums) + (() if rest is None else (rest,))
    launch(
        normalizer_backward_kernel,
        (batch * heads * chunks,),
        grad_output,
        output,
        rest,
        score_sums,
        grad_sums,
        score_grads,
        strides(strided),
        length,
        heads,
        chunks,
        eps,
        E=width,
        ROWS=rows,
        num_warps=4,
    )
    return grad_sums, score_grads
