"""Rows of unequal length cut into equal stretches, for landmarks and samples."""

import torch
from torch import Tensor


def stretches(
    length: Tensor, count: int | Tensor, slots: int | None = None
) -> tuple[Tensor, Tensor]:
    """Cut 0 ... length - 1 into ``count`` stretches that differ by one at most.

    Where length < count some are empty; each position is in one all the same.

    Args:
        length: int64, any shape.
        count: for all lengths, or a tensor of their shape.
        slots: stretches to return, those after ``count`` empty; count by default.

    Returns:
        Start and end of each, (*length.shape, slots).
    """
    slots = slots or int(count)
    bounds = torch.arange(slots + 1, device=length.device)
    length = length[..., None]
    count = count[..., None] if isinstance(count, Tensor) else max(count, 1)
    bounds = (bounds * length // count).minimum(length)
    return bounds[..., :-1], bounds[..., 1:]


def draw_integers(*shape: int) -> Tensor:
    """Random int64, which ``one_of_each`` takes; half precision leaves them alone."""
    return torch.randint(2**31, shape)


def one_of_each(start: Tensor, end: Tensor, drawn: Tensor) -> tuple[Tensor, Tensor]:
    """A position in each stretch, chosen by integers, and whether there is none.

    Args:
        start, end: int64, see ``stretches``.
        drawn: int64, of a shape that goes with them.

    Returns:
        int64 and bool; 0 where a stretch is empty.
    """
    size = end - start
    empty = (size == 0).expand(torch.broadcast_shapes(size.shape, drawn.shape))
    return (start + drawn % size.clamp(min=1)).masked_fill(empty, 0), empty


def take(x: Tensor, index: Tensor) -> Tensor:
    """Tokens ``index`` (B, M) of x (B, N, H, D): (B, M, H, D)."""
    return x.gather(1, index[:, :, None, None].expand(-1, -1, *x.shape[2:]))
