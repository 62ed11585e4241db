"""Tiles inside the kernels: rows of a head, loads and stores, products, feature maps.

Letters: B batch, N length, H heads, D head width of queries and keys, E of values.

A kernel takes the strides of its (B, N, H, D) tensors as one tuple of tuples: batch,
token and head of each. The last dimension is contiguous. ``rows`` stands for one head
of a tensor: a pointer and the stride from token to token. The pointer is to the head's
first token, at the tile's first column. A tile is ROWS tokens of that head; ``start``
is its first token, in int64.
"""

import triton
import triton.language as tl

from ..backend import INTERPRETED

INTERPRETER = tl.constexpr(INTERPRETED)


@triton.jit
def head_rows(tensor, strides, row, head):
    """``rows`` of one head (int64) of one row of the batch (int64)."""
    stride_batch, stride_token, stride_head = strides
    return tensor + (row * stride_batch + head * stride_head), stride_token


@triton.jit
def from_column(rows, column):
    """``rows`` whose tiles begin at a column."""
    pointer, stride = rows
    return pointer + column, stride


@triton.jit
def inside_rows(start, length, ROWS: tl.constexpr):
    """Which of the tile's tokens are there."""
    return start + tl.arange(0, ROWS) < length


@triton.jit
def kept_rows(start, length, pads, ROWS: tl.constexpr):
    """Which of the tile's tokens are there and are no pads."""
    keep = inside_rows(start, length, ROWS)
    if pads is not None:
        tokens = start + tl.arange(0, ROWS)
        keep = keep & (tl.load(pads + tokens, mask=keep, other=1) == 0)
    return keep


@triton.jit
def some_chunks(first, last, length, CHUNK: tl.constexpr):
    """Chunks of tokens first ... last - 1 of ``length``: one at least, be it empty.

    A loop that the compiler knows to have a turn has no way around it. With a way
    around, Hopper's products add to what has two sources, and ptxas waits for each.
    """
    return tl.maximum(tl.cdiv(tl.minimum(last, length) - first, CHUNK), 1)


@triton.jit
def load_tile(
    rows,
    start,
    keep,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """The tile in its own dtype, zeros where ``keep``, bool (ROWS,), is False."""
    pointer, stride = rows
    keep = keep[:, None]
    offsets = tl.arange(0, ROWS)[:, None] * stride + tl.arange(0, WIDTH)[None, :]
    return tl.load(pointer + start * stride + offsets, mask=keep, other=0.0)


@triton.jit
def store_tile(
    tile,
    rows,
    start,
    inside,
    keep,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """Store the tile where ``inside``, with zeros where not ``keep``."""
    pointer, stride = rows
    index = tl.arange(0, ROWS)[:, None]
    columns = tl.arange(0, WIDTH)[None, :]
    tile = tl.where(keep[:, None], tile, 0.0)
    pointer += start * stride + index * stride + columns
    tl.store(pointer, tile.to(pointer.dtype.element_ty), mask=inside[:, None])


@triton.jit
def dot(a, b, accumulator, PRECISION: tl.constexpr):
    """accumulator + a b in float32.

    The interpreter keeps bfloat16 as bit patterns and multiplies those, so it gets
    float32 operands.
    """
    if INTERPRETER:
        a = a.to(tl.float32)
        b = b.to(tl.float32)
    return tl.dot(a, b, acc=accumulator, input_precision=PRECISION)


@triton.jit
def mixed_dot(a, b, accumulator, PRECISION: tl.constexpr):
    """accumulator + a b, where one operand may be a float32 sum.

    Beside bfloat16 the sum is rounded to bfloat16. float16 would overflow, so there
    both operands become float32: TF32 has float16's ten bits and float32's range.
    """
    if a.dtype != b.dtype:
        if a.dtype == tl.bfloat16 or b.dtype == tl.bfloat16:
            a = a.to(tl.bfloat16)
            b = b.to(tl.bfloat16)
        else:
            a = a.to(tl.float32)
            b = b.to(tl.float32)
    return dot(a, b, accumulator, PRECISION)


@triton.jit
def state_offsets(HEIGHT: tl.constexpr, TILE: tl.constexpr, WIDTH: tl.constexpr):
    """Offsets of (HEIGHT, TILE) in a state whose rows are WIDTH numbers."""
    return tl.arange(0, HEIGHT)[:, None] * WIDTH + tl.arange(0, TILE)[None, :]


@triton.jit
def add_states(state, states, low, high, offsets, SIZE: tl.constexpr):
    """state + the tiles at ``offsets`` of states low ... high - 1, of SIZE numbers.

    Nothing but more loads hides the way to the L2 cache. A tile of 16 KB is copied
    ahead; a larger one would take too much shared memory, and fills the way by itself.
    """
    STAGES: tl.constexpr = 3 if state.shape[0] * state.shape[1] <= 4096 else 1
    for other in tl.range(low, high, num_stages=STAGES):
        state += tl.load(states + other * SIZE + offsets)
    return state


@triton.jit
def feature_map(x, PHI: tl.constexpr):
    """phi(x) for x in float32; PHI is a name of ``ops.FEATURE_MAPS``."""
    if PHI == "elu":
        x = tl.where(x > 0, x, tl.exp(tl.minimum(x, 0.0)) - 1.0)
    elif PHI == "1+elu":
        x = tl.where(x > 0, x + 1.0, tl.exp(tl.minimum(x, 0.0)))
    elif PHI == "relu":
        x = tl.maximum(x, 0.0)
    return x


@triton.jit
def feature_map_derivative_from_output(y, PHI: tl.constexpr):
    """phi'(x) for y = phi(x) in float32 and PHI "elu" or "1+elu"."""
    if PHI == "elu":
        y += 1.0
    return tl.minimum(tl.maximum(y, 0.0), 1.0)
