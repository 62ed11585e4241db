"""Backward passes that are written by hand and are not differentiable themselves.

torch's own ``once_differentiable`` notices a second derivative by the incoming gradient
alone. That may be a constant, or ``torch.autograd.grad`` may ask for the inputs'
gradients only: ``hessian``, ``hvp`` and gradient penalties do. Its answer is then zero,
without an error.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Backward = Callable[..., Any]


def once_differentiable(backward: Backward) -> Backward:
    """Make a backward whose results raise where they are differentiated again.

    Args:
        backward: (ctx, *gradients) to gradients of the inputs; runs without a graph.

    Raises:
        RuntimeError: of what it makes: a second derivative is asked for, in whichever
            way. Or a graph is (``create_graph=True``), and no saved tensor leads to the
            inputs.
    """

    @functools.wraps(backward)
    def wrapper(ctx, *gradients):
        # torch refuses second derivatives of compiled graphs by itself
        if torch.compiler.is_compiling() or not torch.is_grad_enabled():
            with torch.no_grad():
                return backward(ctx, *gradients)
        saved = ctx.saved_tensors
        ways = [x for x in saved if x is not None and x.requires_grad]
        if not ways:
            raise _error(type(ctx).__name__)
        with torch.no_grad():
            results = backward(_Unpacked(ctx, saved), *gradients)
        several = isinstance(results, tuple)
        ways += [x for x in gradients if isinstance(x, Tensor) and x.requires_grad]
        found = results if several else (results,)
        tensors = [x for x in found if x is not None]
        name, count = type(ctx).__name__, len(tensors)
        refusing = iter(_Refusing.apply(name, count, *tensors, *ways))
        found = tuple(None if x is None else next(refusing) for x in found)
        return found if several else found[0]

    return wrapper


class _Unpacked:
    """A context whose saved tensors have been unpacked: a checkpoint does it once."""

    def __init__(self, ctx: Any, saved_tensors: tuple[Tensor | None, ...]):
        vars(self).update(ctx=ctx, saved_tensors=saved_tensors)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.ctx, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.ctx, name, value)


class _Refusing(torch.autograd.Function):
    """Hands the first ``count`` tensors on; raises where it is differentiated.

    The others are what a derivative of these would lead to.
    """

    @staticmethod
    def forward(ctx, name, count, *tensors):
        ctx.name = name
        return tuple(x.view_as(x) for x in tensors[:count])

    @staticmethod
    def backward(ctx, *gradients):
        raise _error(ctx.name)


def _error(name: str) -> RuntimeError:
    op = name.removesuffix("Backward").lstrip("_")
    return RuntimeError(
        f"a second derivative of {op}; allowed: first derivatives, or backend="
        "'reference' where the whole of an op has it"
    )
