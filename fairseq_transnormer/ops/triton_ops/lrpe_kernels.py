"""LRPE: feature map, reflection and rotation of queries and keys in one launch.

A program takes BLOCK tokens, which are counted through the batch, and some heads, so
that the angles of a token are computed once.
"""

import triton
import triton.language as tl

from .kernel_language import feature_map, feature_map_derivative_from_output

# they change from call to call, and a kernel for each kind of number gains nothing
LENGTHS = ["tokens", "length", "heads", "heads_a_program", "positions_stride_b"]


@triton.jit(do_not_specialize=LENGTHS)
def encode_kernel(
    query,
    key,
    query_out,
    key_out,
    theta,
    reflection,
    positions,
    tokens,
    length,
    heads,
    heads_a_program,
    query_stride_b,
    query_stride_n,
    query_stride_h,
    key_stride_b,
    key_stride_n,
    key_stride_h,
    query_out_stride_b,
    query_out_stride_n,
    query_out_stride_h,
    key_out_stride_b,
    key_out_stride_n,
    key_out_stride_h,
    positions_stride_b,
    positions_stride_n,
    PHI: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
):
    b, n, inside = _tokens(tokens, length, BLOCK)
    position = _positions(
        positions, b, n, inside, positions_stride_b, positions_stride_n
    )
    cos, sin = _turns(position, theta, WIDTH)
    v = tl.load(reflection + tl.arange(0, WIDTH)).to(tl.float32)
    query += _offsets(b, n, query_stride_b, query_stride_n, WIDTH)
    key += _offsets(b, n, key_stride_b, key_stride_n, WIDTH)
    query_out += _offsets(b, n, query_out_stride_b, query_out_stride_n, WIDTH)
    key_out += _offsets(b, n, key_out_stride_b, key_out_stride_n, WIDTH)
    first = tl.program_id(1).to(tl.int64) * heads_a_program
    for i in range(0, heads_a_program):
        head = first + i
        mask = inside[:, None] & (head < heads)
        x = tl.load(query + head * query_stride_h, mask=mask, other=0.0)
        y = _encoded(x, v, cos, sin, PHI, WIDTH, BLOCK)
        y = y.to(query_out.dtype.element_ty)
        tl.store(query_out + head * query_out_stride_h, y, mask=mask)
        x = tl.load(key + head * key_stride_h, mask=mask, other=0.0)
        y = _encoded(x, v, cos, sin, PHI, WIDTH, BLOCK)
        y = y.to(key_out.dtype.element_ty)
        tl.store(key_out + head * key_out_stride_h, y, mask=mask)


