"""The ops as laws.py sees them: how inputs are drawn, call, equation, tolerances."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F

from fairseq_transnormer import ops

from . import equations
from .drawing import draw_mask


@dataclass(frozen=True)
class Op:
    """An op as the laws see it.

    Attributes:
        draw: (**sizes and options) -> tensors in float64, and options of the call.
        call: (*tensors, backend, **options) -> results.
        equation: (*tensors, **options) -> the same in float64.
        sums: (dtype, options) -> whether the first result is a sum in float32.
        halves: whether kernels multiply float16 as it is, also where they sum.
        products: (dtype, options) -> whether a GPU multiplies matrices in TF32.
        kept: how many of the tensors at the end stay in float32 beside half precision.
        slack: a factor of the tolerances.
        state: where a sequence may come in parts, (state, *tensors, **options) -> pairs
            of what a state behind the tensors holds and has to hold.
    """

    draw: Callable
    call: Callable
    equation: Callable
    sums: Callable = lambda dtype, options: False
    halves: bool = False
    products: Callable = lambda dtype, options: False
    kept: int = 0
    slack: float = 1.0
    state: Callable | None = None


def _draw_qkv(
    length=70, *, width, batch=2, heads=2, value_width=None, key_length=None,
    pads=False, positive=False, **options,
):  # fmt: skip
    key_length = key_length or length
    shapes = (length, width), (key_length, width), (key_length, value_width or width)
    tensors = [torch.randn(batch, n, heads, w, dtype=torch.float64) for n, w in shapes]
    if positive:
        # averages divide by a sum of products
        tensors[:2] = [F.elu(x) + 1 for x in tensors[:2]]
    options = {"causal": True} | options
    if pads:
        mask = draw_mask(batch, key_length)
        if batch > 1:
            mask[1, key_length // 3 : 2 * key_length // 3] = True
        options["key_padding_mask"] = mask
    return tensors, options


def _draw_linear(length=70, *, after=False, **given):
    """after: whether a state is continued, whose sum is a fourth tensor."""
    normalize = given.get("normalize", False)
    tensors, options = _draw_qkv(length, positive=normalize, **given)
    query, _, value = tensors
    if after:
        shape = len(query), query.shape[2], query.shape[3], value.shape[3]
        tensors.append(torch.randn(shape, dtype=torch.float64))
    return tensors, options


def _linear(query, key, value, *initial, backend, **options):
    if not initial:
        return ops.linear_attention(query, key, value, backend=backend, **options)[:1]
    lengths = torch.full((len(query),), 5, device=query.device)
    state = ops.LinearAttentionState(initial[0].to(sums_dtype(query)), None, lengths)
    output, after = ops.linear_attention(
        query, key, value, **options,
        initial_state=state, return_state=True, backend=backend,
    )  # fmt: skip
    pads = options.get("key_padding_mask")
    real = key.shape[1] if pads is None else (~pads).sum(1)
    assert (after.length == 5 + real).all()
    return output, after.key_value


def sums_dtype(x):
    return torch.float64 if x.dtype == torch.float64 else torch.float32


def _linear_equation(query, key, value, *initial, feature_map="identity", **options):
    phi = equations.FEATURE_MAPS[feature_map]
    query, key = phi(query), phi(key)
    output = equations.linear_attention(query, key, value, **options)
    if not initial:
        return (output,)
    pads = options.get("key_padding_mask")
    if pads is not None:
        key = key.masked_fill(pads[..., None, None], 0)
    before = torch.einsum("bnhd,bhde->bnhe", query, initial[0])
    after = initial[0] + torch.einsum("bnhd,bnhe->bhde", key, value)
    return output + before, after


def _linear_state(state, query, key, value, normalize=False, **options):
    key, value = key.double(), value.double()
    yield state.key_value, torch.einsum("bnhd,bnhe->bhde", key, value)
    assert (state.key_sum is not None) == normalize
    if normalize:
        yield state.key_sum, key.sum(1)


def _block_state(state, query, key, value, block_size, **options):
    used = key.shape[1] % block_size
    for cached, x in ((state.key, key), (state.value, value)):
        assert cached.shape[1] == block_size
        yield cached[:, :used], x[:, key.shape[1] - used :]


def _draw_blocks(length=40, **given):
    return _draw_qkv(length, **{"block_size": 16} | given)


def _draw_encoded(length=17, *, width, heads=2, batch=2, far=0, rows=False, **options):
    """far: the first position; rows: whether each row has positions of its own."""
    query, key = (
        torch.randn(batch, length, heads, width, dtype=torch.float64) for _ in "qk"
    )
    reflection = torch.randn(width, dtype=torch.float64)
    positions = torch.arange(far, far + length)
    if rows:
        positions = torch.stack([positions + 7 * row for row in range(batch)])
    options["reflection"] = reflection / reflection.norm()
    return [query, key, _theta(width)], options | {"positions": positions}


def _theta(width):
    # as float32 has them, so that no case depends on their rounding
    return (10000.0 ** -(torch.arange(0, width, 2) / width)).double()


def _lrpe(query, key, theta, *, reflection, positions, backend, **options):
    reflection = reflection.to(theta.dtype)
    return ops.lrpe(
        query, key, theta, reflection, positions, backend=backend, **options
    )


def _lrpe_equation(query, key, theta, *, reflection, positions, **options):
    return tuple(
        equations.lrpe(x, theta, reflection, positions, **options) for x in (query, key)
    )


def _draw_rows(count, shape=(3, 17, 96), *, width=None, scale=1.0, **options):
    tensors = [scale * torch.randn(shape, dtype=torch.float64) for _ in range(count)]
    return tensors, options


def _draw_matrices(shape, sizes, **options):
    """Inputs of a shape, and matrices and vectors as nn.Linear has them."""
    inputs, parameters = sizes
    tensors = [torch.randn(shape, dtype=torch.float64) for _ in range(inputs)]
    for size in parameters:
        scale = size[-1] ** -0.5 if len(size) > 1 else 1.0
        tensors.append(scale * torch.randn(size, dtype=torch.float64))
    return tensors, options


def _draw_gated_linear(shape=(2, 3, 17), *, width=None, bias=True):
    sizes = [(5, shape[-1]), (5,)] if bias else [(5, shape[-1])]
    return _draw_matrices(shape, (2, sizes))


def _draw_unit(shape=(2, 7, 5), *, width=None, inside=13):
    """A width and an inner one that may be odd."""
    sizes = [(inside, shape[-1]), (inside,)] * 2 + [(6, inside), (6,)]
    return _draw_matrices(shape, (1, sizes))


def _unit_equation(x, w1, b1, w2, b2, w3, b3):
    return (equations.gate(x @ w1.t() + b1, x @ w2.t() + b2) @ w3.t() + b3,)


def _draw_loss(tokens=200, *, width, vocabulary=301, ignored=1, bias=True):
    sizes = [(vocabulary, width), (vocabulary,)] if bias else [(vocabulary, width)]
    tensors, _ = _draw_matrices((tokens, width), (1, sizes))
    targets = torch.randint(vocabulary, (tokens,))
    targets[::7] = ignored
    return tensors, {"targets": targets, "ignore_index": ignored}


def _loss(x, weight, *bias, targets, backend, **options):
    total, losses = ops.linear_cross_entropy(
        x, weight, targets, *bias, backend=backend, **options
    )
    assert not losses.requires_grad
    # scaled as a loss scaler does
    return 128 * total, losses


def _loss_equation(x, weight, *bias, targets, **options):
    logits = F.linear(x, weight, *bias)
    losses = F.cross_entropy(logits, targets, reduction="none", **options)
    return 128 * losses.sum(), losses.detach()


def _one(function, *tensors, backend, **options):
    return (function(*tensors, backend=backend, **options),)


def _calls(function):
    return partial(_one, function)


def _residual(x, y, *, backend):
    """A layer's three, so that every gradient counts."""
    eps = {"eps": 0.1, "backend": backend}
    x, z = ops.norm_with_residual(x, **eps)
    x, z = ops.dropout_add_norm(x, z * y, **eps)
    return (ops.dropout_add(x, z * z, backend=backend),)


