"""Linear attention: o_i = q_i . sum_j k_j v_j^T, NormAttention's core (section 4.1).

Letters: B batch, N length of queries, M of keys, H heads, D head width of queries and
keys, E of values.
"""

from __future__ import annotations

import torch
from torch import Tensor

from . import reference, torch_linear_attention
from .attention_inputs import (
    check_attention_inputs,
    check_feature_map,
    check_state_tensor,
    real_lengths,
)
from .backend import Kernels, select
from .states import LinearAttentionState
from .verification.trials import (
    Case,
    draw,
    placed,
    programs_at_once,
    register_cases,
)


def _triton_linear_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    causal: bool,
    feature_map: str,
    key_padding_mask: Tensor | None,
    normalize: bool,
    eps: float,
    initial_state: LinearAttentionState | None,
    return_state: bool,
):
    """Which kernels take a call. Nothing there uses atomics."""
    # imported when it is first called: Triton need not be installed
    from .triton_ops import linear_attention as kernels
    from .triton_ops.launching import with_near_tokens

    query, key, value = (with_near_tokens(x) for x in (query, key, value))
    pads = None
    if key_padding_mask is not None:
        pads = key_padding_mask.contiguous().view(torch.uint8)
    state = vector = None
    if initial_state is not None:
        state = initial_state.key_value
        if normalize:
            vector = initial_state.key_sum
    needs_grad = _need_grad(query, key, value, state, vector)
    divisor = eps if normalize else None
    if not causal:
        return kernels.bidirectional_linear_attention(
            query, key, value, pads, feature_map, divisor, needs_grad
        )[0]
    if state is not None and query.shape[1] == 1 and not needs_grad:
        (output,) = kernels.linear_attention_step(
            query, key, value, pads, state, vector, feature_map, divisor
        )
    else:
        output, state, vector = kernels.causal_linear_attention(
            query,
            key,
            value,
            state,
            vector,
            pads,
            feature_map,
            divisor,
            return_state,
            needs_grad,
        )
    if not return_state:
        return output
    length = real_lengths(key, key_padding_mask)
    if initial_state is not None:
        length = initial_state.length + length
    return output, LinearAttentionState(state, vector if normalize else None, length)


