"""The whole of NormAttention after its projections, as T2 has it.

phi = 1 + elu, LRPE on queries and keys, causal linear attention, RMSNorm over the full
width.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from fairseq_transnormer.ops import linear_attention, lrpe, rms_norm

from . import equations
from .contestant import (
    Case,
    Computation,
    Contestant,
    Group,
    Setup,
    compiled,
    heads,
    normal,
)
from .linear_attention import FLA, SOFTMAX, of_fla
from .torch_attention import softmax_attentions

# the base with which LRPE's angles start
BASE = 10000.0


def groups(setup: Setup, cases: list[Case], check_case: Case) -> list[Group]:
    in_torch, in_triton = (ours(backend) for backend in ("torch", "triton"))
    fla = dict(autotuned=True, needs_cuda=True, package="fla-core")
    softmax = Computation(SOFTMAX.name, lambda q, k, v, *_: SOFTMAX.equation(q, k, v))
    contestants = [
        Contestant("ours (triton)", in_triton, ours=True),
        Contestant("ours (torch)", in_torch, ours=True),
        Contestant("naive", equations.norm_attention, quadratic=True),
        *softmax_attentions(True, softmax, inputs=5),
        Contestant("torch.compile of ours (torch)", compiled(in_torch), compiled=True),
        *(
            Contestant(f"fla {name}, rest in torch.compile", with_fla(name), **fla)
            for name in ("fused_chunk_linear_attn", "chunk_linear_attn")
        ),
        Contestant(
            "fla chunk_linear_attn, rest ours (triton)",
            with_fla("chunk_linear_attn", our_rest=True),
            ours=True,
            **fla,
        ),
    ]
    return [
        Group(
            "norm_attention",
            "causal",
            Computation(
                "NormAttention behind its projections", equations.norm_attention
            ),
            partial(inputs, setup),
            contestants,
            cases,
            check_case,
        )
    ]


def inputs(setup: Setup, case: Case) -> list[Tensor]:
    """Queries, keys and values, LRPE's angles (learned) and its direction (fixed)."""
    return [*heads(setup, case), *angles_and_direction(setup)]


def angles_and_direction(setup: Setup) -> list[Tensor]:
    """LRPE's parameters, float32 as in the modules."""
    exponents = torch.arange(0, setup.width, 2, device=setup.device) / setup.width
    direction = normal((setup.width,), setup.device, torch.float32)
    return [(BASE**-exponents).requires_grad_(), direction / direction.norm()]


def our_lrpe(backend: str) -> Callable:
    def encode(query: Tensor, key: Tensor, theta: Tensor, reflection: Tensor):
        positions = torch.arange(query.shape[1], device=query.device)
        return lrpe(
            query,
            key,
            theta,
            reflection,
            positions,
            feature_map="1+elu",
            backend=backend,
        )

    return encode


def ours(backend: str) -> Callable:
    return assembled(
        our_lrpe(backend),
        partial(linear_attention, causal=True, backend=backend),
        partial(rms_norm, backend=backend),
    )


def with_fla(name: str, our_rest: bool = False) -> Callable:
    """fla's attention; phi, LRPE and norm in one compiled kernel each, or ours."""
    attend = of_fla(FLA, name, "identity", normalize=False)
    if our_rest:
        return assembled(
            our_lrpe("triton"), attend, partial(rms_norm, backend="triton")
        )
    # elementwise: kernels for any length are as quick as those for one
    return assembled(
        compiled(equations.feature_map_and_lrpe, dynamic=True),
        attend,
        compiled(equations.rms_norm, dynamic=True),
    )


def assembled(encode: Callable, attend: Callable, norm: Callable) -> Callable:
    def norm_attention(
        query: Tensor, key: Tensor, value: Tensor, theta: Tensor, reflection: Tensor
    ) -> Tensor:
        query, key = encode(query, key, theta, reflection)
        return norm(attend(query, key, value).flatten(2))

    return norm_attention
