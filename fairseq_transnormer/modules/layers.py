"""One layer, and the stack of layers that both models share."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ..ops import dropout_add, dropout_add_norm, norm_with_residual, reorder_state
from ..ops.states import State
from .config import LayerConfig
from .cuda_graphs import GraphedLayers
from .feed_forward import FEED_FORWARDS, NO_FEED_FORWARD
from .norms import SimpleRMSNorm, build_norm
from .options import check_fields
from .padding import tokens_first
from .plain_modules import all_plain
from .registry import ATTENTIONS, LAYERS, parse_attention_types


class TransNormerLayer(nn.Module):
    """Token mixer and channel mixer, each with a residual connection.

    Pre-norm: x + dropout(part(norm(x))). Post-norm: norm(x + dropout(part(x))).
    With ``ffn_type`` "none" there is no channel mixer.

    Args:
        config: widths, norms, channel mixer and dropout.
        attention: the token mixer, called as an ``Attention``.
    """

    def __init__(self, config: LayerConfig, attention: nn.Module):
        super().__init__()
        self.attention = attention
        self.attention_norm: Any = _norm(config)
        self.feed_forward: Any = None
        self.feed_forward_norm: Any = None
        if str(config.ffn_type) != NO_FEED_FORWARD:
            self.feed_forward = FEED_FORWARDS[str(config.ffn_type)](
                config.embed_dim,
                config.ffn_dim,
                config.ffn_activation,
                config.activation_dropout,
                config.backend,
            )
            self.feed_forward_norm = _norm(config)
        self.pre_norm = config.norm_position == "pre"
        self.dropout = config.dropout

    def forward(
        self,
        x: Tensor,
        key_padding_mask: Tensor | None = None,
        state: State | None = None,
        return_state: bool = False,
    ) -> tuple[Tensor, State | None]:
        """x (B, N, embed_dim) -> the same shape; arguments as in ``Attention``."""
        norms = self.attention_norm, self.feed_forward_norm
        if self.pre_norm and all_plain(SimpleRMSNorm, *norms):
            return self._one_norm_a_sum(x, key_padding_mask, state, return_state)
        y = self.attention_norm(x) if self.pre_norm else x
        y, state = self.attention(y, key_padding_mask, state, return_state)
        x = self._add(x, y, self.attention_norm)
        if self.feed_forward is not None:
            y = self.feed_forward_norm(x) if self.pre_norm else x
            x = self._add(x, self.feed_forward(y), self.feed_forward_norm)
        return x, state

    if TYPE_CHECKING:
        __call__ = forward

    def _one_norm_a_sum(
        self,
        x: Tensor,
        key_padding_mask: Tensor | None,
        state: State | None,
        return_state: bool,
    ) -> tuple[Tensor, State | None]:
        """``forward`` of a pre-norm layer, each sum together with the norm after it."""
        dropout_p = self.dropout if self.training else 0.0
        norm = self.attention_norm
        x, y = norm_with_residual(x, eps=norm.eps, backend=norm.backend)
        y, state = self.attention(y, key_padding_mask, state, return_state)
        norm = self.feed_forward_norm
        x, y = dropout_add_norm(
            x, y, dropout_p=dropout_p, eps=norm.eps, backend=norm.backend
        )
        y = self.feed_forward(y)
        return dropout_add(x, y, dropout_p=dropout_p, backend=norm.backend), state

    def _add(self, x: Tensor, y: Tensor, norm: nn.Module) -> Tensor:
        x = x + F.dropout(y, self.dropout, self.training)
        return x if self.pre_norm else norm(x)


def _norm(config: LayerConfig) -> nn.Module:
    """A norm around or after the layers."""
    return build_norm(
        config.norm_type, config.embed_dim, config.norm_eps, config.backend
    )


def build_layer(name: str, config: LayerConfig, *, causal: bool) -> nn.Module:
    """The layer ``name``, or a ``TransNormerLayer`` with the attention ``name``."""
    if name in LAYERS:
        return LAYERS[name](config, causal=causal)
    return TransNormerLayer(config, ATTENTIONS[name](config, causal=causal))


class LayerStack(nn.Module):
    """The layers of ``config.attention_types``, and a final norm.

    Pre-norm layers have the final norm, unless ``config.no_final_norm``. The result of
    a row does not depend on the places of its pads. Pads in front of tokens are moved
    to the end first, so that positions and blocks count tokens.

    Args:
        config: the layers.
        causal: whether token i sees tokens j <= i only.
    """

    def __init__(self, config: LayerConfig, *, causal: bool):
        super().__init__()
        check_fields(config)  # it may have changed since its creation
        self.names = parse_attention_types(config.attention_types)
        self.layers = nn.ModuleList(
            build_layer(name, config, causal=causal) for name in self.names
        )
        self.final_norm = None
        if config.norm_position == "pre" and not config.no_final_norm:
            self.final_norm = _norm(config)
        self.checkpoint_activations = config.checkpoint_activations
        self.compile_layers = config.compile_layers
        self.graphed = GraphedLayers(self) if config.cuda_graphs else None
        if config.cuda_graphs and config.checkpoint_activations:
            raise ValueError(
                "cuda_graphs with checkpoint_activations; allowed: one of them"
            )

    @property
    def longest_input(self) -> int | None:
        """Tokens of the longest input that all layers take, or None."""
        limits = (
            getattr(each, "longest_input", None) for each in self.layers.modules()
        )
        return min((limit for limit in limits if limit is not None), default=None)

    def forward(
        self,
        x: Tensor,
        key_padding_mask: Tensor | None = None,
        states: tuple[State, ...] | None = None,
        return_states: bool = False,
        hidden_states: list[Tensor] | None = None,
        padding: str | None = None,
    ) -> tuple[Tensor, tuple[State, ...] | None]:
        """Run all layers.

        Args:
            x: (B, N, embed_dim).
            key_padding_mask: bool (B, N), True at pads, anywhere in a row.
            states: result of an earlier call, one per layer (causal only); consumed.
            return_states: also return the states after the last token (causal only).
            hidden_states: a list to which x and each layer's output are appended.
            padding: places of pads, if known ("right", "anywhere"). Otherwise the mask
                is read, and Python waits for its device.

        Returns:
            (B, N, embed_dim), undefined at pads, and the new states with
            ``return_states``, else None.

        Raises:
            ValueError: states of another number of layers or rows.
        """
        if states is not None:
            self.check_states(states, len(x))
        whole = key_padding_mask is None and states is None and hidden_states is None
        if self.graphed is not None and self.training and whole and not return_states:
            if self.graphed.can_take(x):
                return self.graphed(x), None
        return self.run(
            x, key_padding_mask, states, return_states, hidden_states, padding
        )

    def run(
        self,
        x: Tensor,
        key_padding_mask: Tensor | None = None,
        states: tuple[State, ...] | None = None,
        return_states: bool = False,
        hidden_states: list[Tensor] | None = None,
        padding: str | None = None,
    ) -> tuple[Tensor, tuple[State, ...] | None]:
        """``forward`` without a CUDA graph."""
        order = tokens_first(key_padding_mask, padding)
        if order is not None and key_padding_mask is not None:
            key_padding_mask = key_padding_mask.gather(1, order)
            x = _rows(x, order)
        back = None if order is None else order.argsort(dim=1)

        def record(x: Tensor) -> None:
            if hidden_states is not None:
                hidden_states.append(x if back is None else _rows(x, back))

        record(x)
        compiles = self.compile_layers and self.training
        new_states = []
        for i, layer in enumerate(self.layers):
            call = compiled_call(self.names[i]) if compiles else _call
            state = None if states is None else states[i]
            if self.checkpoint_activations and self.training:
                x, state = checkpoint(
                    _call_with_copy,
                    call,
                    layer,
                    x,
                    key_padding_mask,
                    state,
                    return_states,
                    use_reentrant=False,
                )
            else:
                x, state = call(layer, x, key_padding_mask, state, return_states)
            new_states.append(state)
            record(x)
        if self.final_norm is not None:
            x = self.final_norm(x)
        if back is not None:
            x = _rows(x, back)
        return x, tuple(new_states) if return_states else None

    def check_states(self, states: tuple[State, ...], batch: int) -> None:
        """Raise ValueError unless they are of these layers and of ``batch`` rows."""
        if len(states) != len(self.layers):
            raise ValueError(
                f"states of {len(states)} layers; allowed: {len(self.layers)}"
            )
        rows = {len(state.length) for state in states}
        if rows - {batch}:
            raise ValueError(
                f"states of {', '.join(map(str, sorted(rows)))} rows; allowed: "
                f"{batch}, the input's"
            )

    if TYPE_CHECKING:
        __call__ = forward


def _call(layer: nn.Module, *arguments: Any) -> Any:
    return layer(*arguments)


def _call_with_copy(
    call: Callable[..., Any],
    layer: nn.Module,
    x: Tensor,
    key_padding_mask: Tensor | None,
    state: State | None,
    return_states: bool,
) -> Any:
    """``call`` with its own state: recomputation starts from the same state."""
    if state is not None:
        rows = torch.arange(len(state.length), device=state.length.device)
        state = reorder_state(state, rows)
    return call(layer, x, key_padding_mask, state, return_states)


@functools.cache
def compiled_call(name: str) -> Callable[..., Any]:
    """``_call`` by torch.compile: layers of one name share their code.

    The second length of an input makes code for any length. torch compiles at most
    eight kinds of inputs (lengths, batches, with and without pads) per code object. So
    each name has its own code object.
    """
    call = types.FunctionType(_call.__code__.replace(co_name=f"call_{name}"), globals())
    return torch.compile(call)


def _rows(x: Tensor, order: Tensor) -> Tensor:
    """x (B, N, C) with the tokens of each row taken in ``order`` (B, N)."""
    return x.gather(1, order.unsqueeze(-1).expand_as(x))
