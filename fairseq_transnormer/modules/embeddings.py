"""Absolute positions, numbered from 0 at the first real token of a row."""

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn


def token_positions(key_padding_mask: Tensor | None, tokens: Tensor) -> Tensor:
    """Position of each token among the real tokens of its row.

    Args:
        key_padding_mask: bool (B, N), True at pads, or None.
        tokens: (B, N), for length and device.

    Returns:
        int64 (N,) without pads and (B, N) with them. A pad has the position of the
        token before it.
    """
    if key_padding_mask is None:
        return torch.arange(tokens.shape[1], device=tokens.device)
    return ((~key_padding_mask).cumsum(1) - 1).clamp(min=0)


class SinusoidalPositions(nn.Module):
    """sin and cos of position / 10000^(i / (d / 2 - 1)), as fairseq computes them.

    They are computed on the fly in float32: there is no table, so no maximum length.

    Args:
        embed_dim: width d, 4 or more.
        padding_idx: positions are numbered from padding_idx + 1, as in fairseq; None:
            from 0.
    """

    def __init__(self, embed_dim: int, padding_idx: int | None = None):
        super().__init__()
        if embed_dim < 4:
            raise ValueError(
                f"embed_dim={embed_dim}; allowed with sinusoidal positions: 4 or more"
            )
        self.embed_dim = embed_dim
        self.offset = 0 if padding_idx is None else padding_idx + 1

    def forward(self, positions: Tensor) -> Tensor:
        """int64 (...) -> float32 (..., embed_dim)."""
        half = self.embed_dim // 2
        index = torch.arange(half, device=positions.device, dtype=torch.float32)
        frequencies = torch.exp(index * (-math.log(10000) / (half - 1)))
        angles = (positions + self.offset).float()[..., None] * frequencies
        encoded = torch.cat((angles.sin(), angles.cos()), dim=-1)
        if self.embed_dim % 2:
            encoded = nn.functional.pad(encoded, (0, 1))
        return encoded

    if TYPE_CHECKING:
        __call__ = forward


class LearnedPositions(nn.Embedding):
    """A learned vector for each position.

    Args:
        max_positions: longest input.
        embed_dim: width d.
        padding_idx: as in RoBERTa, rows 0 ... padding_idx belong to no position; None:
            each row belongs to one.

    Raises:
        ValueError: (in forward) more than max_positions positions.
    """

    def __init__(
        self, max_positions: int, embed_dim: int, padding_idx: int | None = None
    ):
        offset = 0 if padding_idx is None else padding_idx + 1
        super().__init__(max_positions + offset, embed_dim, padding_idx)
        self.max_positions, self.offset = max_positions, offset

    def forward(self, positions: Tensor) -> Tensor:
        """int64 (...) -> (..., embed_dim)."""
        if positions.shape[-1] > self.max_positions:
            raise ValueError(
                f"input of {positions.shape[-1]} tokens; allowed: up to "
                f"max_positions={self.max_positions}"
            )
        return super().forward(positions + self.offset)

    if TYPE_CHECKING:
        __call__ = forward


def build_positions(
    config: Any, padding_idx: int | None
) -> LearnedPositions | SinusoidalPositions | None:
    """The absolute positions of a model, or None for positional_embedding "none"."""
    if config.positional_embedding == "learned":
        return LearnedPositions(config.max_positions, config.embed_dim, padding_idx)
    if config.positional_embedding == "sinusoidal":
        return SinusoidalPositions(config.embed_dim, padding_idx)
    return None
