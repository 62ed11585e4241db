"""Time of one attention layer for one more token, over the context.

    python -m benchmarks sampling_layer

Linear attention with its state beside softmax attention with its cache of keys and
values, and both computed anew over the whole context. Without projections; whole models
are in benchmarks generation_cost. Batch 1, random queries, keys and values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from fairseq_transnormer.argument_types import positive_integer
from fairseq_transnormer.ops import linear_attention

from ..harness import cases, command_line
from . import five_forms

NAME = "sampling_layer"
CONTEXTS = [64, 256, 1024, 4096, 16384, 65536]
OUR_STATE = "linear attention, state (linear_attention)"
PLAIN_STATE = "linear attention, state (plain)"
WRITTEN_CACHE = "softmax attention, cache written in place"
GROWN_CACHE = "softmax attention, cache by concatenation"
LINEAR_AGAIN = "linear attention, recomputed"
SOFTMAX_AGAIN = "softmax attention, recomputed"
# what the time of a token grows like in the context, at most
GROWTHS = {LINEAR_AGAIN: 1, SOFTMAX_AGAIN: 2}


class Sampler(NamedTuple):
    """step: the newest token's output (1, H, D), the same context at each call.

    kept_bytes: what is kept between tokens.
    """

    step: Callable[[], Tensor]
    kept_bytes: int


def samplers(inputs: Tensor) -> dict[str, Sampler]:
    """Name -> sampler for the last token of inputs, q, k, v (3, 1, N, H, D).

    The states are taken in place as a generation does: each further call of a step adds
    the token once more, which changes their numbers and not the work.
    """
    q, k, v = inputs
    heads_first = [x.transpose(1, 2).contiguous() for x in inputs]
    last_q, last_k, last_v = (x[:, :, -1:] for x in heads_first)
    past_k, past_v = (x[:, :, :-1].contiguous() for x in heads_first[1:])
    newest = [x[:, -1:] for x in inputs]
    past = [x[:, :-1] for x in inputs]
    state = linear_attention(*past, causal=True, return_state=True)[1]
    plain_state = state.key_value.to(inputs.dtype, copy=True)
    cache_k, cache_v = (torch.empty_like(x) for x in heads_first[1:])
    cache_k[:, :, :-1], cache_v[:, :, :-1] = past_k, past_v

    def our_state() -> Tensor:
        step = {"causal": True, "initial_state": state, "return_state": True}
        return linear_attention(*newest, **step)[0][:, 0]

    def written_cache() -> Tensor:
        cache_k[:, :, -1:], cache_v[:, :, -1:] = last_k, last_v
        return F.scaled_dot_product_attention(last_q, cache_k, cache_v)[:, :, 0]

    def grown_cache() -> Tensor:
        keys = torch.cat((past_k, last_k), dim=2)
        values = torch.cat((past_v, last_v), dim=2)
        return F.scaled_dot_product_attention(last_q, keys, values)[:, :, 0]

    plain = [x[:, 0] for x in newest]
    cache_bytes = cache_k.nbytes + cache_v.nbytes
    return {
        OUR_STATE: Sampler(our_state, state.key_value.nbytes),
        PLAIN_STATE: Sampler(
            lambda: five_forms.state_step(*plain, plain_state), plain_state.nbytes
        ),
        WRITTEN_CACHE: Sampler(written_cache, cache_bytes),
        GROWN_CACHE: Sampler(grown_cache, cache_bytes),
        LINEAR_AGAIN: Sampler(lambda: linear_attention(q, k, v, causal=True)[:, -1], 0),
        SOFTMAX_AGAIN: Sampler(
            lambda: F.scaled_dot_product_attention(*heads_first, is_causal=True)[
                :, :, -1
            ],
            0,
        ),
    }


@torch.no_grad()
def measure_context(
    context: int, limits: cases.Limits, options
) -> list[dict[str, object]]:
    """Rows of all samplers; the newest token is the last of the context."""
    inputs = torch.randn(
        (3, 1, context, options.heads, options.width),
        device=options.device,
        dtype=getattr(torch, options.dtype),
    )
    rows, calls = {}, {}
    for name, sampler in samplers(inputs).items():
        row = rows[name] = {
            "contestant": name,
            "context": context,
            "kept_bytes": sampler.kept_bytes,
        }
        reason = limits.skip(name, context, GROWTHS.get(name, 1))
        if reason is None:
            calls[name] = sampler.step
        else:
            row["skipped"] = reason
    cases.measure(rows, calls, options)
    for name, row in rows.items():
        limits.note(name, context, row)
    return list(rows.values())


def measure(options) -> Iterator[list[dict[str, object]]]:
    """The rows of one context after the other."""
    limits = cases.Limits(options)
    for context in options.contexts:
        yield measure_context(context, limits, options)
        print(f"{NAME}: context {context}", flush=True)


def main(arguments: list[str] | None = None) -> None:
    """The command line."""
    parser = command_line.benchmark_parser(NAME, __doc__.splitlines()[0])
    cases.add_limits(parser)
    add = parser.add_argument
    add("--contexts", type=positive_integer, nargs="+", default=CONTEXTS)
    add("--heads", type=positive_integer, default=8, help="H")
    add("--width", type=positive_integer, default=64, help="D, of a head")
    add(
        "--dtype",
        choices=["float32", "bfloat16"],
        default="float32",
        help="of queries, keys and values",
    )
    options = parser.parse_args(arguments)
    options.contexts.sort()
    command_line.run(
        NAME,
        options,
        arguments,
        {
            "batch": 1,
            "heads": options.heads,
            "head_width": options.width,
        },
        measure(options),
    )
