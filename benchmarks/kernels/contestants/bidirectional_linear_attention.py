"""Bidirectional linear attention: two products, which torch does well."""

from __future__ import annotations

from functools import partial

from fairseq_transnormer.ops import linear_attention

from . import equations
from .contestant import Case, Computation, Contestant, Group, Setup, compiled, heads
from .torch_attention import softmax_attentions

SOFTMAX = Computation(
    "softmax attention", partial(equations.softmax_attention, causal=False)
)


def groups(setup: Setup, cases: list[Case], check_case: Case) -> list[Group]:
    phi = setup.feature_map
    two_products = partial(equations.bidirectional_linear_attention, feature_map=phi)
    contestants = [
        *(
            Contestant(
                f"ours ({name})",
                partial(linear_attention, causal=False, feature_map=phi, backend=name),
                ours=True,
            )
            for name in ("triton", "torch")
        ),
        Contestant("two bmm", two_products),
        *softmax_attentions(False, SOFTMAX),
        Contestant("torch.compile of two bmm", compiled(two_products), compiled=True),
    ]
    computation = Computation(f"linear attention, phi = {phi}", two_products)
    return [
        Group(
            "bidirectional_linear_attention",
            "bidirectional",
            computation,
            partial(heads, setup),
            contestants,
            cases,
            check_case,
        )
    ]
