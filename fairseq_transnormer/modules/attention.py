"""The base of the attentions: projections, heads, positions.

A new attention is one file in ``baselines/``: a subclass of ``Attention`` with
``@register_attention``. Its name is then valid in ``attention_types``. A line in
``systems.py`` registers models of it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..ops.inputs import check_use_of_states
from ..ops.states import State
from .lrpe import LRPE
from .plain_modules import are_one
from .registry import token_mixers

if TYPE_CHECKING:
    from .config import LayerConfig as LayerConfig
else:  # which imports the attentions
    LayerConfig = Any

QKV_GAIN_OF_FAIRSEQ = 1 / math.sqrt(2)


class Attention(nn.Module, ABC):
    """Multi-head self-attention: q, k, v projections, ``attend``, output projection.

    Args:
        config: its fields embed_dim, num_heads, attention_dropout and backend are read,
            and those that a subclass names.
        causal: whether token i sees tokens j <= i only.

    Raises:
        ValueError: num_heads does not divide embed_dim; causal, where
            ``supports_causal`` is False.
    """

    # whether a causal layer can use it
    supports_causal = True
    # whether the state of a causal layer has constant size
    constant_state = True
    # tokens of the longest input, or None
    longest_input: int | None = None
    # weight and bias of q_proj, k_proj and v_proj as one; see ``cpu_decoding``
    merged: tuple[Tensor, Tensor] | None = None

    def __init__(self, config: LayerConfig, *, causal: bool):
        super().__init__()
        embed_dim, num_heads = config.embed_dim, config.num_heads
        if causal and not self.supports_causal:
            raise ValueError(
                f"{type(self).__name__} in a causal model: it is for encoders only; "
                f"attention_types of a causal model: "
                f"{', '.join(token_mixers(causal=True))}"
            )
        if embed_dim % num_heads:
            raise ValueError(
                f"num_heads={num_heads}; allowed: divisors of embed_dim={embed_dim}"
            )
        self.embed_dim, self.num_heads, self.causal = embed_dim, num_heads, causal
        self.head_dim = embed_dim // num_heads
        self.dropout, self.backend = config.attention_dropout, config.backend
        self.q_proj = nn.Linear(embed_dim, embed_dim)
        self.k_proj = nn.Linear(embed_dim, embed_dim)
        self.v_proj = nn.Linear(embed_dim, embed_dim)
        self.out_proj = nn.Linear(embed_dim, embed_dim)

    @property
    def dropout_p(self) -> float:
        """Probability with which an attention weight is dropped; 0 in evaluation."""
        return self.dropout if self.training else 0.0

    @abstractmethod
    def attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        positions: Tensor,
        key_padding_mask: Tensor | None,
        state: Any,
        return_state: bool,
    ) -> tuple[Tensor, State | None]:
        """(B, N, H, D) each -> (B, N, embed_dim) before the output projection.

        state: from an earlier call, or None.
        """

    def mixing_flops(self, length: int) -> float | None:
        """Operations per token in a forward pass, without the projections.

        A product of matrices counts two operations per multiplication; nothing else
        counts.

        Args:
            length: tokens of a sequence.

        Returns:
            the number, or None if it is unknown.
        """
        return None

    def forward(
        self,
        x: Tensor,
        key_padding_mask: Tensor | None = None,
        state: State | None = None,
        return_state: bool = False,
    ) -> tuple[Tensor, State | None]:
        """Self-attention over x.

        Args:
            x: (B, N, embed_dim).
            key_padding_mask: bool (B, N), True at pads. Positions and blocks count from
                index 0; ``LayerStack`` moves other pads to the right.
            state: result of an earlier call with ``return_state`` (causal only); it is
                consumed.
            return_state: also return the state after the last token (causal only). With
                either state pads must stand on the right.

        Returns:
            (B, N, embed_dim), and the new state with ``return_state``, else None.

        Raises:
            ValueError: states for an attention that is not causal.
        """
        check_use_of_states(self.causal, state, return_state)
        positions = positions_after(state, x)
        inputs = self.inputs(x, positions)
        # a subclass may project more than three
        attend: Callable[..., tuple[Tensor, State | None]] = self.attend
        output, new_state = attend(
            *inputs, positions, key_padding_mask, state, return_state
        )
        # an attention may return float32 if float16 would overflow
        return self.out_proj(output.to(inputs[0].dtype)), new_state

    if TYPE_CHECKING:
        __call__ = forward

    def inputs(self, x: Tensor, positions: Tensor) -> tuple[Tensor, ...]:
        """The first arguments of ``attend``: query, key, value, (B, N, H, D) each."""
        return self.project(x)

    def project(self, x: Tensor) -> tuple[Tensor, ...]:
        """Query, key and value, (B, N, H, D) each."""
        heads = (*x.shape[:2], self.num_heads, self.head_dim)
        layers = self.q_proj, self.k_proj, self.v_proj
        if self.merged is not None and are_one(self.merged, *layers):
            return F.linear(x, *self.merged).unflatten(-1, (3, *heads[2:])).unbind(2)
        return tuple(projection(x).view(heads) for projection in layers)

    def encoded(
        self, x: Tensor, positions: Tensor, lrpe: LRPE, feature_map: str = "identity"
    ) -> tuple[Tensor, ...]:
        """``project``, with query and key encoded after their feature map."""
        query, key, value = self.project(x)
        return *lrpe(query, key, positions, feature_map), value

    def initialise(self, qkv_gain: float = QKV_GAIN_OF_FAIRSEQ) -> None:
        """Xavier-uniform projections; zero bias of the output projection."""
        for projection in (self.q_proj, self.k_proj, self.v_proj):
            nn.init.xavier_uniform_(projection.weight, gain=qkv_gain)
        nn.init.xavier_uniform_(self.out_proj.weight)
        nn.init.zeros_(self.out_proj.bias)


def positions_after(state: State | None, x: Tensor) -> Tensor:
    """Positions of x (B, N, ...): int64 (N,), or (B, N) after a state."""
    if state is None:
        return torch.arange(x.shape[1], device=x.device)
    start = state.length[:, None]
    if x.shape[1] == 1:
        return start
    return start + torch.arange(x.shape[1], device=x.device)


class EncoderAttention(Attention):
    """Bidirectional self-attention without states.

    A subclass computes ``encode``. ``LayerStack`` puts the tokens of a row before its
    pads. The result of a row may depend on the number of its tokens, but never on the
    width of the batch.

    Args:
        config, causal: see ``Attention``.

    Raises:
        ValueError: causal; (in forward) a state is given or requested.
    """

    supports_causal = False

    @abstractmethod
    def encode(
        self, query: Tensor, key: Tensor, value: Tensor, pads: Tensor | None
    ) -> Tensor:
        """(B, N, H, D) each, zero at pads, and bool (B, N) -> (B, N, H, D)."""

    def attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        positions: Tensor,
        key_padding_mask: Tensor | None,
        state: Any,
        return_state: bool,
    ) -> tuple[Tensor, State | None]:
        if key_padding_mask is not None:
            pads = key_padding_mask[:, :, None, None]
            query, key, value = (x.masked_fill(pads, 0) for x in (query, key, value))
        return self.encode(query, key, value, key_padding_mask).flatten(2), None
