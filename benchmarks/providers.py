"""What an op of the registry is made of, and the kernels of torch and of others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from operator import attrgetter
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from fairseq_transnormer.ops import FEATURE_MAPS

from . import equations
from .measure import version_of
from .options import Case, Ops

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
    instead: name and equation of what it computes, where that is not the op's.
    heads_first: takes and gives (B, H, N, D), contiguous.
    slow: the first call compiles, or tries many kernels, which can take a minute.
    quadratic: keeps length x length matrices.
    blocks: takes multiples of the block size only.
    cuda, package: needs a CUDA device, needs this package.
    """

    function: Callable
    ours: bool = False
    instead: tuple[str, Callable] | None = None
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
        if self.package is not None and version_of(self.package) is None:
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
    name = f"{'causal ' if causal else ''}softmax attention"
    equation = partial(equations.softmax_attention, causal=causal)
    instead = name, lambda *inputs: equation(*inputs[:3])
    return {
        f"SDPA {kind}": Provider(
            sdpa(causal, SDPA_BACKENDS[kind]), instead=instead, cuda=kind != "flash"
        )
        for kind in ("flash", "cuDNN")
    }


def fla(name: str, feature_map: str) -> Callable:
    """An attention of flash-linear-attention: its output alone, without a scale."""
    function = imported("fla.ops.linear_attn", name)
    return on_features(
        lambda q, k, v: function(q, k, v, scale=1.0, normalize=False)[0], feature_map
    )


def on_features(function: Callable, name: str) -> Callable:
    """``function`` on phi of queries and keys: a peer that has no phi of its own."""
    phi = FEATURE_MAPS[name]
    return lambda q, k, v: function(phi(q), phi(k), v)
