"""The ops that ``benchmarks ops`` measures, and who provides each of them.

An op is a computation on some inputs: its equation in plain torch, its providers (ours,
torch's, other packages' where they are installed), its sizes and the bytes it moves.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product

import torch
import torch.nn.functional as F
from torch import Tensor

from fairseq_transnormer import ops

from . import equations
from .providers import (
    SDPA_BACKENDS,
    Case,
    Op,
    Provider,
    Setup,
    compiled,
    draw,
    fla,
    heads,
    imported,
    normal,
    on_features,
    sdpa,
    softmax,
    tuned,
)

ADAM = {"lr": 5e-4, "betas": (0.9, 0.98), "eps": 1e-8, "weight_decay": 0.01}
# of the paper's language model (Table 13)
LENGTH, BATCH, GLU_WIDTH, VOCABULARY = 512, 8, 1365, 267744
WEIGHTS = 155_988_540
ROWWISE = ("rms_norm", "gated_silu", "feature_map_and_lrpe")


def output_of(op: Callable, **options) -> Callable:
    """``ops.linear_attention`` or ``ops.block_attention`` as a function to outputs."""

    def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return op(query, key, value, **options)[0]

    return attend


linear = partial(output_of, ops.linear_attention)
block = partial(output_of, ops.block_attention)


def ours(make: Callable[[str], Callable], **more) -> dict[str, Provider]:
    """Both backends of an op; make: backend -> function."""
    return {
        f"ours ({name})": Provider(make(name), ours=True, **more)
        for name in ("triton", "torch")
    }


def linear_attention(setup: Setup, cases: list[Case], check: Case) -> list[Op]:
    """Causal, unscaled."""
    phi, draws = setup.feature_map, partial(heads, setup)
    naive = partial(equations.causal_linear_attention, feature_map=phi)
    lightning = imported("lightning_attn.ops", "lightning_attn2_no_decay")
    providers = {
        **ours(lambda b: linear(causal=True, feature_map=phi, backend=b)),
        "naive": Provider(naive, quadratic=True),
        **softmax(True),
        **{
            f"fla {name}": tuned(fla(name, phi, normalize=False))
            for name in ("fused_chunk_linear_attn", "chunk_linear_attn")
        },
        "lightning_attn2_no_decay": tuned(
            on_features(lightning, phi), "lightning_attn", heads_first=True
        ),
    }
    name = "linear_attention"
    return [Op(name, "causal", naive, draws, providers, cases, check)]


def bidirectional_linear_attention(setup: Setup, cases, check) -> list[Op]:
    """Two products, which torch does well."""
    phi = setup.feature_map
    products = partial(equations.bidirectional_linear_attention, feature_map=phi)
    providers = {
        **ours(lambda b: linear(causal=False, feature_map=phi, backend=b)),
        "two bmm": Provider(products),
        **softmax(False),
    }
    name = "bidirectional_linear_attention"
    draws = partial(heads, setup)
    return [Op(name, "bidirectional", products, draws, providers, cases, check)]


def block_attention(setup: Setup, cases, check) -> list[Op]:
    """Attention within blocks: softmax and ReLU, causal and bidirectional."""
    found, size, name = [], setup.block_size, "block_attention"
    for activation, causal in product(("softmax", "relu"), (True, False)):
        kind = dict(block_size=size, causal=causal, activation=activation)
        equation = partial(equations.block_attention, **kind)
        providers = {
            **ours(lambda b, kind=kind: block(**kind, backend=b)),
            "bmm on blocks": Provider(equation, blocks=True),
        }
        if activation == "softmax":
            for peer, backend in SDPA_BACKENDS.items():
                attend, cuda = sdpa(causal, backend, size), peer != "flash"
                providers[f"SDPA {peer} on blocks"] = Provider(
                    attend, blocks=True, cuda=cuda
                )
        variant = f"{activation} {'causal' if causal else 'bidirectional'}"
        draws = partial(heads, setup)
        found.append(Op(name, variant, equation, draws, providers, cases, check))
    return found


def norm_attention(setup: Setup, cases, check) -> list[Op]:
    """NormAttention of T2 without its projections: phi, LRPE, attention, RMSNorm."""

    def by(backend: str, attend: Callable | None = None) -> Callable:
        attend = attend or linear(causal=True, backend=backend)
        encode, norm = encoding(backend), partial(ops.rms_norm, backend=backend)

        def computed(query, key, value, theta, reflection) -> Tensor:
            query, key = encode(query, key, theta, reflection)
            return norm(attend(query, key, value).flatten(2))

        return computed

    chunk = fla("chunk_linear_attn", "identity", normalize=False)
    providers = {
        **ours(by),
        "naive": Provider(equations.norm_attention, quadratic=True),
        **softmax(True),
        "torch.compile of ours (torch)": Provider(compiled(by("torch")), slow=True),
        "fla chunk_linear_attn, rest ours (triton)": tuned(
            by("triton", chunk), ours=True
        ),
    }

    def draws(case: Case) -> list[Tensor]:
        return [*heads(setup, case), *angles_and_direction(setup)]

    equation = equations.norm_attention
    return [Op("norm_attention", "causal", equation, draws, providers, cases, check)]


def angles_and_direction(setup: Setup) -> list[Tensor]:
    """LRPE's angles (learned) and its direction (fixed), float32 as in the modules."""
    exponents = torch.arange(0, setup.width, 2, device=setup.device) / setup.width
    direction = normal((setup.width,), setup.device, torch.float32)
    return [(10000.0**-exponents).requires_grad_(), direction / direction.norm()]


