"""Softmax, its cross entropy and the gradient of the logits, in the logits' memory.

Letters: N rows, V vocabulary.
"""

from __future__ import annotations

from torch import Tensor

from . import reference
from .backend import Kernels, accumulation_dtype, select


def cross_entropy_in_place(
    logits: Tensor,
    targets: Tensor,
    *,
    ignore_index: int = -100,
    scale: float = 1.0,
    with_gradient: bool = True,
    backend: str = "auto",
) -> Tensor:
    """-log softmax(logits)[target] of each row; the logits become its gradient.

    Softmax and losses are in float32 (float64 for float64).

    Args:
        logits: (N, V), any floating-point dtype. Becomes
            scale * (softmax(logits) - onehot(target)), zero where the target does not
            count; without ``with_gradient`` what is left there has no meaning.
        targets: int64 (N,), in 0 ... V - 1 or ``ignore_index``.
        ignore_index: of targets that do not count.
        scale: factor of the gradient.
        with_gradient: whether it is wanted.
        backend: "auto", "torch", "triton" or "reference".

    Returns:
        (N,), float32 (float64), 0 where the target does not count. Autograd does not
        see it.

    Raises:
        ValueError: the backend's name is not known, or backend="triton" where it
            cannot run.
    """
    implementation = select(_IMPLEMENTATIONS, backend, (logits,), lambda: _KERNELS)
    return implementation(logits, targets, ignore_index, scale, with_gradient)


def _torch_cross_entropy(
    logits: Tensor,
    targets: Tensor,
    ignore_index: int,
    scale: float,
    with_gradient: bool,
) -> Tensor:
    wide = accumulation_dtype(logits.dtype)
    counts = (targets != ignore_index)[:, None]
    index = targets[:, None].masked_fill(~counts, 0)
    # no second tensor of this size where the logits are wide themselves
    x = logits.to(wide)
    x -= x.amax(1, keepdim=True)
    of_target = x.gather(1, index)
    total = x.exp_().sum(1, keepdim=True)
    losses = (total.log() - of_target).masked_fill_(~counts, 0).squeeze(1)
    if with_gradient:
        x *= (counts * scale) / total
        of_target = x.gather(1, index) - counts * scale
        x.scatter_(1, index, of_target)
        if x is not logits:
            logits.copy_(x)
    return losses


def _triton_cross_entropy(*arguments):
    # imported when it is first called: Triton need not be installed
    from .kernels.cross_entropy import cross_entropy_in_place

    return cross_entropy_in_place(*arguments)


_IMPLEMENTATIONS = {
    "torch": _torch_cross_entropy,
    "reference": reference.cross_entropy_in_place,
    "triton": _triton_cross_entropy,
}
_KERNELS = Kernels("cross_entropy", products=False)
