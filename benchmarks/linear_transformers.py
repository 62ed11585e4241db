"""The measurements of two texts on linear transformers.

They are "Transformers are RNNs" (Katharopoulos et al., 2020), Figure 1, and "Linear
Transformers Are Faster" (Buckman and Gelada, Manifest AI, January 2024). The latter's
five forms of causal linear attention stand here as plainly, with leading batch
dimensions:

    y_i = sum over j <= i of (q_i . k_j) v_j

for q, k, v of shape (..., t, d), any floating dtype, which is also that of all sums.
They follow the post's equations where its listings slip. Its loop over j stops before
i, and its S_i Q_i needs the transpose of what its loop adds up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from fairseq_transnormer.modules import ATTENTIONS, LanguageModelConfig

from . import equations, measure
from .measure import FORWARD, TRAINING, Limits, attempt
from .ops import make_call
from .options import AttentionLengths, Case, LinearAttentionForms, Rows, chosen
from .registry import Provider, heads, linear


def attention_loop(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """LT_attention: two loops. O(t^2 d), and t^2 steps one after the other."""
    outputs = []
    for i in range(q.shape[-2]):
        q_i = q[..., i, :]
        y_i = torch.zeros_like(v[..., i, :])
        for j in range(i + 1):
            a_ij = (q_i * k[..., j, :]).sum(-1, keepdim=True)  # O(d)
            y_i = y_i + a_ij * v[..., j, :]  # O(d)
        outputs.append(y_i)
    return torch.stack(outputs, dim=-2)


def state_loop(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """LT_state: a recurrent network with a (d, d) state. O(t d^2), t steps."""
    state = torch.zeros_like(_outer(k[..., 0, :], v[..., 0, :]))
    outputs = []
    for i in range(q.shape[-2]):
        # out of place, since the backward pass needs each state
        state = state + _outer(k[..., i, :], v[..., i, :])  # O(d^2)
        outputs.append(_times(q[..., i, :], state))  # O(d^2)
    return torch.stack(outputs, dim=-2)


def attention_parallel(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """LT_attention_parallel_no_flash: the t x t matrix at once. O(t^2 d)."""
    mask = torch.ones(q.shape[-2], q.shape[-2], dtype=q.dtype, device=q.device).tril()
    scores = q @ k.transpose(-1, -2)  # O(t^2 d)
    return (scores * mask) @ v  # O(t^2) and O(t^2 d)


def state_parallel(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """LT_state_parallel: all t states at once, by a cumulative sum. O(t d^2)."""
    states = _outer(k, v).cumsum(-3)  # (..., t, d, d)
    return _times(q, states)  # O(t d^2)


def chunked(q: Tensor, k: Tensor, v: Tensor, chunk_size: int) -> Tensor:
    """LT_chunked: a state for each chunk, attention within. O(t d^2 + t c d).

    Unlike the post's, the last chunk may be short: zeros fill it.
    """
    t = q.shape[-2]
    tail = -t % chunk_size
    # (..., t / c, c, d)
    q, k, v = (
        F.pad(x, (0, 0, 0, tail)).unflatten(-2, (-1, chunk_size)) for x in (q, k, v)
    )
    updates = k.transpose(-1, -2) @ v  # O(t d^2)
    before = updates.cumsum(-3) - updates  # O((t / c) d^2)
    y = q @ before + attention_parallel(q, k, v)  # O(t d^2 + t c d)
    return y.flatten(-3, -2)[..., :t, :]


def _outer(k: Tensor, v: Tensor) -> Tensor:
    """(..., d) and (..., d) -> (..., d, d)."""
    return k.unsqueeze(-1) * v.unsqueeze(-2)


def _times(q: Tensor, state: Tensor) -> Tensor:
    """(..., d) times (..., d, d)."""
    return (q.unsqueeze(-2) @ state).squeeze(-2)


class Form(NamedTuple):
    """A causal attention of (B, H, N, D), or of (B, N, H, D) where ``length_first``.

    growth, width_growth: its time grows at most like length^growth at constant batch,
        and like d^width_growth at constant length.
    matrix: (length, width) -> elements a head of the largest tensor.
    """

    attend: Callable[[Tensor, Tensor, Tensor], Tensor]
    growth: int = 1
    width_growth: int = 2
    matrix: Callable[[int, int], int] = lambda n, d: n * d
    length_first: bool = False


def measured(
    forms: dict[str, Form], place: dict, width: int, reasons: dict, options
) -> Rows:
    """A row for each form.

    place: mode, batch, length and what names the case. reasons: why forms are left out.
    """
    cases, sizes = [], Case(place["batch"], place["length"])

    def call_of(form: Form) -> Callable:
        inputs = heads(replace(options, width=width), sizes)
        provider = Provider(form.attend, heads_first=not form.length_first)
        return make_call(provider, inputs, place["mode"])[0]

    for name, form in forms.items():
        elements = sizes.batch * options.heads * form.matrix(sizes.length, width)
        reason = reasons.get(name) or measure.quadratic_skip(
            elements * options.torch_dtype.itemsize, options, "largest tensor"
        )
        cases.append(({"provider": name, **place}, reason or attempt(call_of, form)))
    return measure.measure(cases, options)


LSH = {"reformer_chunk_size": 32, "reformer_buckets": 64}


def of_module(name: str, options, **values: Any) -> Form:
    """A registered attention without its projections, causal, as models start it."""
    shape = options.heads, options.width
    config = LanguageModelConfig(
        attention_types=name,
        embed_dim=options.heads * options.width,
        num_heads=options.heads,
        attention_dropout=0.0,
        **values,
    )
    layer = ATTENTIONS[name](config, causal=True).to(options.device)

    def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        positions = torch.arange(query.shape[1], device=query.device)
        output, _ = layer.attend(query, key, value, positions, None, None, False)
        return output.unflatten(-1, shape)

    return Form(attend, 2 if name == "softmax" else 1, length_first=True)


def attention_lengths(options: AttentionLengths, settings: dict) -> Iterator[Rows]:
    matrices = partial(equations.softmax_attention, causal=True)
    forms = {
        "softmax, matrices": Form(matrices, 2, 2, lambda n, d: n * n, True),
        "softmax, fused": of_module("softmax", options),
        **{
            f"LSH-{n}": of_module("reformer", options, reformer_hashes=n, **LSH)
            for n in (1, 4, 8)
        },
        "1+elu": of_module("linear", options),
        "NormAttention": of_module("norm", options),
        "DiagAttention": of_module("diag", options),
    }
    limits = Limits(options)
    for length in sorted(options.lengths):
        batch = max(1, options.tokens // length)
        place = {"mode": TRAINING, "batch": batch, "length": length}
        # the time of a call is that of its tokens
        sizes = {name: batch * length**form.growth for name, form in forms.items()}
        reasons = {name: limits.skip(name, sizes[name], 1) for name in forms}
        rows = measured(forms, place, options.width, reasons, options)
        for row in rows:
            limits.note(row["provider"], sizes[row["provider"]], row)
        yield rows


def forms_of(options: LinearAttentionForms) -> dict[str, Form]:
    """The post's, softmax attention, and our op in each backend."""
    n_by_n, states = (lambda n, d: n * n), (lambda n, d: n * d * d)
    softmax = partial(F.scaled_dot_product_attention, is_causal=True)
    forms = {
        "attention loop": Form(attention_loop, 2, 1),
        "attention parallel": Form(attention_parallel, 2, 1, n_by_n),
        "state loop": Form(state_loop),
        "state parallel": Form(state_parallel, matrix=states),
        "chunked": Form(partial(chunked, chunk_size=options.chunk_size)),
        "softmax attention (torch)": Form(softmax, 2, 1),
    }
    for backend in options.backends:
        ours = Form(linear(causal=True, backend=backend), length_first=True)
        forms[f"linear_attention ({backend})"] = ours
    return {name: forms[name] for name in chosen("--forms", options.forms, forms)}


def linear_attention_forms(
    options: LinearAttentionForms, settings: dict
) -> Iterator[Rows]:
    forms, limits = forms_of(options), Limits(options)
    lengths, tokens = sorted(options.lengths), options.tokens
    cases = [("batch 1", 1, n, options.width) for n in lengths]
    cases += [("width", 1, options.width_length, d) for d in sorted(options.widths)]
    fitting = [n for n in lengths if n <= tokens]
    cases += [("constant tokens", tokens // n, n, options.width) for n in fitting]
    for sweep, batch, length, width in cases:
        by_width = sweep == "width"
        size = width if by_width else length
        for mode in (FORWARD, TRAINING):
            place = {"sweep": sweep, "mode": mode, "batch": batch, "length": length}
            reasons = {}
            for name, form in forms.items():
                growth = form.width_growth if by_width else form.growth
                # fewer sequences of a constant count may still take as long a loop
                reasons[name] = limits.skip(
                    ("batch 1", name, mode), length, form.growth
                ) or limits.skip((sweep, name, mode), size, growth)
            place["width"] = width
            rows = measured(forms, place, width, reasons, options)
            for row in rows:
                limits.note((sweep, row["provider"], mode), size, row)
            yield rows