def encoding(backend: str) -> Callable:
    """phi and LRPE of queries and keys."""

    def encode(query: Tensor, key: Tensor, theta: Tensor, reflection: Tensor):
        positions = torch.arange(query.shape[1], device=query.device)
        options = dict(feature_map="1+elu", backend=backend)
        return ops.lrpe(query, key, theta, reflection, positions, **options)

    return encode


def rowwise(name: str, setup: Setup, cases, check) -> list[Op]:
    """What is done to each token alone, at the paper's batch and at all tokens."""
    width, check = setup.heads * setup.width, Case(BATCH, LENGTH)
    batches = sorted({BATCH, max(setup.tokens // LENGTH, 1)})
    inputs = {
        "rms_norm": lambda case: [draw(setup, *case, width)],
        "gated_silu": lambda case: [draw(setup, *case, GLU_WIDTH) for _ in range(2)],
        "feature_map_and_lrpe": lambda case: [
            *heads(setup, case)[:2],
            *angles_and_direction(setup),
        ],
    }
    liger = {"rms_norm": _liger_rms_norm, "gated_silu": _liger_gated_silu}
    equation = getattr(equations, name)
    make = encoding
    if name in liger:
        make = lambda b: partial(getattr(ops, name), backend=b)  # noqa: E731
    providers = {
        **ours(make),
        "eager torch": Provider(equation),
        "torch.compile": Provider(compiled(equation), slow=True),
    }
    if name in liger:
        providers["liger-kernel"] = Provider(
            liger[name], cuda=True, package="liger-kernel"
        )
    sizes = [Case(batch, LENGTH) for batch in batches]
    return [Op(name, "", equation, inputs[name], providers, sizes, check)]


def _liger_rms_norm(x: Tensor) -> Tensor:
    # without a weight; in_place would overwrite the gradient that comes in
    apply = imported("liger_kernel.ops.rms_norm", "LigerRMSNormFunction.apply")
    return apply(x, None, 1e-8, 0.0, "llama", False)


def _liger_gated_silu(gate: Tensor, value: Tensor) -> Tensor:
    return imported("liger_kernel.ops.swiglu", "LigerSiLUMulFunction.apply")(
        gate, value
    )


def linear_cross_entropy(setup: Setup, cases, check) -> list[Op]:
    """The output layer and its loss at the paper's vocabulary; N tokens."""
    width = setup.heads * setup.width

    def draws(case: Case, vocabulary: int = VOCABULARY) -> list[Tensor]:
        """Features, weight and targets; logits have a standard deviation of 2."""
        tokens = case.batch * case.length
        weight = normal((vocabulary, width), setup.device, torch.float32)
        weight = (2 * width**-0.5 * weight).to(setup.dtype).requires_grad_()
        targets = torch.arange(tokens, device=setup.device) * 7919 % vocabulary
        return [draw(setup, tokens, width), weight, targets]

    def all_logits(x: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
        """Log-softmax of all logits, at least in float32, as fairseq has it."""
        wide = torch.promote_types(x.dtype, torch.float32)
        scores = F.log_softmax(F.linear(x, weight), -1, dtype=wide)
        return F.nll_loss(scores, targets, reduction="sum")

    def torchs(x: Tensor, weight: Tensor, targets: Tensor, rows=None) -> Tensor:
        chunks = {} if rows is None else {"batch_chunk_size": min(rows, len(x))}
        options = torch.nn.LinearCrossEntropyOptions(**chunks)
        more = dict(reduction="sum", options=options)
        return F.linear_cross_entropy(x, weight, targets, **more)

    def in_our_chunks(x: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
        rows_at_a_time = imported(
            "fairseq_transnormer.ops.linear_cross_entropy", "rows_at_a_time"
        )
        return torchs(x, weight, targets, rows_at_a_time(len(weight), x.itemsize))

    def ligers(x: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
        make = imported("liger_kernel.transformers", "LigerFusedLinearCrossEntropyLoss")
        return make(reduction="sum", accum_dtype=torch.float32)(weight, x, targets)

    cut = imported("cut_cross_entropy", "linear_cross_entropy")
    providers = {
        "ours": Provider(lambda *x: ops.linear_cross_entropy(*x)[0], ours=True),
        "fairseq's cross_entropy": Provider(all_logits),
        "torch": Provider(torchs),
        "torch, our chunks": Provider(in_our_chunks),
        "liger-kernel": Provider(ligers, cuda=True, package="liger-kernel"),
        "cut-cross-entropy": Provider(
            partial(cut, reduction="sum"), cuda=True, package="cut-cross-entropy"
        ),
    }
    sizes = [Case(1, case.length) for case in cases]
    small = partial(draws, Case(1, 300), 4001)
    name = "linear_cross_entropy"
    return [Op(name, "", all_logits, draws, providers, sizes, small)]


def adam(setup: Setup, cases, check) -> list[Op]:
    """An optimizer's step on one flat float32 tensor, as --fp16 has it."""

    def equation(weights: Tensor, gradient: Tensor) -> Tensor:
        """The first step: both corrected averages are those of one gradient."""
        decayed = weights * (1 - ADAM["lr"] * ADAM["weight_decay"])
        return decayed - ADAM["lr"] * gradient / (gradient.abs() + ADAM["eps"])

    def of(module: str, name: str) -> Callable:
        def start(weights: Tensor, gradient: Tensor) -> Callable:
            parameter = torch.nn.Parameter(weights.clone())
            parameter.grad = gradient.clone()
            step = imported(module, name)([parameter], **ADAM).step

            def call() -> Tensor:
                step()
                return parameter.detach()

            return call

        return start

    def draws(case: Case) -> list[Tensor]:
        shape = (case.length,)
        return [normal(shape, setup.device, torch.float32) for _ in range(2)]

    fairseqs = Provider(of("fairseq.optim.adam", "Adam"), stateful=True)
    optimizers = "fairseq_transnormer.plugin.optimizers"
    own = Provider(of(optimizers, "FusedAdamW"), ours=True, stateful=True)
    providers = {"fused_adam": own, "adam": fairseqs}
    sizes = [Case(1, n) for n in (2**20, 2**24, WEIGHTS)], Case(1, 1000)

    def least_bytes(case: Case) -> int:
        """Weights, gradient and both sums read, all but the gradient written."""
        return 28 * case.length

    return [Op("adam", "", equation, draws, providers, *sizes, least_bytes)]


# what decides first, so that a run that is cut off has it
REGISTRY: dict[str, Callable[[Setup, list[Case], Case], list[Op]]] = {
    "norm_attention": norm_attention,
    "linear_attention": linear_attention,
    "block_attention": block_attention,
    "bidirectional_linear_attention": bidirectional_linear_attention,
    **{name: partial(rowwise, name) for name in ROWWISE},
    "linear_cross_entropy": linear_cross_entropy,
    "adam": adam,
}
