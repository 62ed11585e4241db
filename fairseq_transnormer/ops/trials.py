"""A trial: an op on small inputs by Triton, by torch, and by torch in float64.

Rules, for every output and every gradient:

* its error, by the Frobenius norm, is at most TIMES_AS_WRONG that of torch in the same
  dtype, and a rounding (LUCK);
* no row is more than ROW_TIMES_AS_WRONG as wrong as torch's worst row: one wrong token
  among thousands moves no norm;
* a second run gives the same bits;
* what a kernel leaves unwritten is seen: new memory is full of NaN.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import reduce
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from .trial_cases import CASES, TF32_CUT, Case, Mismatch, draw
from .verdicts import Configuration, Verdict

TIMES_AS_WRONG = 2.0
ROW_TIMES_AS_WRONG = 4.0
# torch may be lucky by a part of one rounding
LUCK = {torch.float32: 2e-6, torch.float16: 1e-5, torch.bfloat16: 1e-4}
# below this a result is zero but for roundings, and a ratio says nothing
NOTHING = 1e-9
# rows smaller than this part of the average are judged as if they were that large
SMALL_ROW = 0.1

# errors that say nothing of a kernel: of memory, of a machine without a compiler
PASSING = ("out of memory", "ALLOC_FAILED", "C compiler")
aten = torch.ops.aten
EMPTY = {
    *(aten.empty.memory_format, aten.empty_like.default, aten.empty_strided.default),
    *(aten.new_empty.default, aten.new_empty_strided.default),
}


class Trial(NamedTuple):
    """What a trial found.

    Attributes:
        verdict: to write down.
        lasts: whether another process would find the same.
        raised: whether the kernels raised, after which a CUDA context may be broken.
    """

    verdict: Verdict
    lasts: bool
    raised: bool


class Slack(NamedTuple):
    """Relative errors that are allowed besides a multiple of torch's.

    Attributes:
        whole: of a result, by the Frobenius norm.
        row: of its worst row.
    """

    whole: float
    row: float


def trial(configuration: Configuration) -> Trial:
    """Try what is compiled for a configuration, in this process."""
    begin = time.monotonic()
    op, dtype, device, options = configuration
    reason = error = None
    lasts, raised = True, False
    try:
        error = largest_error(op, dtype, device, dict(options))
    except Mismatch as mismatch:
        reason = str(mismatch)
    except Exception as failure:
        text = " ".join(str(failure).split())[:300]
        reason, raised = f"{type(failure).__name__}: {text}", True
        # KeyError: the words of a configuration lack an option
        passing = torch.OutOfMemoryError | MemoryError | OSError | KeyError
        passes = isinstance(failure, passing)
        lasts = not passes and not any(words in reason for words in PASSING)
    seconds = round(time.monotonic() - begin, 3)
    return Trial(Verdict(reason, error, seconds), lasts, raised)


def slack_of(dtype: torch.dtype, products: bool) -> Slack:
    """What is allowed besides a multiple of torch's error.

    Args:
        dtype: of the inputs.
        products: whether matrices are multiplied, in TF32 where not in bfloat16.
    """
    whole = LUCK[dtype] + (TF32_CUT[dtype] if products else 0.0)
    # the rows of a product whose operands are cut differ by as much as roundings do
    cut = products and dtype == torch.float32
    return Slack(whole, ROW_TIMES_AS_WRONG * whole if cut else whole)


def largest_error(
    op: str, dtype: torch.dtype, device: torch.device, options: Mapping[str, Any]
) -> float:
    """The largest error of the kernels, as a multiple of torch's.

    Raises:
        Mismatch: they are not as good as they must be.
        Exception: whatever compiling or launching them raises.
    """
    worst = -1.0
    cases, products = CASES[op]
    slack = slack_of(dtype, products)
    for case in cases(options, dtype, device):
        with _PoisonedMemory():
            computed = _results(case, "triton", dtype)
            again = _results(case, "triton", dtype)
        peer = _results(case, "torch", dtype)
        exact = _results(case, "torch", torch.float64, rounded_to=dtype)
        for i, (one, other) in enumerate(zip(computed, again, strict=True)):
            # by bits: NaN is not equal to itself, and what is wrong is said below
            if not torch.equal(one.nan_to_num(), other.nan_to_num()):
                raise Mismatch(f"result {i} differs from run to run")
        for i, results in enumerate(zip(computed, peer, exact, strict=True)):
            worst = max(worst, judge(*results, slack, name=f"result {i}"))
    if worst < 0:
        raise ValueError(f"no input of {op} launches the kernels of {dict(options)}")
    return worst


def judge(
    computed: Tensor, peer: Tensor, exact: Tensor, slack: Slack, name: str
) -> float:
    """The error as a multiple of torch's.

    Args:
        computed, peer, exact: by the kernels, by torch, in float64.
        slack: relative errors that are allowed besides.

    Raises:
        Mismatch: dtype or shape are not torch's, or the error is too large.
    """
    if computed.dtype != peer.dtype or computed.shape != peer.shape:
        raise Mismatch(
            f"{name} is {computed.dtype} {tuple(computed.shape)}, torch's is "
            f"{peer.dtype} {tuple(peer.shape)}"
        )
    exact = exact.double()
    size = exact.norm()
    if size < NOTHING:
        # one key in softmax: the weight is 1 whatever the score
        if not bool(computed.abs().amax() < 0.1):
            raise Mismatch(f"{name} should be zero")
        return 0.0
    wrong, allowed = (
        float((x.double() - exact).norm() / size) for x in (computed, peer)
    )
    # not >: NaN is no good either
    if not wrong <= TIMES_AS_WRONG * allowed + slack.whole:
        raise Mismatch(f"{name} is wrong by {wrong:.2g}, torch by {allowed:.2g}")
    row, allowed_row = (_worst_row(x, exact) for x in (computed, peer))
    if not row <= ROW_TIMES_AS_WRONG * allowed_row + slack.row:
        raise Mismatch(
            f"{name}: a row is wrong by {row:.2g}, torch by {allowed_row:.2g}"
        )
    return wrong / (allowed + slack.whole)


def _worst_row(x: Tensor, exact: Tensor) -> float:
    sizes = exact.norm(dim=-1)
    typical = sizes.square().mean().sqrt()
    errors = (x.double() - exact).norm(dim=-1)
    return float((errors / sizes.clamp(min=SMALL_ROW * typical)).max())


def _results(
    case: Case, backend: str, dtype: torch.dtype, rounded_to: torch.dtype | None = None
) -> list[Tensor]:
    """Outputs, and gradients of a weighted sum of them.

    rounded_to: dtype that the inputs are rounded to before they become ``dtype``.
    """
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    # layouts stay, whose alignment may be what is tried
    leaves = [_as(_as(x, rounded_to or dtype), dtype) for x in case.inputs]
    leaves += [_as(x, wide) for x in case.wide]
    fixed = [_as(x, wide) for x in case.fixed]
    if not case.differentiable:
        with torch.no_grad():
            return [x.clone() for x in case.call([*leaves, *fixed], backend)]
    leaves = [x.requires_grad_() for x in leaves]
    outputs = case.call([*leaves, *fixed], backend)
    weights = draw(*(x.shape for x in outputs), device=leaves[0].device, seed=2)
    # the same numbers for float64 as for the dtype under trial
    weights = [w.bfloat16() for w in weights]
    sums = ((x * w.to(x.dtype)).sum() for x, w in zip(outputs, weights, strict=True))
    loss = reduce(torch.add, sums)
    return [*(x.detach() for x in outputs), *torch.autograd.grad(loss, leaves)]


def _as(x: Tensor, dtype: torch.dtype) -> Tensor:
    """A copy in a dtype with x's strides and place in its memory, without gradient."""
    base = torch.zeros(
        x.storage_offset() + _extent(x), dtype=dtype, device=x.device
    ).as_strided(x.shape, x.stride(), x.storage_offset())
    return base.copy_(x.detach())


def _extent(x: Tensor) -> int:
    """Elements of memory from the first to the last of x."""
    return 1 + sum(
        (size - 1) * stride for size, stride in zip(x.shape, x.stride(), strict=True)
    )


class _PoisonedMemory(TorchDispatchMode):
    """New memory is full of NaN, in this thread and in its backward passes."""

    # a custom operator's memory would be hidden in it (``kernels.launch``)
    sees_into_ops = True

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        if function in EMPTY and result.is_floating_point():
            result.fill_(torch.nan)
        return result
