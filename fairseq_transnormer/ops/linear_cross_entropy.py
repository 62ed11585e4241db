"""The output layer and its loss at once, without the logits of all tokens.

Letters: N tokens, C width of the features, V vocabulary.

The forward pass makes logits for some rows at a time, and their gradients with them.
These need the softmax, and the logits are gone afterwards. What is kept for the
backward pass has the sizes of the features and of the weight, never N x V.
"""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from .backend import (
    accumulation_dtype,
    autocast_disabled,
    autocast_enabled,
    needs_gradient,
    product_dtype,
)
from .cross_entropy import cross_entropy_in_place
from .derivatives import once_differentiable

# bytes of logits at a time, and the rows that this makes at the least and at the most
CHUNK_BYTES = 2**28
FEWEST_ROWS, MOST_ROWS = 64, 2048
# rows of logits begin at multiples of so many elements, for wide loads
ALIGNED_ELEMENTS = 64
# probabilities over a large vocabulary are below float16's normal numbers
FLOAT16_SCALE = 128.0


def linear_cross_entropy(
    features: Tensor,
    weight: Tensor,
    targets: Tensor,
    bias: Tensor | None = None,
    *,
    ignore_index: int = -100,
    backend: str = "auto",
) -> tuple[Tensor, Tensor]:
    """The sum of -log softmax(W x + b)[target] over the tokens, and each of them.

    Products are in the dtype of the features, or autocast's; softmax, loss and the sum
    of the weight's gradient in float32 (float64 for float64). The gradients are
    multiplied by that of the sum in float32 and rounded after it. So they overflow
    where the scaler looks if the loss scale is too large. The same inputs give the same
    bits.

    Args:
        features: (..., C), any floating-point dtype.
        weight: (V, C), in the dtype of the features but for autocast.
        targets: int64 (...), in 0 ... V - 1 or ``ignore_index``.
        bias: (V,), likewise, or None.
        ignore_index: of targets that do not count.
        backend: of the softmax, "auto", "torch", "triton" or "reference".

    Returns:
        The sum, which can be differentiated once; and (...,) the losses of the tokens,
        0 where a target does not count, which cannot. Both float32 (float64).

    Raises:
        ValueError: shapes or dtypes do not fit; the backend's name is not known, or
            backend="triton" where it cannot run.
    """
    if features.shape[:-1] != targets.shape:
        raise ValueError(
            f"targets have shape {tuple(targets.shape)} beside features "
            f"{tuple(features.shape)}; allowed: {tuple(features.shape[:-1])}"
        )
    if targets.dtype != torch.int64:
        raise ValueError(f"targets are {targets.dtype}; allowed: torch.int64")
    if weight.dim() != 2 or weight.shape[1] != features.shape[-1]:
        raise ValueError(
            f"weight has shape {tuple(weight.shape)} beside features "
            f"{tuple(features.shape)}; allowed: (vocabulary, {features.shape[-1]})"
        )
    if bias is not None and bias.shape != weight.shape[:1]:
        raise ValueError(
            f"bias has shape {tuple(bias.shape)}; allowed: {tuple(weight.shape[:1])}"
        )
    if not autocast_enabled(features):
        for name, x in (("weight", weight), ("bias", bias)):
            if x is not None and x.dtype != features.dtype:
                raise ValueError(
                    f"{name} has {x.dtype} beside features of {features.dtype}; "
                    f"allowed without autocast: {features.dtype}"
                )
    # autograd.Function does not tell that gradients are switched off
    wanted = [needs_gradient(x) for x in (features, weight, bias)]
    total, losses = _LinearCrossEntropy.apply(
        features, weight, bias, targets, ignore_index, wanted, backend
    )
    return total, losses.view(targets.shape)


