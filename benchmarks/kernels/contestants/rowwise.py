"""What is done to each token alone: norm, gate, feature map with LRPE.

Their cost depends on the number of tokens only, so they are measured at the paper's
batch, 8 x 512 tokens, and at the token count of the attentions.
"""

from __future__ import annotations

from functools import partial

from fairseq_transnormer.ops import gated_silu, rms_norm

from . import equations
from .contestant import Case, Computation, Contestant, Group, Setup, compiled, random
from .norm_attention import angles_and_direction, our_lrpe

# of the paper's language model (Table 13)
LENGTH, BATCH, GLU_WIDTH = 512, 8, 1365
BACKENDS = ("triton", "torch")


def groups(setup: Setup, *_) -> list[Group]:
    """Groups ``rms_norm``, ``gated_silu`` and ``feature_map_and_lrpe``."""
    counts = sorted({BATCH, max(setup.tokens // LENGTH, 1)})
    shared = dict(
        cases=[Case(batch, LENGTH) for batch in counts],
        check_case=Case(BATCH, LENGTH),
        axis="tokens",
    )
    liger = dict(needs_cuda=True, package="liger-kernel")
    embed_dim = setup.heads * setup.width
    return [
        _group(
            "rms_norm",
            equations.rms_norm,
            {name: partial(rms_norm, backend=name) for name in BACKENDS},
            lambda case: [random(setup, *case, embed_dim)],
            [Contestant("liger-kernel", liger_rms_norm, **liger)],
            shared,
        ),
        _group(
            "gated_silu",
            equations.gated_silu,
            {name: partial(gated_silu, backend=name) for name in BACKENDS},
            lambda case: [random(setup, *case, GLU_WIDTH) for _ in range(2)],
            [Contestant("liger-kernel", liger_gated_silu, **liger)],
            shared,
        ),
        _group(
            "feature_map_and_lrpe",
            equations.feature_map_and_lrpe,
            {name: our_lrpe(name) for name in BACKENDS},
            lambda case: [
                *(random(setup, *case, setup.heads, setup.width) for _ in range(2)),
                *angles_and_direction(setup),
            ],
            [],
            shared,
        ),
    ]


def _group(name, equation, ours, inputs, peers, shared) -> Group:
    return Group(
        name,
        "",
        Computation(name, equation),
        inputs,
        [
            *(Contestant(f"ours ({b})", f, ours=True) for b, f in ours.items()),
            Contestant("eager torch", equation),
            Contestant("torch.compile", compiled(equation), compiled=True),
            *peers,
        ],
        **shared,
    )


def liger_rms_norm(x):
    """Without a weight; in_place would overwrite the gradient that comes in."""
    from liger_kernel.ops.rms_norm import LigerRMSNormFunction

    return LigerRMSNormFunction.apply(x, None, 1e-8, 0.0, "llama", False)


def liger_gated_silu(gate, value):
    from liger_kernel.ops.swiglu import LigerSiLUMulFunction

    return LigerSiLUMulFunction.apply(gate, value)
