"""The ops that ``benchmarks ops`` measures, and who provides each of them.

An op is a computation on some inputs. It has an equation in plain torch, sizes and the
bytes it moves. Its providers are ours, torch's, and those of installed packages.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from itertools import product
from operator import attrgetter
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from fairseq_transnormer import ops
from fairseq_transnormer.data.fingerprints import installed_versions

from . import equations
from .options import Case, Ops

ADAM = {"lr": 5e-4, "betas": (0.9, 0.98), "eps": 1e-8, "weight_decay": 0.01}
# of the paper's language model (Table 13)
LENGTH, BATCH, GLU_WIDTH, VOCABULARY = 512, 8, 1365, 267744
WEIGHTS = 155_988_540
ROWWISE = ("rms_norm", "gated_silu", "feature_map_and_lrpe")
SDPA_BACKENDS = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "cuDNN": SDPBackend.CUDNN_ATTENTION,
}


@dataclass(frozen=True)
class Provider:
    """One way to compute an op.

    function: inputs (B, N, H, D) to outputs; where ``stateful``, inputs to a call.
    ours: ours, at least in part.
    other: computes something else at the same shape, and is not judged.
    heads_first: takes and gives (B, H, N, D), contiguous.
    slow: the first call compiles, or tries many kernels, which can take a minute.
    quadratic: keeps length x length matrices.
    blocks: takes multiples of the block size only.
    cuda, package: needs a CUDA device, needs this package.
    """

    function: Callable
    ours: bool = False
    other: bool = False
    heads_first: bool = False
    slow: bool = False
    quadratic: bool = False
    blocks: bool = False
    stateful: bool = False
    cuda: bool = False
    package: str | None = None

    def why_not(self, options: Ops) -> str | None:
        """Why it cannot run there, where that is known beforehand."""
        if self.cuda and not options.on_gpu:
            return "needs a CUDA device"
        if self.package and self.package not in installed_versions([self.package]):
            return f"{self.package} is not installed"
        return None

    def start(self, inputs: Sequence[Tensor]) -> Callable[[], Any]:
        """A call on these inputs, which are in its layout."""
        if self.stateful:
            return self.function(*inputs)
        return partial(self.function, *inputs)

    def arranged(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """New leaves, between (B, N, H, D) and its layout; its own inverse."""
        return [
            (x.transpose(1, 2) if self.heads_first and x.dim() == 4 else x)
            .detach()
            .clone(memory_format=torch.contiguous_format)
            .requires_grad_(x.requires_grad)
            for x in tensors
        ]


@dataclass(frozen=True)
class Op:
    """A computation, its providers and the sizes at which they are measured.

    equation: inputs to outputs in their dtype; in float64 it is the reference, in the
        measured dtype the yardstick of errors.
    inputs: a case to tensors; where none requires a gradient it is measured forward.
    cases: by default those of the options.
    check: the inputs of the comparison; by default those of the options' check_case.
    least_bytes: of a case, where not every input and output is moved once.
    """

    options: Ops
    name: str
    variant: str
    equation: Callable
    inputs: Callable[[Case], list[Tensor]]
    providers: dict[str, Provider]
    cases: Sequence[Case] = ()
    check: Callable[[], list[Tensor]] | None = None
    least_bytes: Callable[[Case], int] | None = None

    def __post_init__(self):
        if not self.cases:
            object.__setattr__(self, "cases", self.options.cases())

    def check_inputs(self) -> list[Tensor]:
        return (self.check or partial(self.inputs, self.options.check_case()))()


def imported(module: str, name: str) -> Callable:
    """``name`` of ``module``, imported when it is first called."""

    def call(*arguments, **keywords):
        found = attrgetter(name)(import_module(module))
        return found(*arguments, **keywords)

    return call


def compiled(function: Callable) -> Callable:
    """torch.compile of a function, prepared when it is first called."""

    @cache
    def prepared() -> Callable:
        import torch._dynamo

        # past the limit, eager code would run under this name
        torch._dynamo.config.recompile_limit = 1000
        torch._dynamo.config.accumulated_recompile_limit = 1000
        return torch.compile(function, dynamic=False)

    return lambda *arguments: prepared()(*arguments)


def tuned(function: Callable, package: str = "fla-core", **more) -> Provider:
    """Another package's kernel."""
    return Provider(function, slow=True, cuda=True, package=package, **more)


@cache
def _generator(device: str) -> torch.Generator:
    # torch's own refuses after a failed CUDA graph
    return torch.Generator(device)


def normal(shape: Sequence[int], device: Any, dtype: torch.dtype) -> Tensor:
    """Normal numbers."""
    source = _generator(str(device))
    return torch.randn(tuple(shape), device=device, dtype=dtype, generator=source)


def draw(options: Ops, *shape: int) -> Tensor:
    """Normal numbers on the measured device, in the measured dtype."""
    return normal(shape, options.device, options.torch_dtype).requires_grad_()


def heads(options: Ops, case: Case) -> list[Tensor]:
    """Queries, keys and values, (B, N, H, D) each."""
    return [draw(options, *case, options.heads, options.width) for _ in range(3)]


def sdpa(causal: bool, backend=SDPBackend.FLASH_ATTENTION, block_size=None) -> Callable:
    """torch's fused softmax attention on (B, N, H, D), by views; in blocks if asked."""

    def attend(*inputs: Tensor) -> Tensor:
        parts = inputs[:3]
        if block_size is not None:
            parts = [equations.in_blocks(x, block_size) for x in parts]
        with sdpa_kernel(backend):
            output = F.scaled_dot_product_attention(
                *(x.transpose(1, 2) for x in parts), is_causal=causal
            )
        return output.transpose(1, 2).reshape(inputs[2].shape)

    return attend


def softmax(causal: bool) -> dict[str, Provider]:
    """What softmax costs at the same shape, where an op computes something else."""
    make = partial(Provider, other=True)
    return {
        "SDPA flash": make(sdpa(causal)),
        "SDPA cuDNN": make(sdpa(causal, SDPA_BACKENDS["cuDNN"]), cuda=True),
    }


def fla(name: str, feature_map: str) -> Callable:
    """An attention of flash-linear-attention: its output alone, without a scale."""
    function = imported("fla.ops.linear_attn", name)
    return on_features(
        lambda q, k, v: function(q, k, v, scale=1.0, normalize=False)[0], feature_map
    )


def on_features(function: Callable, name: str) -> Callable:
    """``function`` on phi of queries and keys: a peer that has no phi of its own."""
    phi = ops.FEATURE_MAPS[name]
    return lambda q, k, v: function(phi(q), phi(k), v)


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
