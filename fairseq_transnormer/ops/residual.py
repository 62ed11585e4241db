"""The residual connections of a pre-norm layer, each with the norm that follows.

    x, y = norm_beside(x)                   norm; backwards x's two gradients are added
    x, y = add_and_norm(x, attention(y))    x + dropout(y), and the norm of it
    x = add_dropped(x, channel_mixer(y))    x + dropout(y)

With torch these are ``F.dropout``, a sum and ``rms_norm``. Triton's are one kernel
each, forward and backward; what is dropped is drawn from torch's CPU generator, where
``F.dropout`` draws from the device's. Under ``torch.compile``, which fuses such chains
itself, and while a CUDA graph is captured, in which a seed would be a constant, they
are torch's operations here, too.
"""

from __future__ import annotations

from functools import partial
from operator import index

import torch
import torch.nn.functional as F
from torch import Tensor

from .backend import Kernels, is_captured, is_for_triton, resolve_backend, select
from .rms_norm import check_eps, rms_norm, why_row_is_too_wide
from .verification.dropped import DROPOUT_P, check_factors, seeded
from .verification.trials import (
    Case,
    draw,
    placed,
    programs_at_once,
    register_cases,
)


def norm_beside(
    x: Tensor, *, eps: float = 1e-8, backend: str = "auto"
) -> tuple[Tensor, Tensor]:
    """x itself and ``rms_norm(x)``.

    Args:
        x: (..., D), for two uses.
        eps, backend: see ``rms_norm``.

    Raises:
        ValueError: see ``rms_norm``.
    """
    check_eps(eps)
    if _fused("norm_beside", backend, (x,)):
        from .kernels import residual

        return residual.norm_beside(x, eps=eps)
    return x, rms_norm(x, eps=eps, backend=backend)


def add_dropped(
    x: Tensor, y: Tensor, *, dropout_p: float = 0.0, backend: str = "auto"
) -> Tensor:
    """x + dropout(y).

    Args:
        x, y: (..., D) each; their dtypes may differ under autocast.
        dropout_p: probability with which an element of y is dropped, also in
            evaluation: pass 0 there.
        backend: "auto", "torch", "triton" or "reference".

    Raises:
        ValueError: the shapes differ, or dropout_p is no probability; see ``rms_norm``.
    """
    _check(x, y, dropout_p)
    # a sum alone is one kernel anyway
    if dropout_p > 0 and _fused("add_dropped", backend, (x, y), dropout_p):
        from .kernels import residual

        return residual.add_dropped(x, y, dropout_p=dropout_p)
    return _sum(x, y, dropout_p)


def add_and_norm(
    x: Tensor,
    y: Tensor,
    *,
    dropout_p: float = 0.0,
    eps: float = 1e-8,
    backend: str = "auto",
) -> tuple[Tensor, Tensor]:
    """x + dropout(y), and ``rms_norm`` of that.

    Args:
        x, y, dropout_p: see ``add_dropped``.
        eps, backend: see ``rms_norm``.

    Raises:
        ValueError: see ``add_dropped``.
    """
    _check(x, y, dropout_p)
    check_eps(eps)
    if _fused("add_and_norm", backend, (x, y), dropout_p):
        from .kernels import residual

        return residual.add_and_norm(x, y, dropout_p=dropout_p, eps=eps)
    x = _sum(x, y, dropout_p)
    return x, rms_norm(x, eps=eps, backend=backend)


def _sum(x: Tensor, y: Tensor, dropout_p: float) -> Tensor:
    return x + F.dropout(y, dropout_p) if dropout_p > 0 else x + y


def _check(x: Tensor, y: Tensor, dropout_p: float) -> None:
    if x.shape != y.shape:
        raise ValueError(
            f"y is {tuple(y.shape)} beside x {tuple(x.shape)}; they must agree"
        )
    if not 0 <= dropout_p <= 1:
        raise ValueError(f"dropout_p={dropout_p}; allowed: 0 <= p <= 1")


def _fused(
    call: str, backend: str, tensors: tuple[Tensor, ...], dropout_p: float = 0.0
) -> bool:
    """Whether Triton's kernels may run where the call stands, and are chosen."""
    if not is_for_triton(tensors[0]) and resolve_backend(backend) == "auto":
        return False
    here = not torch.compiler.is_compiling() and not (
        dropout_p > 0 and is_captured(tensors[0])
    )

    def kernels() -> Kernels:
        width = index(tensors[0].shape[-1])
        return Kernels(
            "residual",
            lambda: {
                "call": call,
                "width": width,
                "added": str(tensors[-1].dtype),
                "dropout": dropout_p > 0,
            },
            products=False,
            unless=why_row_is_too_wide(width),
        )

    # a name that is not known, or cannot run, is an error everywhere
    chosen = {"triton": True, "torch": False, "reference": False}
    if not here and backend == "auto":
        return False
    return select(chosen, backend, tensors, kernels) and here


def _cases(options, dtype, device):
    call, added = options["call"], getattr(torch, options["added"].split(".")[1])
    dropout_p = DROPOUT_P if options["dropout"] else 0.0

    def factors(shape):
        """What the kernel multiplies elements by: it draws, and torch follows."""
        if not dropout_p:
            return 1.0
        ones = torch.ones(shape, dtype=torch.float32, device=device)
        known = {"dropout_p": dropout_p, "backend": "triton"}
        found, others = (
            seeded(add_dropped, torch.zeros_like(ones), ones, seed=seed, **known)
            for seed in (1, 2)
        )
        check_factors(found, others, dropout_p, {"column": -1, "row": 1})
        return found.double()

    def run(first, last, inputs, backend):
        x = inputs[0]
        if call == "norm_beside":
            total, normed = norm_beside(x, backend=backend)
            # as in a layer, which adds to it; else its gradient comes from the norm
            return (2 * total, normed)[first:]
        y = inputs[1] if x.dtype == torch.float64 else inputs[1].to(added)
        if backend == "triton":
            op = add_and_norm if call == "add_and_norm" else add_dropped
            results = seeded(op, x, y, dropout_p=dropout_p, backend=backend)
            results = results if isinstance(results, tuple) else (results,)
            return results[first:last]
        total = x + (y.double() * factors(y.shape)).to(y.dtype)
        if call == "add_dropped":
            return (total,)
        return (total, rms_norm(total, backend=backend))[first:last]

    # rows that do not fill the last program; more programs than run at once
    for rows in (37, 2048 * programs_at_once(device) // options["width"] + 3):
        shape = (2, rows, options["width"])
        x, y = draw(shape, shape, device=device)
        y = y.to(added).float()
        inputs = [placed(each, options["aligned"]) for each in (x, y)]
        # gradients may come from the sum, from its norm, or from both
        parts = {"add_dropped": [(0, 1)], "norm_beside": [(0, 2), (1, 2)]}
        for part in parts.get(call, [(0, 2), (0, 1), (1, 2)]):
            tensors = inputs[:1] if call == "norm_beside" else inputs
            yield Case(tensors, partial(run, *part))


register_cases("residual", _cases, products=False)
