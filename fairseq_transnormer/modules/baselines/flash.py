"""FLASH: mixed chunk attention in gated attention units (Hua et al., 2022)."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ...ops import linear_attention
from ...ops.backend import steps_in_place
from ...ops.inputs import check_state_kind, real_lengths
from ...ops.rows import append_rows, gather_rows, pad_slots
from ..attention import LayerConfig
from ..options import described
from ..registry import register_layer
from .gated_attention_unit import (
    GatedAttentionUnit,
    GatedAttentionUnitOptions,
    bias_matrix,
    later_keys,
)


@dataclass
class FlashOptions:
    """What can be configured of FLASH alone."""

    flash_chunk_size: int = described(64, "FLASH: positions in a chunk", at_least=1)


class FlashState(NamedTuple):
    """State of a causal layer after ``length`` tokens, of constant size.

    key: keys of the quadratic part in the current chunk, (B, chunk size, s). Slots from
        ``length % chunk size`` on hold nothing.
    value: (B, chunk size, e).
    chunks: sum of k v^T / chunk size over the chunks that are complete, (B, s, e).
    open_chunk: the same sum over the current chunk, (B, s, e).
    length: tokens seen, (B,), int64.
    """

    key: Tensor
    value: Tensor
    chunks: Tensor
    open_chunk: Tensor
    length: Tensor


@register_layer("flash", FlashOptions, GatedAttentionUnitOptions)
class Flash(GatedAttentionUnit):
    """out = x + W_o (u * (A v + q' sum k' v^T / c)), with chunks of c tokens.

    A = relu(q k^T / c + b_{i-j})^2 inside the chunk of token i. The sum of the linear
    part is over all chunks, or over the earlier ones if causal. Its q' and k' have
    separate gains and offsets. Time and memory are linear in the length.

    Args:
        config, causal: see ``GatedAttentionUnit``.
    """

    constant_state = True
    pairs = 2

    def __init__(self, config: LayerConfig, *, causal: bool):
        super().__init__(config, causal=causal)
        self.chunk_size = config.flash_chunk_size

    def attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None,
        state: FlashState | None,
        return_state: bool,
    ) -> tuple[Tensor, FlashState | None]:
        check_state_kind(state, FlashState)
        q, linear_q = query.unbind(2)
        k, linear_k = key.unbind(2)
        length = q.shape[1]
        if not self.causal:
            output = self._quadratic(q, k, value, key_padding_mask)[:, :length]
            return output + self._linear(linear_q, linear_k, value), None
        added = real_lengths(k, key_padding_mask)
        if state is None:
            output, state = self._chunks(
                q, k, linear_q, linear_k, value, added, None, key_padding_mask
            )
            return output[:, :length], state if return_state else None
        inputs = query, key, value, *self.relative_bias.parameters()
        in_place = steps_in_place(state, *inputs)
        if length == 1 and key_padding_mask is None and in_place:
            return self._step(q, k, linear_q, linear_k, value, state)
        size = self.chunk_size
        start = state.length % size
        slots = -(-(size - 1 + length) // size) * size
        output, state = self._chunks(
            append_rows(None, q, start, slots),
            append_rows(state.key, k, start, slots),
            append_rows(None, linear_q, start, slots),
            append_rows(None, linear_k, start, slots),
            append_rows(state.value, value, start, slots),
            start + added,
            state,
            None,
        )
        output = gather_rows(output, start, start + length, length)
        return output, state if return_state else None

    def _quadratic(
        self, q: Tensor, k: Tensor, v: Tensor, key_padding_mask: Tensor | None
    ) -> Tensor:
        """Attention inside chunks, (B, G c, e)."""
        size = self.chunk_size
        q, k, v = (pad_slots(x, size).unflatten(1, (-1, size)) for x in (q, k, v))
        bias = bias_matrix(self.relative_bias(size, q.dtype))
        hidden = later_keys(size, q.device) if self.causal else None
        if key_padding_mask is not None:
            pads = pad_slots(key_padding_mask, size).unflatten(1, (-1, 1, size))
            hidden = pads if hidden is None else hidden | pads
        # keys after the end have values of zero
        scores = q @ k.transpose(-1, -2) / size + bias
        return (self.weights(scores, hidden) @ v).flatten(1, 2)

    def _linear(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Attention over all chunks; pads have keys of zero."""
        q, k, v = q.unsqueeze(2), k.unsqueeze(2) / self.chunk_size, v.unsqueeze(2)
        output, _ = linear_attention(q, k, v, causal=False, backend=self.backend)
        return output.squeeze(2)

    def _chunks(
        self,
        q: Tensor,
        k: Tensor,
        linear_q: Tensor,
        linear_k: Tensor,
        value: Tensor,
        end: Tensor,
        state: FlashState | None,
        key_padding_mask: Tensor | None,
    ) -> tuple[Tensor, FlashState]:
        """Causal, chunks in parallel; each row's tokens precede slot ``end``.

        Returns the output, (B, G c, e), and the state after the last token.
        """
        size = self.chunk_size
        output = self._quadratic(q, k, value, key_padding_mask)
        linear_q, linear_k, values = (
            pad_slots(x, size).unflatten(1, (-1, size))
            for x in (linear_q, linear_k, value)
        )
        sums = linear_k.transpose(-1, -2) @ values / size  # B, G, s, e
        if state is None:
            first = torch.zeros_like(sums[:, :1])
        else:
            first = state.chunks.to(sums.dtype).unsqueeze(1)
            sums = torch.cat(
                (sums[:, :1] + state.open_chunk.unsqueeze(1), sums[:, 1:]), 1
            )
        before = torch.cat((first, sums), 1).cumsum(1)
        output = output + (linear_q @ before[:, :-1]).flatten(1, 2)
        complete = end // size
        rows = torch.arange(len(end), device=end.device)
        seen = 0 if state is None else state.length - state.length % size
        return output, FlashState(
            gather_rows(k, complete * size, end, size),
            gather_rows(value, complete * size, end, size),
            before[rows, complete],
            F.pad(sums, (0, 0, 0, 0, 0, 1))[rows, complete],
            seen + end,
        )

    def _step(
        self,
        q: Tensor,
        k: Tensor,
        linear_q: Tensor,
        linear_k: Tensor,
        value: Tensor,
        state: FlashState,
    ) -> tuple[Tensor, FlashState]:
        """One token, without gradients; the state is updated in place."""
        size = self.chunk_size
        slot = state.length % size
        rows = torch.arange(len(slot), device=slot.device)
        state.key[rows, slot] = k[:, 0]
        state.value[rows, slot] = value[:, 0]
        distance = slot[:, None] - torch.arange(size, device=slot.device)
        bias = self.relative_bias(size, q.dtype)[distance + size - 1]
        scores = q @ state.key.transpose(1, 2) / size + bias[:, None]
        weights = self.weights(scores, (distance < 0)[:, None])
        output = weights @ state.value + linear_q @ state.chunks
        state.open_chunk.add_(linear_k.transpose(1, 2) @ value, alpha=1 / size)
        length = state.length + 1
        filled = (length % size == 0)[:, None, None]
        state.chunks.add_(state.open_chunk * filled)
        state.open_chunk.masked_fill_(filled, 0)
        return output, state._replace(length=length)

    def mixing_flops(self, length: int) -> float:
        """Operations a token besides the projections; see ``model_flops``."""
        keys, values = self.base_proj.out_features, self.value_proj.out_features
        return 2 * self.chunk_size * (keys + values) + 4 * keys * values
