"""The gated attention unit of FLASH-quad and FLASH (Hua et al., 2022)."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ... import ops
from ...ops.backend import accumulation_dtype, autocast_disabled
from ...ops.inputs import check_use_of_states
from ...ops.states import State
from ..attention import LayerConfig, positions_after
from ..norms import NormType, build_norm
from ..options import Choice, described

ROPE_BASE = 10000.0


class FarBias(Choice, values=("clip", "rope")):
    """Relative biases of distances beyond ``flash_bias_positions``."""


@dataclass
class GatedAttentionUnitOptions:
    """What can be configured of FLASH-quad and FLASH."""

    flash_norm: NormType = described(
        NormType("scale_norm"), "FLASH: norm before each layer"
    )
    flash_expansion: int = described(
        2, "FLASH: width e of gate and values, over embed_dim", at_least=1
    )
    flash_key_dim: int = described(
        128, "FLASH: width s of queries and keys; even", at_least=2
    )
    flash_bias_positions: int = described(
        512,
        "FLASH: number of distances that have their own relative bias, including 0",
        at_least=1,
    )
    flash_far_bias: FarBias = described(
        FarBias("clip"),
        "FLASH: bias of larger distances; that of the largest, or rope(a) . rope(b)",
    )


class RelativeBias(nn.Module):
    """b_{i - j}: a number for each distance.

    Args:
        positions: distances below it have one number each: 2 * positions - 1.
        width: of the two vectors a and b.
        far: larger distances use the last number ("clip"), or (R_i a) . (R_j b) with
            the rotations of rope ("rope"), as in the paper's code. With "clip" a and b
            are untrained parameters, which the paper's counts include.
    """

    def __init__(self, positions: int, width: int, far: str = "clip"):
        super().__init__()
        self.far = FarBias(far).value
        self.table = nn.Parameter(torch.empty(2 * positions - 1))
        trained = self.far == "rope"
        self.a = nn.Parameter(torch.empty(width), trained)
        self.b = nn.Parameter(torch.empty(width), trained)
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=0.02)

    def forward(self, length: int, dtype: torch.dtype) -> Tensor:
        """Of the distances 1 - length, ..., length - 1: dtype (2 * length - 1,)."""
        last = len(self.table) // 2
        known = torch.arange(1 - length, length, device=self.table.device)
        near = self.table.to(dtype)[known.clamp(-last, last) + last]
        if self.far == "clip":
            return near
        return torch.where(known.abs() <= last, near, self._rotated(known, dtype))

    def _rotated(self, distance: Tensor, dtype: torch.dtype) -> Tensor:
        (a, c), (b, d) = (
            x.to(dtype).unflatten(0, (-1, 2)).unbind(1) for x in (self.a, self.b)
        )
        angles = distance.to(dtype)[:, None] * _frequencies(len(self.a), distance)
        return angles.cos() @ (a * b + c * d) + angles.sin() @ (a * d - c * b)


def bias_matrix(biases: Tensor) -> Tensor:
    """(2 n - 1,) of the distances 1 - n, ..., n - 1 -> (n, n), b_{i - j} at [i, j].

    A lookup by distance would need n^2 int64 indices, and a sum over as many terms in
    the backward pass.
    """
    return biases.unfold(0, (len(biases) + 1) // 2, 1).flip(1)


class GatedAttentionUnit(nn.Module, ABC):
    """out = x + W_o (u * attend(...)): attention and channel mixing in one layer.

    y = norm(x); u = silu(W_u y) and v = silu(W_v y), of width e; z = silu(W_z y), of
    width s. Each pair of queries and keys is z with its own gain and offset, rotated by
    rope. There is one head, no softmax and no feed-forward network. Rope is used for
    any ``relative_position``.

    Args:
        config: widths, norm, dropout and the options above.
        causal: whether token i sees tokens j <= i only.

    Raises:
        ValueError: flash_key_dim is odd.
    """

    constant_state: bool
    # of queries and keys
    pairs: int

    def __init__(self, config: LayerConfig, *, causal: bool):
        super().__init__()
        width, key_dim = config.embed_dim, config.flash_key_dim
        if key_dim % 2:
            raise ValueError(
                f"flash_key_dim={key_dim}; allowed: even widths, since rope turns pairs"
            )
        inner = config.flash_expansion * width
        self.causal, self.backend = causal, config.backend
        self.dropout, self.attention_dropout = config.dropout, config.attention_dropout
        self.norm = build_norm(
            config.flash_norm, width, config.norm_eps, config.backend
        )
        self.gate_proj = nn.Linear(width, inner)
        self.value_proj = nn.Linear(width, inner)
        self.base_proj = nn.Linear(width, key_dim)
        self.out_proj = nn.Linear(inner, width)
        self.gain = nn.Parameter(torch.empty(2 * self.pairs, key_dim))
        self.offset = nn.Parameter(torch.zeros(2 * self.pairs, key_dim))
        nn.init.normal_(self.gain, std=0.02)
        for module in self.children():
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=0.02)
                nn.init.zeros_(module.bias)
        self.relative_bias = RelativeBias(
            config.flash_bias_positions, key_dim, config.flash_far_bias
        )

    @abstractmethod
    def attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None,
        state: Any,
        return_state: bool,
    ) -> tuple[Tensor, State | None]:
        """(B, N, pairs, s) twice and (B, N, e) -> (B, N, e); in float32 (float64)."""

    def forward(
        self,
        x: Tensor,
        key_padding_mask: Tensor | None = None,
        state: State | None = None,
        return_state: bool = False,
    ) -> tuple[Tensor, State | None]:
        """x (B, N, embed_dim) -> the same shape; arguments as in ``Attention``."""
        check_use_of_states(self.causal, state, return_state)
        y = self.norm(x)
        gate, value = self.gate_proj(y), F.silu(self.value_proj(y))
        heads = F.silu(self.base_proj(y)).unsqueeze(2) * self.gain + self.offset
        query, key = ops.lrpe(
            heads[:, :, : self.pairs],
            heads[:, :, self.pairs :],
            _frequencies(heads.shape[-1], x),
            torch.zeros(heads.shape[-1], device=x.device),  # no reflection
            positions_after(state, x),
            backend=self.backend,
        )
        with autocast_disabled(x):
            dtype = accumulation_dtype(x.dtype)
            query, key, value = (t.to(dtype) for t in (query, key, value))
            if key_padding_mask is not None:
                pads = key_padding_mask[:, :, None]
                value = value.masked_fill(pads, 0)
                key = key.masked_fill(pads[..., None], 0)
            output, state = self.attend(
                query, key, value, key_padding_mask, state, return_state
            )
        output = ops.gated_silu(gate, output.to(gate.dtype), backend=self.backend)
        output = F.dropout(self.out_proj(output), self.dropout, self.training)
        return x + output, state

    def weights(self, scores: Tensor, hidden: Tensor | None) -> Tensor:
        """relu(scores)^2, 0 where ``hidden``, with dropout in training."""
        weights = scores.relu().square()
        if hidden is not None:
            weights = weights.masked_fill(hidden, 0)
        return F.dropout(weights, self.attention_dropout, self.training)


def later_keys(length: int, device: torch.device) -> Tensor:
    """bool (length, length): whether key j comes after query i."""
    return torch.ones(length, length, dtype=torch.bool, device=device).triu(1)


def _frequencies(width: int, like: Tensor) -> Tensor:
    """Rope's radians per position of each pair, (width / 2,), in float32."""
    pairs = torch.arange(0, width, 2, dtype=torch.float32, device=like.device)
    return ROPE_BASE ** -(pairs / width)
