"""The channel mixers: GLU (section 4.3) and the plain feed-forward network."""

from typing import TYPE_CHECKING

import torch.nn.functional as F
from torch import Tensor, nn

from ..ops import gated_linear, gated_linear_unit, gated_silu
from .options import ACTIVATIONS, Activation, Choice
from .plain_modules import all_plain, are_one


class GLU(nn.Module):
    """W3 (act(W1 x) * (W2 x)), biases on all three (Shazeer, 2020).

    Args:
        embed_dim: width of x.
        hidden_dim: width inside; the paper's int(8 / 3 embed_dim).
        activation: "silu" (the paper's Swish), "gelu" or "relu".
        dropout: on the product, in training.
        backend: see ``ops.gated_silu``.
    """

    # weight and bias of gate_proj and value_proj as one; see ``cpu_decoding``
    merged: tuple[Tensor, Tensor] | None = None

    def __init__(
        self,
        embed_dim: int,
        hidden_dim: int,
        activation: str = "silu",
        dropout: float = 0.0,
        backend: str = "auto",
    ):
        super().__init__()
        self.gate_proj = nn.Linear(embed_dim, hidden_dim)
        self.value_proj = nn.Linear(embed_dim, hidden_dim)
        self.out_proj = nn.Linear(hidden_dim, embed_dim)
        self.activation = Activation(activation).value
        self.dropout, self.backend = dropout, backend

    def forward(self, x: Tensor) -> Tensor:
        """(..., embed_dim) -> (..., embed_dim)."""
        silu, drops = self.activation == "silu", self.training and self.dropout > 0
        layers = self.gate_proj, self.value_proj, self.out_proj
        # the copy of the weights pays off if a backward pass follows
        if self.training and silu and not drops and all_plain(nn.Linear, *layers):
            parameters = (p for layer in layers for p in (layer.weight, layer.bias))
            return gated_linear_unit(x, *parameters, backend=self.backend)
        if self.merged is not None and are_one(self.merged, *layers[:2]):
            gate, value = F.linear(x, *self.merged).chunk(2, -1)
        else:
            gate, value = self.gate_proj(x), self.value_proj(x)
        if not silu:
            x = ACTIVATIONS[self.activation](gate) * value
        elif drops or not all_plain(nn.Linear, self.out_proj):
            x = gated_silu(gate, value, backend=self.backend)
        else:
            weight, bias = self.out_proj.weight, self.out_proj.bias
            return gated_linear(gate, value, weight, bias, backend=self.backend)
        return self.out_proj(F.dropout(x, self.dropout, self.training))

    if TYPE_CHECKING:
        __call__ = forward


class FFN(nn.Module):
    """W2 act(W1 x), the feed-forward network of the vanilla transformer.

    Args:
        embed_dim, hidden_dim, activation, dropout: as in ``GLU``.
    """

    def __init__(
        self,
        embed_dim: int,
        hidden_dim: int,
        activation: str = "relu",
        dropout: float = 0.0,
        backend: str = "auto",
    ):
        super().__init__()
        self.in_proj = nn.Linear(embed_dim, hidden_dim)
        self.out_proj = nn.Linear(hidden_dim, embed_dim)
        self.activation = ACTIVATIONS[Activation(activation).value]
        self.dropout = dropout

    def forward(self, x: Tensor) -> Tensor:
        """(..., embed_dim) -> (..., embed_dim)."""
        x = self.activation(self.in_proj(x))
        return self.out_proj(F.dropout(x, self.dropout, self.training))

    if TYPE_CHECKING:
        __call__ = forward


FEED_FORWARDS: dict[str, type[GLU] | type[FFN]] = {"glu": GLU, "ffn": FFN}


NO_FEED_FORWARD = "none"


class FeedForwardType(Choice, values=(*FEED_FORWARDS, NO_FEED_FORWARD)):
    """A channel mixer, or none: layers of attention alone."""
