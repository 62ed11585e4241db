"""Linear attention: o_i = q_i . sum_j k_j v_j^T, NormAttention's core (section 4.1).

Letters: B batch, N length of queries, M of keys, H heads, D head width of queries and
keys, E of values.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import index

import torch
from torch import Tensor

from .. import reference
from ..backend import Kernels, select
from ..states import LinearAttentionState
from . import torch_impl
from .options import Options

Result = tuple[Tensor, LinearAttentionState | None]


def linear_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    causal: bool,
    feature_map: str = "identity",
    key_padding_mask: Tensor | None = None,
    normalize: bool = False,
    eps: float = 1e-6,
    initial_state: LinearAttentionState | None = None,
    return_state: bool = False,
    backend: str = "auto",
) -> Result:
    """Attention without softmax, in time and memory linear in the length.

    o_i = sum_j (phi(q_i) . phi(k_j)) v_j over all j, or over j <= i when causal: the
    paper's equation 3 without Delta. With ``normalize`` the sum is divided by
    max(sum_j phi(q_i) . phi(k_j), eps), as in the 1+elu family.

    Args:
        query: (B, N, H, D), any strides; float64, float32, bfloat16 or float16.
        key: (B, M, H, D), the same dtype; M = N when causal.
        value: (B, M, H, E), the same dtype.
        causal: whether token i sees tokens j <= i only.
        feature_map: phi; "identity", "elu", "1+elu" or "relu".
        key_padding_mask: bool (B, M), True at pads; they take no part.
        normalize: divide by the sum of the scores.
        eps: smallest divisor of ``normalize``, above 0.
        initial_state: continue after the tokens that this state has seen (causal
            only), of any strides. A call with one token that needs no gradient writes
            into its tensors: go on with the returned state, and clone this one to keep
            it. ("reference" does not.)
        return_state: also return the state after the last token (causal only).
        backend: "auto", "torch", "triton" or "reference". Triton has ``normalize`` for
            steps of one token alone.

    Returns:
        (B, N, H, E), and the new state with ``return_state``, else None. The output is
        float32 for float16 inputs without ``normalize``, since such a sum leaves
        float16's range; it has value's dtype otherwise. Sums are float32 (float64).

    Raises:
        ValueError: shapes, dtypes, eps, the state or a name do not fit; or rows of a
            state that is updated share memory. Or backend="triton" cannot run here.
    """
    options = Options(
        causal=causal,
        feature_map=feature_map,
        key_padding_mask=key_padding_mask,
        normalize=normalize,
        eps=eps,
        initial_state=initial_state,
        return_state=return_state,
    )
    options.check(query, key, value)
    tensors = query, key, value
    implementation = select(
        _IMPLEMENTATIONS, backend, tensors, lambda: _kernels(*tensors, options)
    )
    return implementation(*tensors, options)


def _triton(query: Tensor, key: Tensor, value: Tensor, options: Options) -> Result:
    # imported when it is first called: Triton need not be installed
    from .triton_impl import linear_attention

    return linear_attention(query, key, value, options)


def _reference(query: Tensor, key: Tensor, value: Tensor, options: Options) -> Result:
    return reference.linear_attention(query, key, value, **options._asdict())


_IMPLEMENTATIONS: dict[str, Callable[[Tensor, Tensor, Tensor, Options], Result]] = {
    "torch": torch_impl.linear_attention,
    "reference": _reference,
    "triton": _triton,
}


def _kernels(query: Tensor, key: Tensor, value: Tensor, options: Options) -> Kernels:
    """What Triton would launch."""
    # numbers, also where torch.compile leaves sizes open
    widths = index(query.shape[-1]), index(value.shape[-1])
    step = options.is_step(query, key, value)
    unless = None
    if options.normalize and not step:
        unless = "normalize=True; its kernels have no division by the sum of the scores"

    def compiled_for():
        known = {
            "width": widths[0],
            "value_width": widths[1],
            "feature_map": options.feature_map,
            "padded": options.key_padding_mask is not None,
        }
        if step:
            return known | {"form": "step", "normalize": options.normalize}
        if not options.causal:
            return known | {"form": "bidirectional"}
        # imported where Triton is there
        from .launch_table import form_of

        form = "any"
        # a compiler may leave sizes open
        sizes = (*query.shape, *value.shape)
        if not torch.compiler.is_compiling() and all(type(x) is int for x in sizes):
            form = form_of(query, value)
        continued = options.initial_state is not None
        states = {"continued": continued, "returned": options.return_state}
        return known | {"form": form} | states

    return Kernels("linear_attention", compiled_for, widths=widths, unless=unless)
