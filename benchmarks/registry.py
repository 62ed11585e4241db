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
from .options import Case, Ops
from .providers import (
    SDPA_BACKENDS,
    Op,
    Provider,
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
    return lambda query, key, value: op(query, key, value, **options)[0]


linear = partial(output_of, ops.linear_attention)
block = partial(output_of, ops.block_attention)


def ours(make: Callable[[str], Callable]) -> dict[str, Provider]:
    """Both backends of an op; make: backend -> function."""
    return {
        f"ours ({name})": Provider(make(name), ours=True, cuda=name == "triton")
        for name in ("triton", "torch")
    }


def linear_attention(options: Ops) -> list[Op]:
    """Causal, unscaled."""
    phi = options.feature_map
    naive = partial(equations.causal_linear_attention, feature_map=phi)
    lightning = imported("lightning_attn.ops", "lightning_attn2_no_decay")
    providers = {
        **ours(lambda b: linear(causal=True, feature_map=phi, backend=b)),
        "naive": Provider(naive, quadratic=True),
        **softmax(True),
        **{
            f"fla {name}": tuned(fla(name, phi))
            for name in ("fused_chunk_linear_attn", "chunk_linear_attn")
        },
        "lightning_attn2_no_decay": tuned(
            on_features(lightning, phi), "lightning_attn", heads_first=True
        ),
    }
    draws = partial(heads, options)
    return [Op(options, "linear_attention", "causal", naive, draws, providers)]


def bidirectional_linear_attention(options: Ops) -> list[Op]:
    """Two products, which torch does well."""
    phi, name = options.feature_map, "bidirectional_linear_attention"
    products = partial(equations.bidirectional_linear_attention, feature_map=phi)
    providers = {
        **ours(lambda b: linear(causal=False, feature_map=phi, backend=b)),
        "two bmm": Provider(products),
        **softmax(False),
    }
    draws = partial(heads, options)
    return [Op(options, name, "bidirectional", products, draws, providers)]


def block_attention(options: Ops) -> list[Op]:
    """Attention within blocks: softmax and ReLU, causal and bidirectional."""
    found, size, draws = [], options.block_size, partial(heads, options)
    for activation, causal in product(("softmax", "relu"), (True, False)):
        kind = dict(block_size=size, causal=causal, activation=activation)
        equation = partial(equations.block_attention, **kind)
        providers = {
            **ours(lambda b, kind=kind: block(**kind, backend=b)),
            "bmm on blocks": Provider(equation, blocks=True),
        }
        for peer, backend in SDPA_BACKENDS.items() if activation == "softmax" else ():
            attend, cuda = sdpa(causal, backend, size), peer != "flash"
            providers[f"SDPA {peer} on blocks"] = Provider(
                attend, blocks=True, cuda=cuda
            )
        variant = f"{activation} {'causal' if causal else 'bidirectional'}"
        op = Op(options, "block_attention", variant, equation, draws, providers)
        found.append(op)
    return found


def norm_attention(options: Ops) -> list[Op]:
    """NormAttention of T2 without its projections: phi, LRPE, attention, RMSNorm."""

    def by(backend: str, attend: Callable | None = None) -> Callable:
        attend = attend or linear(causal=True, backend=backend)
        encode, norm = encoding(backend), partial(ops.rms_norm, backend=backend)

        def computed(query, key, value, theta, reflection) -> Tensor:
            query, key = encode(query, key, theta, reflection)
            return norm(attend(query, key, value).flatten(2))

        return computed

    chunk = by("triton", fla("chunk_linear_attn", "identity"))
    equation = equations.norm_attention
    providers = {
        **ours(by),
        "naive": Provider(equation, quadratic=True),
        **softmax(True),
        "torch.compile of ours (torch)": Provider(compiled(by("torch")), slow=True),
        "fla chunk_linear_attn, rest ours (triton)": tuned(chunk, ours=True),
    }

    def draws(case: Case) -> list[Tensor]:
        return [*heads(options, case), *angles_and_direction(options)]

    return [Op(options, "norm_attention", "causal", equation, draws, providers)]


def angles_and_direction(options: Ops) -> list[Tensor]:
    """LRPE's angles (learned) and its direction (fixed), float32 as in the modules."""
    exponents = torch.arange(0, options.width, 2, device=options.device) / options.width
    direction = normal((options.width,), options.device, torch.float32)
    return [(10000.0**-exponents).requires_grad_(), direction / direction.norm()]


def encoding(backend: str) -> Callable:
    """phi and LRPE of queries and keys."""

    def encode(query: Tensor, key: Tensor, theta: Tensor, reflection: Tensor):
        positions = torch.arange(query.shape[1], device=query.device)
        more = dict(feature_map="1+elu", backend=backend)
        return ops.lrpe(query, key, theta, reflection, positions, **more)

    return encode


def rowwise(name: str, options: Ops) -> list[Op]:
    """What is done to each token alone, at the paper's batch and at all tokens."""
    width, equation = options.heads * options.width, getattr(equations, name)
    inputs = {
        "rms_norm": lambda case: [draw(options, *case, width)],
        "gated_silu": lambda case: [draw(options, *case, GLU_WIDTH) for _ in range(2)],
        "feature_map_and_lrpe": lambda case: [
            *heads(options, case)[:2],
            *angles_and_direction(options),
        ],
    }[name]
    liger = {"rms_norm": _liger_rms_norm, "gated_silu": _liger_gated_silu}
    make = lambda b: partial(getattr(ops, name), backend=b)  # noqa: E731
    providers = {
        **ours(make if name in liger else encoding),
        "eager torch": Provider(equation),
        "torch.compile": Provider(compiled(equation), slow=True),
    }
    if name in liger:
        providers["liger-kernel"] = Provider(
            liger[name], cuda=True, package="liger-kernel"
        )
    batches = sorted({BATCH, max(options.tokens // LENGTH, 1)})
    sizes = [Case(batch, LENGTH) for batch in batches]
    check = partial(inputs, Case(BATCH, LENGTH))
    return [Op(options, name, "", equation, inputs, providers, sizes, check)]


def _liger_rms_norm(x: Tensor) -> Tensor:
    # without a weight; in_place would overwrite the gradient that comes in
    apply = imported("liger_kernel.ops.rms_norm", "LigerRMSNormFunction.apply")
    return apply(x, None, 1e-8, 0.0, "llama", False)


def _liger_gated_silu(gate: Tensor, value: Tensor) -> Tensor:
    apply = imported("liger_kernel.ops.swiglu", "LigerSiLUMulFunction.apply")
    return apply(gate, value)


def linear_cross_entropy(options: Ops) -> list[Op]:
    """The output layer and its loss at the paper's vocabulary; N tokens."""
    width = options.heads * options.width

    def draws(case: Case, vocabulary: int = VOCABULARY) -> list[Tensor]:
        """Features, weight and targets; logits have a standard deviation of 2."""
        tokens = case.batch * case.length
        weight = normal((vocabulary, width), options.device, torch.float32)
        weight = (2 * width**-0.5 * weight).to(options.torch_dtype).requires_grad_()
        targets = torch.arange(tokens, device=options.device) * 7919 % vocabulary
        return [draw(options, tokens, width), weight, targets]

    def all_logits(x: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
        """Log-softmax of all logits, at least in float32, as fairseq has it."""
        wide = torch.promote_types(x.dtype, torch.float32)
        scores = F.log_softmax(F.linear(x, weight), -1, dtype=wide)
        return F.nll_loss(scores, targets, reduction="sum")

    def torchs(x: Tensor, weight: Tensor, targets: Tensor, rows=None) -> Tensor:
        chunks = {} if rows is None else {"batch_chunk_size": min(rows, len(x))}
        chunked = torch.nn.LinearCrossEntropyOptions(**chunks)
        more = dict(reduction="sum", options=chunked)
        return F.linear_cross_entropy(x, weight, targets, **more)

    def in_our_chunks(x: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
        from fairseq_transnormer.ops.linear_cross_entropy import rows_at_a_time

        return torchs(x, weight, targets, rows_at_a_time(len(weight), x.itemsize))

    def ligers(x: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
        make = imported("liger_kernel.transformers", "LigerFusedLinearCrossEntropyLoss")
        return make(reduction="sum", accum_dtype=torch.float32)(weight, x, targets)

    cut = partial(
        imported("cut_cross_entropy", "linear_cross_entropy"), reduction="sum"
    )
    providers = {
        "ours": Provider(lambda *x: ops.linear_cross_entropy(*x)[0], ours=True),
        "fairseq's cross_entropy": Provider(all_logits),
        "torch": Provider(torchs),
        "torch, our chunks": Provider(in_our_chunks),
        "liger-kernel": Provider(ligers, cuda=True, package="liger-kernel"),
        "cut-cross-entropy": Provider(cut, cuda=True, package="cut-cross-entropy"),
    }
    sizes = [Case(1, length) for length in options.lengths]
    small, name = partial(draws, Case(1, 300), 4001), "linear_cross_entropy"
    return [Op(options, name, "", all_logits, draws, providers, sizes, small)]


def adam(options: Ops) -> list[Op]:
    """An optimizer's step on one flat float32 tensor, as --fp16 has it."""

    def equation(weights: Tensor, gradient: Tensor) -> Tensor:
        """The first step: both corrected averages are those of one gradient."""
        decayed = weights * (1 - ADAM["lr"] * ADAM["weight_decay"])
        return decayed - ADAM["lr"] * gradient / (gradient.abs() + ADAM["eps"])

    def of(module: str, name: str, **more) -> Provider:
        def start(weights: Tensor, gradient: Tensor) -> Callable:
            parameter = torch.nn.Parameter(weights.clone())
            parameter.grad = gradient.clone()
            step = imported(module, name)([parameter], **ADAM).step

            def call() -> Tensor:
                step()
                return parameter.detach()

            return call

        return Provider(start, stateful=True, **more)

    def draws(case: Case) -> list[Tensor]:
        shape = (case.length,)
        return [normal(shape, options.device, torch.float32) for _ in range(2)]

    def least_bytes(case: Case) -> int:
        """Weights, gradient and both sums read, all but the gradient written."""
        return 28 * case.length

    optimizers = "fairseq_transnormer.plugin.optimizers"
    providers = {
        "fused_adam": of(optimizers, "FusedAdamW", ours=True),
        "adam": of("fairseq.optim.adam", "Adam"),
    }
    sizes = [Case(1, n) for n in (2**20, 2**24, WEIGHTS)]
    check = partial(draws, Case(1, 1000))
    op = (options, "adam", "", equation, draws, providers, sizes, check, least_bytes)
    return [Op(*op)]


# what decides first, so that a run that is cut off has it
REGISTRY: dict[str, Callable[[Ops], list[Op]]] = {
    "norm_attention": norm_attention,
    "linear_attention": linear_attention,
    "block_attention": block_attention,
    "bidirectional_linear_attention": bidirectional_linear_attention,
    **{name: partial(rowwise, name) for name in ROWWISE},
    "linear_cross_entropy": linear_cross_entropy,
    "adam": adam,
}
