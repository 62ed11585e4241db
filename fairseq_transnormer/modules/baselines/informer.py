"""Informer: ProbSparse attention (Zhou et al., 2021)."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ...ops import softmax_attention
from ...ops.backend import accumulation_dtype, autocast_disabled
from ...ops.inputs import real_lengths
from ..attention import EncoderAttention, LayerConfig
from ..options import described
from ..registry import register_attention
from .segments import draw_integers, one_of_each, segments, take

# an upper limit of factor * log(length) for any length that fits in memory
DRAWN = 4096


@dataclass
class InformerOptions:
    """What can be configured of Informer alone."""

    informer_factor: int = described(
        16,
        "Informer: c; c ceil(ln n) queries of a row attend, chosen by as many keys",
        at_least=1,
    )


@register_attention("informer", InformerOptions)
class InformerAttention(EncoderAttention):
    """softmax attention for the u queries of the largest M, the mean value for others.

    M(q) = max_j q . k_j - mean_j q . k_j over u sampled keys; u = min(n, c ceil(ln n))
    for a row of n tokens (at least 1). Time and memory grow as n log n. The sample has
    one key from each of u segments of equal length. The choice within a segment is
    drawn when the module is built and saved with it.

    Args:
        config, causal: see ``EncoderAttention``; reads informer_factor and
            attention_dropout.
    """

    drawn: Tensor

    def __init__(self, config: LayerConfig, *, causal: bool):
        super().__init__(config, causal=causal)
        self.factor = config.informer_factor
        self.register_buffer("drawn", draw_integers(DRAWN))
        self.initialise()

    def encode(
        self, query: Tensor, key: Tensor, value: Tensor, pads: Tensor | None
    ) -> Tensor:
        length = query.shape[1]
        lengths = real_lengths(query, pads)
        slots = max(1, min(length, self.factor * math.ceil(math.log(length))))
        # in double precision, so that no device rounds across an integer
        counts = self.factor * lengths.clamp(min=1).double().log().ceil().long()
        counts = counts.minimum(lengths).clamp(min=1)
        chosen = self._chosen(query.detach(), key.detach(), lengths, counts, slots)
        chosen = chosen[..., None].expand(-1, -1, -1, self.head_dim)
        attended = softmax_attention(
            query.transpose(1, 2).gather(2, chosen).transpose(1, 2),
            key,
            value,
            causal=False,
            dropout_p=self.dropout_p,
            key_padding_mask=pads,
        )[0].transpose(1, 2)
        mean = value.sum(1, dtype=accumulation_dtype(value.dtype))
        mean = mean / lengths.clamp(min=1)[:, None, None]
        mean = mean.to(attended.dtype)[:, :, None]
        idle = torch.arange(slots, device=query.device) >= counts[:, None]
        attended = torch.where(idle[:, None, :, None], mean, attended)
        output = mean.expand(-1, -1, length, -1).scatter(2, chosen, attended)
        return output.transpose(1, 2)

    def _chosen(
        self, query: Tensor, key: Tensor, lengths: Tensor, counts: Tensor, slots: int
    ) -> Tensor:
        """Queries by falling M, (B, H, slots) int64; some may be idle."""
        drawn = self.drawn[torch.arange(slots, device=query.device) % DRAWN]
        sample, missing = one_of_each(*segments(lengths, counts, slots), drawn)
        missing = missing[:, None, None]
        with autocast_disabled(query):
            dtype = accumulation_dtype(query.dtype)
            query, key = query.to(dtype), take(key, sample).to(dtype)
            scores = torch.einsum("bnhd,buhd->bhnu", query, key)
            largest = scores.masked_fill(missing, -torch.inf).amax(-1)
            mean = scores.masked_fill(missing, 0).sum(-1) / counts[:, None, None]
        outside = torch.arange(query.shape[1], device=query.device) >= lengths[:, None]
        measure = (largest - mean).masked_fill(outside[:, None], -torch.inf)
        # stable: the first of equal ones, for any width of the batch
        return measure.sort(dim=-1, descending=True, stable=True).indices[..., :slots]
