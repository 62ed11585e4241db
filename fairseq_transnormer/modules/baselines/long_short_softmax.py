"""Transformer-LS's softmax over two kinds of keys, and how the second kind is made."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...ops.slots import pad_slots
from ..embeddings import SinusoidalPositions
from ..norms import LayerNorm


class JointSoftmax(nn.Module):
    """One softmax over the keys of a window and compressed keys, with DualLN.

    All methods compute in the dtype of their inputs.

    Args:
        embed_dim, num_heads, causal: see ``Attention``.
        window, chunk_size: see ``LongShortOptions``.
        rank: compressed keys a chunk and head.
        dropout: probability with which a weight is dropped in training.
        norm_eps: of the two norms.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        causal: bool,
        window: int,
        chunk_size: int,
        rank: int,
        dropout: float,
        norm_eps: float,
    ):
        super().__init__()
        self.causal, self.num_heads, self.rank = causal, num_heads, rank
        self.window, self.chunk_size, self.dropout = window, chunk_size, dropout
        self.head_dim = embed_dim // num_heads
        self.window_norm = LayerNorm(embed_dim, norm_eps)
        self.long_norm = LayerNorm(embed_dim, norm_eps)
        if causal:
            self.sinusoids = SinusoidalPositions(embed_dim, padding_idx=-1)
            self.distance_proj = nn.Linear(embed_dim, embed_dim)
            self.chunk_distance_proj = nn.Linear(embed_dim, embed_dim)
            self.content_bias = nn.Parameter(torch.zeros(num_heads, self.head_dim))
            self.position_bias = nn.Parameter(torch.zeros(num_heads, self.head_dim))

    def normed(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of windows, (B, M, H, D) each, after their norm."""
        return self._normed(self.window_norm, key, value)

    def compress(self, key, value, score, hidden, size) -> tuple[Tensor, Tensor]:
        """Chunks of ``size`` tokens to (B, chunks * rank, H, D) each, normed."""
        key, value, score = (
            pad_slots(x, size).unflatten(1, (-1, size)) for x in (key, value, score)
        )
        if hidden is not None:
            hidden = pad_slots(hidden, size).view(*key.shape[:3], 1, 1)
            score = score.masked_fill(hidden, torch.finfo(score.dtype).min)
        weights = score.softmax(2)
        if hidden is not None:
            weights = weights.masked_fill(hidden, 0)
        weights = weights.permute(0, 1, 3, 4, 2)  # B, G, H, rank, size
        return self._normed(
            self.long_norm,
            *(
                (weights @ x.transpose(2, 3)).transpose(2, 3).flatten(1, 2)
                for x in (key, value)
            ),
        )

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        hidden: Tensor,
        long_key: Tensor,
        long_value: Tensor,
        distance: Tensor | None = None,
        chunks: Tensor | None = None,
    ) -> Tensor:
        """Attention of queries in tiles.

        Args:
            query: (B, T, Q, H, D), T tiles of Q queries.
            key, value: those of the tiles, (B, T, K, H, D).
            hidden: (B, T, Q or 1, K), True where a key of a tile is not seen.
            long_key, long_value: (B, L, H, D), for all tiles.
            distance: i - j within the tiles, (B or 1, T or 1, Q, K); causal only.
            chunks: number of the chunk of each query, (B or 1, T, Q); causal only.

        Returns:
            (B, T Q, H D).
        """
        tiles = query.shape[1:3]
        # tiles: B, H, T, Q or K, D; all queries of a row together: B, H, T Q, D
        query, key, value = (x.permute(0, 3, 1, 2, 4) for x in (query, key, value))
        long_key, long_value = long_key.transpose(1, 2), long_value.transpose(1, 2)
        scale, content = self.head_dim**-0.5, query
        if self.causal:
            content_bias, position_bias = (
                scale * bias.to(query.dtype)[:, None, None]
                for bias in (self.content_bias, self.position_bias)
            )
            content, query = query + content_bias, query + position_bias
        scores = content @ key.transpose(-1, -2)
        # in this order, since torch.compile mistakes the layout of a layer norm's
        # gradient where it arrives transposed
        long_scores = long_key @ content.flatten(2, 3).transpose(-1, -2)
        long_scores = long_scores.transpose(-1, -2).unflatten(2, tiles)
        hidden = hidden.unsqueeze(1).expand_as(scores)
        if self.causal:
            scores = scores + self._position_scores(
                query, self.distance_proj, self.window, 1, distance
            )
            count = long_key.shape[2] // self.rank
            known = torch.arange(count, device=key.device)
            chunk_distance = (chunks[..., None] - known).repeat_interleave(self.rank, 3)
            # a query may stand one chunk after the last that is compressed
            long_scores = long_scores + self._position_scores(
                query,
                self.chunk_distance_proj,
                count + 1,
                self.chunk_size,
                chunk_distance,
            )
            future = (chunk_distance <= 0).unsqueeze(1).expand_as(long_scores)
            hidden = torch.cat((hidden, future), -1)
        else:
            hidden = F.pad(hidden, (0, long_scores.shape[-1]))
        scores = torch.cat((scores, long_scores), -1)
        scores = scores.masked_fill(hidden, torch.finfo(scores.dtype).min)
        weights = scores.softmax(-1).masked_fill(hidden, 0)
        weights = F.dropout(weights, self.dropout, self.training)
        near, far = weights.split((key.shape[3], long_key.shape[2]), -1)
        output = (near @ value).flatten(2, 3) + far.flatten(2, 3) @ long_value
        return output.transpose(1, 2).flatten(2)

    def _position_scores(self, query, projection, count, step, distance) -> Tensor:
        """q . r at ``distance`` (B or 1, T or 1, Q, K): (B, H, T, Q, K).

        r stands for ``count`` distances, multiples of ``step``; others get any.
        """
        known = torch.arange(count, device=query.device) * step
        sinusoids = self.sinusoids(known).to(query.dtype)
        weight, bias = (x.to(query.dtype) for x in (projection.weight, projection.bias))
        r = F.linear(sinusoids, weight, bias).unflatten(-1, (self.num_heads, -1))
        # (H, D, distances) for queries of all tiles
        scores = query.flatten(2, 3) @ r.permute(1, 2, 0)
        index = distance.clamp(0, count - 1).unsqueeze(1)
        scores = scores.unflatten(2, query.shape[2:4])
        return scores.gather(-1, index.expand(*scores.shape[:-1], -1))

    def _normed(self, norm, key, value) -> tuple[Tensor, Tensor]:
        """Both (B, M, H, D) normed over heads and widths."""
        return tuple(
            norm(x.flatten(2)).unflatten(2, (self.num_heads, -1)) for x in (key, value)
        )
