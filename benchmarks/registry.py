"""The ops that ``benchmarks ops`` measures, and who provides each of them.

An op is a computation on some inputs: its equation in plain torch, its providers (ours,
torch's, other packages' where they are installed), its sizes and the bytes it moves.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend

from fairseq_transnormer import ops

from . import equations
from .providers import (
    Case,
    Op,
    Provider,
    Setup,
    compiled,
    draw,
    fla,
    flex_attention,
    heads,
    imported,
    normal,
    on_features,
    sdpa,
    softmax,
    tuned,
    varlen,
)

POSITIVE = "1+elu"  # features whose sum of scores divides
ADAM = {"lr": 5e-4, "betas": (0.9, 0.98), "eps": 1e-8, "weight_decay": 0.01}
# of the paper's language model (Table 13)
LENGTH, BATCH, GLU_WIDTH, VOCABULARY = 512, 8, 1365, 267744
WEIGHTS = 155_988_540
# batch, length, heads and width in which flash-linear-attention publishes its speed
PUBLISHED = (
    *((8, 1024, 8, 64), (4, 2048, 16, 128), (2, 16384, 16, 128)),
    *((1, 8192, 96, 128), (4, 4096, 64, 128), (8, 2048, 32, 256)),
)
LARGEST_ON_A_CPU = 2**24
ROWWISE = ("rms_norm", "gated_silu", "feature_map_and_lrpe")
# blocks before the half-full one in which decoding steps begin
FULL_BLOCKS = 2


def output_of(op: Callable, **options) -> Callable:
    """``ops.linear_attention`` or ``ops.block_attention`` as a function to outputs."""

    def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return first(op(query, key, value, **options))

    return attend


def first(outputs):
    """The output of an op that returns a state beside it."""
    return outputs[0] if isinstance(outputs, tuple) else outputs


linear = partial(output_of, ops.linear_attention)
block = partial(output_of, ops.block_attention)


def begun(op: Callable, query, key, value, **options) -> tuple[Callable, Any]:
    """A call that adds the last token once more, and the state that it updates."""
    context = (x[:, :-1] for x in (query, key, value))
    _, state = op(*context, return_state=True, **options)
    last = [x[:, -1:].contiguous() for x in (query, key, value)]
    step = partial(op, *last, initial_state=state, return_state=True, **options)
    return lambda: step()[0], state


def ours(make: Callable[[str], Callable], **more) -> dict[str, Provider]:
    """Both backends of an op; make: backend -> function."""
    return {
        f"ours ({name})": Provider(make(name), ours=True, **more)
        for name in ("triton", "torch")
    }


def causal_providers(phi: str) -> dict[str, Provider]:
    """Of unscaled causal linear attention."""
    naive = partial(equations.causal_linear_attention, feature_map=phi)
    own = ours(lambda b: linear(causal=True, feature_map=phi, backend=b))
    lightning = imported("lightning_attn.ops", "lightning_attn2_no_decay")
    in_softmax = softmax(True)
    return {
        **own,
        "naive": Provider(naive, quadratic=True),
        **in_softmax,
        "FlexAttention": replace(
            in_softmax["SDPA flash"],
            function=flex_attention(True),
            heads_first=True,
            compiled=True,
        ),
        "torch.compile of naive": Provider(
            compiled(naive), quadratic=True, compiled=True
        ),
        "torch.compile of ours (torch)": Provider(
            compiled(own["ours (torch)"].function), compiled=True
        ),
        **{
            f"fla {name}": tuned(fla(name, phi, normalize=False))
            for name in ("fused_chunk_linear_attn", "chunk_linear_attn")
        },
        "fla parallel_simple_gla": tuned(
            fla("parallel_simple_gla", phi, "fla.ops.simple_gla")
        ),
        "lightning_attn2_no_decay": tuned(
            on_features(lightning, phi), "lightning_attn", heads_first=True
        ),
    }


def linear_attention(setup: Setup, cases: list[Case], check: Case) -> list[Op]:
    """Causal, unscaled, and divided by the sum of the scores."""
    phi, draws = setup.feature_map, partial(heads, setup)
    naive = partial(equations.causal_linear_attention, feature_map=phi)
    by_sum = partial(equations.sum_normalised_attention, feature_map=POSITIVE)
    divided = dict(causal=True, normalize=True, feature_map=POSITIVE, backend="torch")
    providers = {
        "ours (torch)": Provider(linear(**divided), ours=True),
        "naive": Provider(by_sum, quadratic=True),
        "fla chunk_linear_attn": tuned(
            fla("chunk_linear_attn", POSITIVE, normalize=True)
        ),
    }
    name = "linear_attention"
    return [
        Op(name, "causal", naive, draws, causal_providers(phi), cases, check),
        Op(name, "sum-normalised", by_sum, draws, providers, cases, check),
    ]


def published_shapes(setup: Setup, cases, check) -> list[Op]:
    """Causal linear attention where flash-linear-attention publishes its speed."""
    found, phi = [], setup.feature_map
    providers = {
        name: each
        for name, each in causal_providers(phi).items()
        if not (each.compiled or each.quadratic)
    }
    naive = partial(equations.causal_linear_attention, feature_map=phi)
    for shape in PUBLISHED:
        batch, n, h, d = shape
        if setup.device.type == "cpu" and batch * n * h * d > LARGEST_ON_A_CPU:
            continue
        draws = partial(heads, setup._replace(heads=h, width=d))
        variant = "B{} T{} H{} D{}".format(*shape)
        sizes = [Case(batch, n)], Case(1, LENGTH)
        found.append(Op("published_shapes", variant, naive, draws, providers, *sizes))
    return found


def bidirectional_linear_attention(setup: Setup, cases, check) -> list[Op]:
    """Two products, which torch does well."""
    phi = setup.feature_map
    products = partial(equations.bidirectional_linear_attention, feature_map=phi)
    providers = {
        **ours(lambda b: linear(causal=False, feature_map=phi, backend=b)),
        "two bmm": Provider(products),
        **softmax(False),
        "torch.compile of two bmm": Provider(compiled(products), compiled=True),
    }
    name = "bidirectional_linear_attention"
    draws = partial(heads, setup)
    return [Op(name, "bidirectional", products, draws, providers, cases, check)]


def block_attention(setup: Setup, cases, check) -> list[Op]:
    """Attention within blocks: softmax and ReLU, causal and bidirectional."""
    found, size = [], setup.block_size
    for activation in ("softmax", "relu"):
        for direction, causal in (("causal", True), ("bidirectional", False)):
            kind = dict(block_size=size, causal=causal, activation=activation)
            equation = partial(equations.block_attention, **kind)
            providers = {
                **ours(lambda b, kind=kind: block(**kind, backend=b)),
                "bmm on blocks": Provider(equation, blocks=True),
                "torch.compile of bmm on blocks": Provider(
                    compiled(equation), compiled=True, blocks=True
                ),
            }
            if activation == "softmax":
                providers |= {
                    f"SDPA {name} on blocks": Provider(
                        sdpa(
                            causal,
                            getattr(SDPBackend, f"{name.upper()}_ATTENTION"),
                            size,
                        ),
                        blocks=True,
                        cuda=name != "flash",
                    )
                    for name in ("flash", "efficient", "cuDNN")
                }
                providers["varlen_attn"] = Provider(
                    varlen(causal, size), blocks=True, cuda=True
                )
                providers["FlexAttention with a block mask"] = Provider(
                    flex_attention(causal, size), heads_first=True, compiled=True
                )
            variant, draws = f"{activation} {direction}", partial(heads, setup)
            found.append(
                Op("block_attention", variant, equation, draws, providers, cases, check)
            )
    return found


def norm_attention(setup: Setup, cases, check) -> list[Op]:
    """NormAttention of T2 behind its projections: phi, LRPE, attention, RMSNorm."""

    def whole(encode: Callable, attend: Callable, norm: Callable) -> Callable:
        def computed(query, key, value, theta, reflection) -> Tensor:
            query, key = encode(query, key, theta, reflection)
            return norm(attend(query, key, value).flatten(2))

        return computed

    def by(backend: str, attend: Callable | None = None) -> Callable:
        attend = attend or linear(causal=True, backend=backend)
        return whole(encoding(backend), attend, partial(ops.rms_norm, backend=backend))

    # elementwise: kernels for any length are as quick as those for one
    rest = [
        compiled(each, dynamic=True)
        for each in (equations.feature_map_and_lrpe, equations.rms_norm)
    ]
    chunk, fused = (
        fla(name, "identity", normalize=False)
        for name in ("chunk_linear_attn", "fused_chunk_linear_attn")
    )
    providers = {
        **ours(by),
        "naive": Provider(equations.norm_attention, quadratic=True),
        **softmax(True),
        "torch.compile of ours (torch)": Provider(compiled(by("torch")), compiled=True),
        "fla fused_chunk_linear_attn, rest in torch.compile": tuned(
            whole(rest[0], fused, rest[1])
        ),
        "fla chunk_linear_attn, rest in torch.compile": tuned(
            whole(rest[0], chunk, rest[1])
        ),
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
        options = dict(feature_map=POSITIVE, backend=backend)
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
        "torch.compile": Provider(compiled(equation), compiled=True),
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


def decode_step(setup: Setup, cases, check) -> list[Op]:
    """One token after a context: the state goes in and is updated in place."""
    size, row = setup.block_size, setup.width * setup.dtype.itemsize
    context = FULL_BLOCKS * size + size // 2
    kind = dict(block_size=size, causal=True, activation="softmax")

    def steps(op: Callable, **options) -> Callable:
        return lambda b: lambda *qkv: begun(op, *qkv, backend=b, **options)[0]

    def last_of_block(*qkv: Tensor) -> Tensor:
        """The tokens of the last, short block see one another only."""
        start = (qkv[0].shape[1] - 1) // size * size
        tokens = (x[:, start:] for x in qkv)
        return equations.softmax_attention(*tokens, causal=True)[:, -1:]

    def fla_step(query: Tensor, key: Tensor, value: Tensor) -> Callable:
        recurrent = imported("fla.ops.linear_attn", "fused_recurrent_linear_attn")
        more = dict(scale=1.0, normalize=False, output_final_state=True)
        _, state = recurrent(query[:, :-1], key[:, :-1], value[:, :-1], **more)
        last = [x[:, -1:].contiguous() for x in (query, key, value)]
        return lambda: recurrent(*last, initial_state=state, **more)[0]

    def of_state(case: Case) -> int:
        """The float32 state read and written; query, key, value and output."""
        return case.batch * setup.heads * (8 * setup.width**2 + 4 * row)

    def of_half_a_block(case: Case) -> int:
        """Keys and values read; query, key and value twice, output."""
        return case.batch * setup.heads * (2 * (size // 2) + 6) * row

    draws = partial(heads, setup, more=1, grad=False)
    sizes = [Case(batch, context) for batch in (1, 8)], Case(2, context)
    of_linear = ours(steps(ops.linear_attention, causal=True), stateful=True)
    of_linear["fla fused_recurrent_linear_attn"] = tuned(fla_step, stateful=True)
    of_blocks = ours(steps(ops.block_attention, **kind), stateful=True)

    def last(*qkv: Tensor) -> Tensor:
        return equations.causal_linear_attention(*qkv)[:, -1:]

    return [
        Op("decode_step", "linear attention", last, draws, of_linear, *sizes, of_state),
        Op(
            *("decode_step", "block attention", last_of_block, draws, of_blocks),
            *(*sizes, of_half_a_block),
        ),
    ]


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
    "published_shapes": published_shapes,
    "block_attention": block_attention,
    "bidirectional_linear_attention": bidirectional_linear_attention,
    **{name: partial(rowwise, name) for name in ROWWISE},
    "decode_step": decode_step,
    "linear_cross_entropy": linear_cross_entropy,
    "adam": adam,
}