def _residual_equation(x, y):
    x = x + equations.rms_norm(x, eps=0.1) * y
    return (x + equations.rms_norm(x, eps=0.1) ** 2,)


def _linear_sums(dtype, options):
    return dtype == torch.float16 and not options.get("normalize")


def _block_sums(dtype, options):
    """ReLU's weights have no bound."""
    return dtype == torch.float16 and options.get("activation") == "relu"


OPS = {
    "linear": Op(
        _draw_linear,
        _linear,
        _linear_equation,
        sums=_linear_sums,
        halves=True,
        products=lambda dtype, options: True,
        state=_linear_state,
    ),
    "block": Op(
        _draw_blocks,
        lambda *tensors, **options: ops.block_attention(*tensors, **options)[:1],
        lambda *tensors, **options: (equations.block_attention(*tensors, **options),),
        sums=_block_sums,
        products=lambda dtype, options: (
            dtype == torch.float32 or _block_sums(dtype, options)
        ),
        state=_block_state,
    ),
    "lrpe": Op(_draw_encoded, _lrpe, _lrpe_equation, kept=1),
    "rms_norm": Op(
        partial(_draw_rows, 1),
        _calls(ops.rms_norm),
        lambda x, eps=1e-8: (equations.rms_norm(x, eps=eps),),
    ),
    "residual": Op(partial(_draw_rows, 2), _residual, _residual_equation, slack=4.0),
    "gated_silu": Op(
        partial(_draw_rows, 2),
        _calls(ops.gated_silu),
        lambda a, b: (equations.gate(a, b),),
        slack=1.5,
    ),
    "gated_linear": Op(
        _draw_gated_linear,
        _calls(ops.gated_linear),
        lambda a, b, *layer: (F.linear(equations.gate(a, b), *layer),),
        slack=2.0,
    ),
    "gated_linear_unit": Op(
        _draw_unit, _calls(ops.gated_linear_unit), _unit_equation, slack=4.0
    ),
    "cross_entropy": Op(
        _draw_loss,
        _loss,
        _loss_equation,
        sums=lambda dtype, options: dtype.itemsize == 2,
        slack=4.0,
    ),
}