def rows_at_a_time(vocabulary: int, itemsize: int) -> int:
    """Rows of a chunk: CHUNK_BYTES of logits, within bounds."""
    return max(FEWEST_ROWS, min(MOST_ROWS, CHUNK_BYTES // (vocabulary * itemsize)))


class _LinearCrossEntropy(torch.autograd.Function):
    """Saves the gradients of the sum; the backward pass multiplies and uses them up."""

    @staticmethod
    def forward(ctx, features, weight, bias, targets, ignore_index, wanted, backend):
        dtype = product_dtype(features)
        wide = accumulation_dtype(dtype)
        grads = [
            torch.zeros(x.shape, dtype=wide, device=x.device) if needed else None
            for x, needed in zip((features, weight, bias), wanted, strict=True)
        ]
        with autocast_disabled(features):
            x = features.reshape(-1, features.shape[-1]).to(dtype)
            bias_of_product = None if bias is None else bias.to(dtype)
            chunked = _Chunks(x, weight.to(dtype), bias_of_product, wide, backend)
            losses = chunked.run(targets.reshape(-1), ignore_index, grads)
        ctx.save_for_backward(*grads)
        ctx.dtypes = [x if x is None else x.dtype for x in (features, weight, bias)]
        ctx.used_up = False
        ctx.mark_non_differentiable(losses)
        ctx.set_materialize_grads(False)
        return losses.sum(), losses

    @staticmethod
    @once_differentiable
    def backward(ctx, grad, _):
        if grad is None:
            return (None,) * 7
        if ctx.used_up:
            raise RuntimeError(
                "linear_cross_entropy: its gradients are used up by the first backward "
                "pass; run the forward pass again"
            )
        ctx.used_up = True
        saved = zip(ctx.saved_tensors, ctx.dtypes, strict=True)
        grads = (x if x is None else x.mul_(grad).to(dtype) for x, dtype in saved)
        return *grads, None, None, None, None


class _Chunks:
    """Losses and gradients, some rows at a time.

    Args:
        x: (N, C); weight: (V, C); bias: (V,) or None; in the dtype of products.
        wide: the dtype of sums.
        backend: of the softmax.
    """

    def __init__(
        self,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        wide: torch.dtype,
        backend: str,
    ):
        self.x, self.weight, self.bias, self.wide = x, weight, bias, wide
        self.scale = FLOAT16_SCALE if x.dtype == torch.float16 else 1.0
        self.backend = backend

    def run(
        self, targets: Tensor, ignore_index: int, grads: list[Tensor | None]
    ) -> Tensor:
        """Losses (N,); gradients of their sum are added to ``grads``."""
        losses = self.x.new_empty(len(targets), dtype=self.wide)
        vocabulary = len(self.weight)
        rows = min(rows_at_a_time(vocabulary, self.x.itemsize), len(targets))
        width = -(-vocabulary // ALIGNED_ELEMENTS) * ALIGNED_ELEMENTS
        room = self.x.new_empty(rows, width)[:, :vocabulary]
        for first in range(0, len(targets), max(rows, 1)):
            part = slice(first, first + rows)
            x = self.x[part]
            logits = room[: len(x)]
            if self.bias is None:
                torch.mm(x, self.weight.t(), out=logits)
            else:
                torch.addmm(self.bias, x, self.weight.t(), out=logits)
            losses[part] = cross_entropy_in_place(
                logits,
                targets[part],
                ignore_index=ignore_index,
                scale=self.scale,
                with_gradient=any(grad is not None for grad in grads),
                backend=self.backend,
            )
            self._add_gradients(logits, x, part, grads)
        for grad in grads:
            if grad is not None and self.scale != 1:
                grad /= self.scale
        return losses

    def _add_gradients(
        self, grad: Tensor, x: Tensor, part: slice, grads: list[Tensor | None]
    ) -> None:
        """Add what follows from the gradient of a chunk of logits (rows, V)."""
        grad_x, grad_weight, grad_bias = grads
        if grad_x is not None:
            _add_product(grad_x.view(-1, grad_x.shape[-1])[part], grad, self.weight)
        if grad_weight is not None:
            _add_product(grad_weight, grad.t(), x)
        if grad_bias is not None:
            grad_bias += grad.sum(0, dtype=self.wide)


def _add_product(total: Tensor, a: Tensor, b: Tensor) -> None:
    """total += a b, with sums that stay wide.

    A CPU rounds bfloat16's product once before, as it does in the layers: a wide one
    would take twice as long. float16's could overflow.
    """
    if a.dtype == total.dtype:
        torch.addmm(total, a, b, out=total)
    elif not a.is_cuda and a.dtype == torch.bfloat16:
        total += a @ b
    elif not a.is_cuda:
        total += a.to(total.dtype) @ b.to(total.dtype)
    elif _adds_to_wide_sums(a.device, a.dtype):
        torch.addmm(total, a, b, out_dtype=total.dtype, out=total)
    elif hasattr(torch.ops.aten.mm, "dtype"):  # from torch 2.8 on
        total += torch.mm(a, b, out_dtype=total.dtype)
    else:
        total += a.to(total.dtype) @ b.to(total.dtype)


@functools.cache
def _adds_to_wide_sums(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether this torch adds products of half precision to a float32 matrix in place.

    Its first versions with ``out_dtype`` want the matrix in half precision.
    """
    a = torch.zeros(16, 16, dtype=dtype, device=device)
    total = a.float()
    try:
        torch.addmm(total, a, a, out_dtype=torch.float32, out=total)
    except (RuntimeError, TypeError):
        return False
    return True
