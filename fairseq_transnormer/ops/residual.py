"""The residual connections of a pre-norm layer, each with the norm that follows.

    x, y = norm_with_residual(x)                norm; x's two gradients are added in it
    x, y = dropout_add_norm(x, attention(y))    x + dropout(y), and the norm of it
    x = dropout_add(x, channel_mixer(y))        x + dropout(y)

With torch these are ``F.dropout``, a sum and ``rms_norm``. Triton's are one kernel
each, forward and backward; what is dropped is drawn from torch's CPU generator, where
``F.dropout`` draws from the device's. ``torch.compile`` fuses such chains itself, and a
seed would be a constant of a CUDA graph: there they are torch's operations, too.
"""

from __future__ import annotations

from operator import index

import torch
import torch.nn.functional as F
from torch import Tensor

from .backend import Kernels, is_captured, is_for_triton, resolve_backend, select
from .rms_norm import check_eps, rms_norm, why_row_is_too_wide


def norm_with_residual(
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
    if _fused("norm_with_residual", backend, (x,)):
        from .kernels import residual

        return residual.norm_with_residual(x, eps=eps)
    return x, rms_norm(x, eps=eps, backend=backend)


def dropout_add(
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
    if dropout_p > 0 and _fused("dropout_add", backend, (x, y), dropout_p):
        from .kernels import residual

        return residual.dropout_add(x, y, dropout_p=dropout_p)
    return _sum(x, y, dropout_p)


def dropout_add_norm(
    x: Tensor,
    y: Tensor,
    *,
    dropout_p: float = 0.0,
    eps: float = 1e-8,
    backend: str = "auto",
) -> tuple[Tensor, Tensor]:
    """x + dropout(y), and ``rms_norm`` of that.

    Args:
        x, y, dropout_p: see ``dropout_add``.
        eps, backend: see ``rms_norm``.

    Raises:
        ValueError: see ``dropout_add``.
    """
    _check(x, y, dropout_p)
    check_eps(eps)
    if _fused("dropout_add_norm", backend, (x, y), dropout_p):
        from .kernels import residual

        return residual.dropout_add_norm(x, y, dropout_p=dropout_p, eps=eps)
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

        def options():
            known = {"call": call, "width": width, "added": str(tensors[-1].dtype)}
            # of the others one never drops, and one always
            dropout = {"dropout": dropout_p > 0} if call == "dropout_add_norm" else {}
            return known | dropout

        unless = why_row_is_too_wide(width)
        return Kernels("residual", options, products=False, unless=unless)

    # a name that is not known, or cannot run, is an error everywhere
    chosen = {"triton": True, "torch": False, "reference": False}
    if not here and backend == "auto":
        return False
    return select(chosen, backend, tensors, kernels) and here
