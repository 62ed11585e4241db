"""Divide rows of unequal length into segments of equal length, for landmarks."""

import torch
from torch import Tensor


def segments(
    length: Tensor, count: int | Tensor, slots: int | None = None
) -> tuple[Tensor, Tensor]:
    """Divide 0 ... length - 1 into ``count`` segments, with sizes equal up to one.

    If length < count some segments are empty; each position is still in one segment.

    Args:
        length: int64, any shape.
        count: for all lengths, or a tensor of their shape.
        slots: number of segments to return, those after ``count`` empty; default:
            ``count``.

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
    """Random int64 for ``one_of_each``; casts to half precision do not change them."""
    return torch.randint(2**31, shape)


def one_of_each(start: Tensor, end: Tensor, drawn: Tensor) -> tuple[Tensor, Tensor]:
    """A position in each segment, chosen by random integers; True for empty segments.

    Args:
        start, end: int64, see ``segments``.
        drawn: int64, of a shape that broadcasts with theirs.

    Returns:
        int64, 0 for an empty segment, and bool.
    """
    size = end - start
    empty = (size == 0).expand(torch.broadcast_shapes(size.shape, drawn.shape))
    return (start + drawn % size.clamp(min=1)).masked_fill(empty, 0), empty


def take(x: Tensor, index: Tensor) -> Tensor:
    """Tokens ``index`` (B, M) of x (B, N, H, D): (B, M, H, D)."""
    return x.gather(1, index[:, :, None, None].expand(-1, -1, *x.shape[2:]))
