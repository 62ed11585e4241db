"""The places of pads in a batch, if they are known.

To read a mask on a GPU, Python waits until the GPU has finished all earlier work. So
batches are inspected on the host; a compiled model does not inspect them.

Letters: B batch, N length.
"""

from __future__ import annotations

import torch
from torch import Tensor

# "right": rows may end with pads
PADDINGS = ("none", "right", "anywhere")


def check_padding_idx(padding_idx: int, vocab_size: int) -> None:
    """Raise ValueError unless the pad is a token of the vocabulary."""
    if padding_idx not in range(vocab_size):
        raise ValueError(f"padding_idx={padding_idx}; allowed: 0 to {vocab_size - 1}")


def check_tokens(tokens: Tensor, dimensions: dict[int, str]) -> None:
    """Raise ValueError for tokens of length 0, of other dimensions or dtypes.

    Args:
        tokens: a model's input.
        dimensions: number of dimensions -> their names.
    """
    if tokens.dim() not in dimensions:
        raise ValueError(
            f"tokens have shape {tuple(tokens.shape)}; allowed: "
            f"{' or '.join(dimensions.values())}"
        )
    if tokens.shape[1] == 0:
        raise ValueError(
            f"tokens have shape {tuple(tokens.shape)}; allowed: length 1 or more"
        )
    if tokens.dtype not in (torch.int64, torch.int32):
        raise ValueError(
            f"tokens are {tokens.dtype}; allowed: torch.int64, torch.int32"
        )


def find_padding(key_padding_mask: Tensor) -> str:
    """One of PADDINGS, for a mask, bool (B, N), True at pads.

    Waits for its device.
    """
    if not key_padding_mask.any():
        return "none"
    return "anywhere" if _has_pad_before_token(key_padding_mask) else "right"


def mask_of_pads(pads: Tensor, padding: str | None) -> Tensor | None:
    """``pads``, or None if there are none.

    Args:
        pads: bool (B, N), True at pads.
        padding: their places, if known. None: inspect them, unless the model is being
            compiled.

    Raises:
        ValueError: ``padding`` is not one of PADDINGS.
    """
    if padding is not None and padding not in PADDINGS:
        raise ValueError(f"padding={padding!r}; allowed: {', '.join(PADDINGS)}")
    if padding is None:
        if torch.compiler.is_compiling():
            return pads
        return pads if pads.any() else None
    return None if padding == "none" else pads


def tokens_first(key_padding_mask: Tensor | None, padding: str | None) -> Tensor | None:
    """int64 (B, N): indices of each row's tokens in their order, then of its pads.

    Args:
        key_padding_mask: bool (B, N), True at pads, or None.
        padding: see ``mask_of_pads``.

    Returns:
        None if they have this order already.
    """
    if key_padding_mask is None:
        return None
    if padding is None and not torch.compiler.is_compiling():
        moves = bool(_has_pad_before_token(key_padding_mask))
    else:
        moves = padding != "right"
    if not moves:
        return None
    return key_padding_mask.to(torch.uint8).argsort(dim=1, stable=True)


def _has_pad_before_token(key_padding_mask: Tensor) -> Tensor:
    return (key_padding_mask[:, :-1] & ~key_padding_mask[:, 1:]).any()