@triton.jit(do_not_specialize=LENGTHS)
def encode_backward_kernel(
    query_out,
    key_out,
    grad_query_out,
    grad_key_out,
    grad_query,
    grad_key,
    partial_grad_theta,
    theta,
    reflection,
    positions,
    tokens,
    length,
    heads,
    heads_a_program,
    query_out_stride_b,
    query_out_stride_n,
    query_out_stride_h,
    key_out_stride_b,
    key_out_stride_n,
    key_out_stride_h,
    grad_query_out_stride_b,
    grad_query_out_stride_n,
    grad_query_out_stride_h,
    grad_key_out_stride_b,
    grad_key_out_stride_n,
    grad_key_out_stride_h,
    grad_query_stride_b,
    grad_query_stride_n,
    grad_query_stride_h,
    grad_key_stride_b,
    grad_key_stride_n,
    grad_key_stride_h,
    positions_stride_b,
    positions_stride_n,
    PHI: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
):
    b, n, inside = _tokens(tokens, length, BLOCK)
    position = _positions(
        positions, b, n, inside, positions_stride_b, positions_stride_n
    )
    cos, sin = _turns(position, theta, WIDTH)
    v = tl.load(reflection + tl.arange(0, WIDTH)).to(tl.float32)
    query_out += _offsets(b, n, query_out_stride_b, query_out_stride_n, WIDTH)
    key_out += _offsets(b, n, key_out_stride_b, key_out_stride_n, WIDTH)
    grad_query_out += _offsets(
        b, n, grad_query_out_stride_b, grad_query_out_stride_n, WIDTH
    )
    grad_key_out += _offsets(b, n, grad_key_out_stride_b, grad_key_out_stride_n, WIDTH)
    grad_query += _offsets(b, n, grad_query_stride_b, grad_query_stride_n, WIDTH)
    grad_key += _offsets(b, n, grad_key_stride_b, grad_key_stride_n, WIDTH)
    first = tl.program_id(1).to(tl.int64) * heads_a_program
    by_angle = tl.zeros((BLOCK, WIDTH // 2), tl.float32)
    for i in range(0, heads_a_program):
        head = first + i
        mask = inside[:, None] & (head < heads)
        y = tl.load(query_out + head * query_out_stride_h, mask=mask, other=0.0)
        g = tl.load(grad_query_out + head * grad_query_out_stride_h, mask, other=0.0)
        dx, angle = _encoded_backward(y, g, v, cos, sin, PHI, WIDTH, BLOCK)
        by_angle += angle
        dx = dx.to(grad_query.dtype.element_ty)
        tl.store(grad_query + head * grad_query_stride_h, dx, mask=mask)
        y = tl.load(key_out + head * key_out_stride_h, mask=mask, other=0.0)
        g = tl.load(grad_key_out + head * grad_key_out_stride_h, mask, other=0.0)
        dx, angle = _encoded_backward(y, g, v, cos, sin, PHI, WIDTH, BLOCK)
        by_angle += angle
        dx = dx.to(grad_key.dtype.element_ty)
        tl.store(grad_key + head * grad_key_stride_h, dx, mask=mask)
    partial = tl.sum(by_angle * position[:, None], 0)
    program = tl.program_id(0).to(tl.int64) * tl.num_programs(1) + tl.program_id(1)
    pairs = tl.arange(0, WIDTH // 2)
    tl.store(partial_grad_theta + program * (WIDTH // 2) + pairs, partial)


@triton.jit
def _tokens(tokens, length, BLOCK: tl.constexpr):
    """Batch row and index of each token of the program, and whether there is one."""
    token = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    b, n = token // length, token % length
    return b.to(tl.int64), n.to(tl.int64), token < tokens


@triton.jit
def _positions(positions, b, n, inside, stride_b, stride_n):
    position = tl.load(positions + b * stride_b + n * stride_n, mask=inside, other=0)
    return position.to(tl.float32)


@triton.jit
def _turns(position, theta, WIDTH: tl.constexpr):
    """Cosines and sines of the angles, (BLOCK, WIDTH / 2)."""
    theta = tl.load(theta + tl.arange(0, WIDTH // 2)).to(tl.float32)
    angle = position[:, None] * theta[None, :]
    return tl.cos(angle), tl.sin(angle)


@triton.jit
def _offsets(b, n, stride_b, stride_n, WIDTH: tl.constexpr):
    """Of the elements of head 0 of each token, (BLOCK, WIDTH)."""
    return (b * stride_b + n * stride_n)[:, None] + tl.arange(0, WIDTH)[None, :]


@triton.jit
def _reflected(x, v):
    return x - 2.0 * tl.sum(x * v[None, :], 1)[:, None] * v[None, :]


@triton.jit
def _pairs(x, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    return tl.split(tl.reshape(x, (BLOCK, WIDTH // 2, 2)))


@triton.jit
def _from_pairs(even, odd, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    return tl.reshape(tl.join(even, odd), (BLOCK, WIDTH))


@triton.jit
def _encoded(
    x, v, cos, sin, PHI: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr
):
    x = _reflected(feature_map(x.to(tl.float32), PHI), v)
    even, odd = _pairs(x, WIDTH, BLOCK)
    return _from_pairs(even * cos - odd * sin, even * sin + odd * cos, WIDTH, BLOCK)


@triton.jit
def _encoded_backward(
    y, g, v, cos, sin, PHI: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr
):
    """Gradients in x, and in the angles of its pairs, for the encoded y of x.

    d(even, odd) / d angle = (-odd, even) of y; everything else is turned back.
    """
    even, odd = _pairs(y.to(tl.float32), WIDTH, BLOCK)
    grad_even, grad_odd = _pairs(g.to(tl.float32), WIDTH, BLOCK)
    by_angle = grad_odd * even - grad_even * odd
    grad = _decoded(grad_even, grad_odd, v, cos, sin, WIDTH, BLOCK)
    if PHI != "identity":
        mapped = _decoded(even, odd, v, cos, sin, WIDTH, BLOCK)
        grad *= feature_map_derivative_from_output(mapped, PHI)
    return grad, by_angle


@triton.jit
def _decoded(even, odd, v, cos, sin, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """Turned back and reflected back, which is the transpose and the inverse."""
    back = _from_pairs(even * cos + odd * sin, odd * cos - even * sin, WIDTH, BLOCK)
    return _reflected(back, v)
