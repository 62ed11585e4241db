"""What is measured: a computation on some inputs, and those who enter for it."""

from __future__ import annotations

import importlib
import importlib.metadata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor


class Setup(NamedTuple):
    """What all groups of one run share.

    tokens: batch times length of the attentions.
    feature_map: phi of the linear attention alone; see ``ops.FEATURE_MAPS``.
    """

    tokens: int
    heads: int
    width: int
    block_size: int
    feature_map: str
    device: torch.device
    dtype: torch.dtype


class Case(NamedTuple):
    """One size. ``length`` is the context in the group ``decode_step``."""

    batch: int
    length: int


class Computation(NamedTuple):
    """What a contestant computes.

    equation: inputs in (B, N, H, D) to a tensor or a tuple of them, in plain torch of
        the inputs' dtype. In float64 it is the reference, in the measured dtype the
        yardstick of errors.
    """

    name: str
    equation: Callable[..., Tensor | tuple[Tensor, ...]]


@dataclass(frozen=True)
class Contestant:
    """One way to compute something.

    function: inputs to outputs; for ``stateful`` ones inputs to a call without
        arguments that gives the outputs.
    ours: ours, wholly or in part, and no peer.
    instead: what it computes, where that is not what its group computes.
    heads_first: takes and gives (B, H, N, D), contiguous.
    compiled: by torch.compile for each shape, which takes seconds: measured at
        few lengths.
    autotuned: its first call tries many kernels, which can take a minute.
    quadratic: keeps length x length matrices.
    package: the distribution that it needs.
    blocks: takes lengths that are a multiple of the block size only.
    """

    name: str
    function: Callable
    ours: bool = False
    instead: Computation | None = None
    heads_first: bool = False
    compiled: bool = False
    autotuned: bool = False
    quadratic: bool = False
    blocks: bool = False
    stateful: bool = False
    needs_cuda: bool = False
    package: str | None = None

    @property
    def slow_start(self) -> bool:
        """Whether the first call takes long."""
        return self.compiled or self.autotuned

    def why_not_on(self, device: torch.device) -> str | None:
        """Why it cannot run on the device at all, if that is known beforehand."""
        if self.needs_cuda and device.type != "cuda":
            return "needs a CUDA device"
        if self.package is not None:
            try:
                importlib.metadata.version(self.package)
            except importlib.metadata.PackageNotFoundError:
                return f"{self.package} is not installed"
        return None

    def start(self, inputs: Sequence[Tensor]) -> Callable[[], object]:
        """A call on these inputs, which are in its layout."""
        if self.stateful:
            return self.function(*inputs)
        return lambda: self.function(*inputs)

    def arranged(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Leaves with the values of ``tensors``, between (B, N, H, D) and its layout.

        Its own inverse.
        """
        return [
            (x.detach().transpose(1, 2).contiguous() if self._turns(x) else x.detach())
            .clone()
            .requires_grad_(x.requires_grad)
            for x in tensors
        ]

    def _turns(self, x: Tensor) -> bool:
        return self.heads_first and x.dim() == 4


@dataclass(frozen=True)
class Group:
    """Contestants for one computation, and the sizes at which they meet.

    inputs: a case to tensors; those that require grad are differentiated, and a group
        without any is measured forward only.
    cases: in the order of measurement; ``axis`` is the field of ``Case`` that varies.
    least_bytes: of a case, where ``roofline.least_bytes`` does not hold.
    """

    name: str
    variant: str
    computation: Computation
    inputs: Callable[[Case], list[Tensor]]
    contestants: list[Contestant]
    cases: list[Case]
    check_case: Case
    axis: str = "length"
    least_bytes: Callable[[Case], int] | None = None

    def computation_of(self, contestant: Contestant) -> Computation:
        return contestant.instead or self.computation


def as_tuple(outputs: Tensor | tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return outputs if isinstance(outputs, tuple) else (outputs,)


def imported(module: str, name: str) -> Callable:
    """``name`` of ``module``, imported when it is first called."""

    @cache
    def loaded() -> Callable:
        return getattr(importlib.import_module(module), name)

    return lambda *arguments, **keywords: loaded()(*arguments, **keywords)


def compiled(function: Callable, *, dynamic: bool = False) -> Callable:
    """torch.compile of ``function``, prepared when it is first called."""

    @cache
    def prepared() -> Callable:
        # takes as long to import as torch
        import torch._dynamo

        # past the limit, eager code would run under this name
        torch._dynamo.config.recompile_limit = 1000
        torch._dynamo.config.accumulated_recompile_limit = 1000
        return torch.compile(function, dynamic=dynamic)

    return lambda *arguments: prepared()(*arguments)


@cache
def generator(device: torch.device) -> torch.Generator:
    """The source of all inputs: torch's own refuses after a failed CUDA graph."""
    return torch.Generator(device)


def normal(shape: Sequence[int], device: torch.device, dtype: torch.dtype) -> Tensor:
    """Normal numbers."""
    return torch.randn(
        tuple(shape), device=device, dtype=dtype, generator=generator(device)
    )


def normal_like(x: Tensor) -> Tensor:
    """Normal numbers for x's shape, device and dtype."""
    return normal(x.shape, x.device, x.dtype)


def random(setup: Setup, *shape: int, grad: bool = True) -> Tensor:
    """Normal numbers, on the measured device and in the measured dtype."""
    return normal(shape, setup.device, setup.dtype).requires_grad_(grad)


def heads(setup: Setup, case: Case) -> list[Tensor]:
    """Queries, keys and values, (B, N, H, D) each."""
    shape = (case.batch, case.length, setup.heads, setup.width)
    return [random(setup, *shape) for _ in range(3)]