_IMPLEMENTATIONS = {
    "torch": torch_linear_attention.linear_attention,
    "reference": reference.linear_attention,
    "triton": _triton_linear_attention,
}


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
) -> Tensor | tuple[Tensor, LinearAttentionState]:
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
        eps: smallest divisor of ``normalize``.
        initial_state: continue after the tokens that this state has seen (causal
            only). A call with one token that needs no gradient updates it in place
            and returns it: clone it to keep it.
        return_state: also return the state after the last token (causal only).
        backend: "auto", "torch", "triton" or "reference".

    Returns:
        (B, N, H, E): float32 for float16 inputs without ``normalize``, since such a
        sum leaves float16's range; value's dtype otherwise. With ``return_state`` a
        tuple of that and the new state. Sums are kept in float32 (float64).

    Raises:
        ValueError: shapes, dtypes, the state or a name do not fit, or backend="triton"
            where it cannot run.
    """
    check_attention_inputs(query, key, value, key_padding_mask, same_length=causal)
    check_feature_map(feature_map)
    if not causal and (initial_state is not None or return_state):
        raise ValueError(
            "causal=False with a state; allowed: states with causal=True only"
        )
    if initial_state is not None and normalize and initial_state.key_sum is None:
        raise ValueError(
            "initial_state.key_sum=None with normalize=True; allowed: a state that a "
            "call with normalize=True returned"
        )
    if initial_state is not None:
        batch, _, *heads_and_width = key.shape
        shape = (batch, *heads_and_width, value.shape[-1])
        check_state_tensor("key_value", initial_state.key_value, shape)
        if normalize:
            check_state_tensor("key_sum", initial_state.key_sum, shape[:-1])
    implementation = select(
        _IMPLEMENTATIONS,
        backend,
        (query, key, value),
        _kernels(
            query,
            key,
            value,
            causal,
            feature_map,
            key_padding_mask,
            normalize,
            initial_state,
            return_state,
        ),
    )
    return implementation(
        query,
        key,
        value,
        causal=causal,
        feature_map=feature_map,
        key_padding_mask=key_padding_mask,
        normalize=normalize,
        eps=eps,
        initial_state=initial_state,
        return_state=return_state,
    )


def _is_step(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    initial_state: LinearAttentionState | None,
) -> bool:
    """Whether a call is one token that updates a state in place."""
    if initial_state is None or query.shape[1] != 1:
        return False
    return not _need_grad(query, key, value, *initial_state[:2])


def _need_grad(*tensors: Tensor | None) -> bool:
    needed = (x is not None and x.requires_grad for x in tensors)
    return torch.is_grad_enabled() and any(needed)


def _kernels(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    causal: bool,
    feature_map: str,
    key_padding_mask: Tensor | None,
    normalize: bool,
    initial_state: LinearAttentionState | None,
    return_state: bool,
) -> Kernels:
    """What Triton would launch."""
    # ints, also where torch.compile leaves sizes open
    widths = int(query.shape[-1]), int(value.shape[-1])

    def options():
        known = {
            "width": widths[0],
            "value_width": widths[1],
            "feature_map": feature_map,
            "padded": key_padding_mask is not None,
            "normalize": normalize,
        }
        if _is_step(query, key, value, initial_state):
            return known | {"form": "step"}
        if normalize:
            # what their gradients need is kept
            sums = () if initial_state is None else initial_state[:2]
            known["differentiable"] = _need_grad(query, key, value, *sums)
        if not causal:
            return known | {"form": "bidirectional"}
        # imported where Triton is there
        from .triton_ops.linear_attention.forms import form_of

        form = "any"
        # torch.compile may leave sizes open
        if not torch.compiler.is_compiling():
            form = form_of(query, value, normalize)
        states = {"continued": initial_state is not None, "returned": return_state}
        return known | {"form": form} | states

    return Kernels("linear_attention", options, widths=widths)


def _cases(options, dtype, device):
    from .triton_ops.linear_attention.forms import FORMS, HEADS, sizes_of_form

    form = options["form"]
    widths = options["width"], options["width"], options["value_width"]
    causal, normalize = form != "bidirectional", options["normalize"]
    continued, returned = options.get("continued"), options.get("returned")
    known = {
        "causal": causal,
        "feature_map": options["feature_map"],
        "normalize": normalize,
    }

    def pads(batch, length):
        if not options["padded"]:
            return None
        return torch.arange(batch * length, device=device).view(batch, -1) % 5 == 0

    def initial(key_value, key_sum=None):
        length = torch.arange(len(key_value), device=device)
        return LinearAttentionState(key_value, key_sum, length)

    def call(inputs, backend):
        found = linear_attention(
            *inputs[:3],
            key_padding_mask=pads(*inputs[0].shape[:2]),
            initial_state=initial(*inputs[3:]) if continued else None,
            return_state=bool(returned),
            backend=backend,
            **known,
        )
        return (found[0], *_sums(found[1])) if returned else (found,)

    def step(inputs, backend):
        output, state = linear_attention(
            *inputs[:3],
            key_padding_mask=pads(len(inputs[0]), 1),
            initial_state=initial(*(x.clone() for x in inputs[3:])),
            return_state=True,
            backend=backend,
            **known,
        )
        return output, *_sums(state)

    def case(batch, length, call, with_state, differentiable=True):
        shapes = [(batch, length, HEADS, width) for width in widths]
        state = (batch, HEADS, widths[0])
        shapes += [(*state, widths[2]), state]
        query, key, value, key_value, key_sum = draw(*shapes, device=device)
        if normalize:
            # what is divided by is far from zero, as for scores that are positive
            query, key, key_sum = query.abs(), key.abs(), key_sum.abs()
        inputs = [placed(x, options["aligned"]) for x in (query, key, value)]
        wide = [key_value, key_sum] if normalize else [key_value]
        return Case(inputs, call, wide if with_state else [], differentiable)

    if form == "step":
        for batch in (3, programs_at_once(device)):
            yield case(batch, 1, step, True, differentiable=False)
        return
    sizes = [(1, 200), (programs_at_once(device) // 3, 200)]
    if causal:
        forms = FORMS if form == "any" else [form]
        known_to_rule = widths[1:], dtype, device, normalize
        sizes = [each for name in forms for each in sizes_of_form(name, *known_to_rule)]
    for batch, length in sizes:
        yield case(batch, length, call, continued, options.get("differentiable", True))


def _sums(state: LinearAttentionState) -> list[Tensor]:
    return [x for x in (state.key_value, state.key_sum) if x is not None]


register_cases("linear_attention", _cases)
