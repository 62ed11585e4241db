"""Causal linear attention alone: unscaled, and divided by the sum of the scores."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from torch import Tensor

from fairseq_transnormer.ops import FEATURE_MAPS, linear_attention

from . import equations
from .contestant import (
    Case,
    Computation,
    Contestant,
    Group,
    Setup,
    compiled,
    heads,
    imported,
)
from .torch_attention import flex_attention, softmax_attentions

FLA = "fla.ops.linear_attn"
# over the sum of scores, features must be positive
POSITIVE = "1+elu"
SOFTMAX = Computation(
    "causal softmax attention", partial(equations.softmax_attention, causal=True)
)


def groups(setup: Setup, cases: list[Case], check_case: Case) -> list[Group]:
    shared = dict(inputs=partial(heads, setup), cases=cases, check_case=check_case)
    naive = partial(equations.causal_linear_attention, feature_map=setup.feature_map)
    return [
        Group(
            "linear_attention",
            "causal",
            Computation(f"causal linear attention, phi = {setup.feature_map}", naive),
            contestants=unscaled(setup, naive),
            **shared,
        ),
        Group(
            "linear_attention",
            "sum-normalised",
            Computation(
                f"causal linear attention over its sum of scores, phi = {POSITIVE}",
                partial(equations.sum_normalised_attention, feature_map=POSITIVE),
            ),
            contestants=sum_normalised(),
            **shared,
        ),
    ]


def unscaled(setup: Setup, naive: Callable) -> list[Contestant]:
    """Ours, those that compute the same, and what softmax costs."""
    phi = setup.feature_map
    in_torch, in_triton = (
        partial(linear_attention, causal=True, feature_map=phi, backend=backend)
        for backend in ("torch", "triton")
    )
    fla = dict(autotuned=True, needs_cuda=True, package="fla-core")
    return [
        Contestant("ours (triton)", in_triton, ours=True),
        Contestant("ours (torch)", in_torch, ours=True),
        Contestant("naive", naive, quadratic=True),
        *softmax_attentions(True, SOFTMAX),
        Contestant(
            "FlexAttention",
            flex_attention(causal=True),
            instead=SOFTMAX,
            heads_first=True,
            compiled=True,
        ),
        Contestant(
            "torch.compile of naive", compiled(naive), quadratic=True, compiled=True
        ),
        Contestant("torch.compile of ours (torch)", compiled(in_torch), compiled=True),
        *(
            Contestant(f"fla {name}", of_fla(FLA, name, phi, normalize=False), **fla)
            for name in ("fused_chunk_linear_attn", "chunk_linear_attn")
        ),
        Contestant(
            "fla parallel_simple_gla",
            of_fla("fla.ops.simple_gla", "parallel_simple_gla", phi),
            **fla,
        ),
        Contestant(
            "lightning_attn2_no_decay",
            with_feature_map(
                imported("lightning_attn.ops", "lightning_attn2_no_decay"), phi
            ),
            heads_first=True,
            autotuned=True,
            needs_cuda=True,
            package="lightning_attn",
        ),
    ]


def sum_normalised() -> list[Contestant]:
    """Ours, which has no kernels for the divisor, and the peer that has."""
    op = partial(linear_attention, causal=True, normalize=True, feature_map=POSITIVE)
    return [
        Contestant("ours (torch)", partial(op, backend="torch"), ours=True),
        Contestant(
            "naive",
            partial(equations.sum_normalised_attention, feature_map=POSITIVE),
            quadratic=True,
        ),
        Contestant(
            "fla chunk_linear_attn",
            of_fla(FLA, "chunk_linear_attn", POSITIVE, normalize=True),
            autotuned=True,
            needs_cuda=True,
            package="fla-core",
        ),
    ]


def of_fla(module: str, name: str, feature_map: str, **keywords) -> Callable:
    """An attention of flash-linear-attention: its output alone, without a scale."""
    function = imported(module, name)
    return with_feature_map(
        lambda q, k, v: function(q, k, v, scale=1.0, **keywords)[0], feature_map
    )


def with_feature_map(function: Callable, name: str) -> Callable:
    """``function`` on phi of queries and keys: a peer that has no phi of its own."""
    phi = FEATURE_MAPS[name]

    def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return function(phi(query), phi(key), value)

    return attend
