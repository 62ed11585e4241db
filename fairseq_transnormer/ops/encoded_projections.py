"""Queries, keys and values of an attention, projected and encoded, as one op.

Letters: B batch, N length, C width of the input, H heads, D head width.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from .attention_inputs import DERIVATIVES_FROM_OUTPUT
from .backend import Kernels, autocast_disabled, product_dtype, select
from .derivatives import once_differentiable
from .lrpe import lrpe
from .packed_weights import packed_rows, zeros_between
from .verification.trials import Case, draw, programs_at_once, register_cases


def encoded_projections(
    x: Tensor,
    weights: tuple[Tensor, Tensor, Tensor],
    biases: tuple[Tensor, Tensor, Tensor],
    theta: Tensor,
    reflection: Tensor,
    positions: Tensor,
    *,
    heads: int,
    feature_map: str = "identity",
    backend: str = "auto",
) -> tuple[Tensor, Tensor, Tensor]:
    """``lrpe`` of two projections of x, and a third one; under autocast in its dtype.

    Triton's form has one product of matrices forward and two backward, for which it
    copies the weights in each call. Its results share memory: write into none of them.

    Args:
        x: (B, N, C).
        weights: (H D, C) each, of queries, keys and values; H D a multiple of 8.
        biases: (H D,) each.
        theta, reflection, positions, feature_map: see ``lrpe``.
        heads: H.
        backend: "auto", "torch", "triton" or "reference".

    Returns:
        (B, N, H, D) each.

    Raises:
        ValueError: see ``lrpe``.
    """
    sample = x.new_empty(0, dtype=product_dtype(x))

    def kernels() -> Kernels:
        # LRPE's; products are torch's
        width = len(weights[0]) // heads
        return Kernels(
            "encoded_projections",
            lambda: {"width": width, "feature_map": feature_map},
            widths=(width,),
            products=False,
        )

    implementation = select(_IMPLEMENTATIONS, backend, (sample,), kernels)
    return implementation(
        x, weights, biases, theta, reflection, positions, heads, feature_map
    )


def _by_parts(backend: str):
    def by_parts(x, weights, biases, theta, reflection, positions, heads, feature_map):
        query, key, value = (
            F.linear(x, *each).unflatten(-1, (heads, -1))
            for each in zip(weights, biases, strict=True)
        )
        query, key = lrpe(
            query,
            key,
            theta,
            reflection,
            positions,
            feature_map=feature_map,
            backend=backend,
        )
        return query, key, value

    return by_parts


def _triton_encoded_projections(
    x, weights, biases, theta, reflection, positions, heads, feature_map
):
    if feature_map not in DERIVATIVES_FROM_OUTPUT:
        # it needs its input, which packing overwrites
        by_parts = _by_parts("triton")
        return by_parts(
            x, weights, biases, theta, reflection, positions, heads, feature_map
        )
    return _EncodedProjections.apply(
        x.to(product_dtype(x)),
        theta.contiguous(),
        reflection.contiguous(),
        positions,
        heads,
        feature_map,
        *weights,
        *biases,
    )


class _EncodedProjections(torch.autograd.Function):
    """Saves x, its results and the packed weights, which the gradient of x needs."""

    @staticmethod
    def forward(ctx, x, theta, reflection, positions, heads, feature_map, *parameters):
        from .triton_ops.lrpe import encode_packed

        weights, biases = parameters[:3], parameters[3:]
        with autocast_disabled(x):
            zeros = zeros_between(weights[0], x.shape[-1])
            weight, bias = packed_rows(weights, biases, zeros, x.dtype)
            rows = x.flatten(0, -2)
            packed = F.linear(rows, weight, bias)
            width = len(weight) // (3 * heads)
            packed = packed.view(*x.shape[:2], 3, heads, width)
            encode_packed(packed, theta, reflection, positions, feature_map)
        ctx.save_for_backward(rows, weight, packed, theta, reflection, positions)
        ctx.feature_map, ctx.dtype = feature_map, weights[0].dtype
        ctx.shape = x.shape
        ctx.set_materialize_grads(False)
        return packed.unbind(2)

    @staticmethod
    @once_differentiable
    def backward(ctx, *grads_out):
        from .triton_ops.lrpe import gradient_of_packed

        rows, weight, packed, *parameters = ctx.saved_tensors
        needed, nothing = ctx.needs_input_grad, (None,) * 3
        if all(grad is None for grad in grads_out):
            return (None,) * len(needed)
        with autocast_disabled(packed):
            grads, grad_bias, grad_theta = gradient_of_packed(
                packed, *parameters, grads_out, ctx.feature_map
            )
            grads = grads.view(len(rows), len(weight))
            grad_x = (grads @ weight).view(ctx.shape) if needed[0] else None
            grad_weights = grad_biases = nothing
            if any(needed[6:9]):
                grad_weights = (grads.t() @ rows).to(ctx.dtype).chunk(3)
            if any(needed[9:]):
                grad_biases = grad_bias.to(ctx.dtype).chunk(3)
        return grad_x, grad_theta, None, *nothing, *grad_weights, *grad_biases


_IMPLEMENTATIONS = {
    "torch": _by_parts("torch"),
    "reference": _by_parts("reference"),
    "triton": _triton_encoded_projections,
}


def _cases(options, dtype, device):
    heads, width = 2, options["width"]
    channels = heads * width
    (reflection,) = draw((width,), device=device)
    reflection /= reflection.norm()
    theta = 10000.0 ** -(torch.arange(0, width, 2, device=device).float() / width)

    def call(inputs, backend):
        x, *parameters, theta = inputs
        return encoded_projections(
            x,
            tuple(parameters[:3]),
            tuple(parameters[3:]),
            theta,
            reflection.to(theta.dtype),
            torch.arange(x.shape[1], device=device),
            heads=heads,
            feature_map=options["feature_map"],
            backend=backend,
        )

    # tokens that do not fill the last program; more programs than run at once
    for length in (37, 1024 // width * programs_at_once(device) + 3):
        x, *parameters = draw(
            (2, length, channels), *3 * [(channels, channels)], *3 * [(channels,)],
            device=device,
        )  # fmt: skip
        parameters = [each / channels**0.5 for each in parameters]
        yield Case([x, *parameters], call, wide=[theta])


register_cases("encoded_projections", _cases, products=False)
