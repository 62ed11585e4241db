"""Functions of tensors: what the attentions compute, with interchangeable backends."""

from .attention_inputs import FEATURE_MAPS
from .backend import BACKENDS, ENVIRONMENT_VARIABLE, resolve_backend
from .block_attention import block_attention
from .gated_linear_unit import gated_linear_unit
from .gated_silu import gated_linear, gated_silu
from .linear_attention import linear_attention
from .linear_cross_entropy import linear_cross_entropy
from .lrpe import lrpe
from .residual import add_and_norm, add_dropped, norm_beside
from .rms_norm import rms_norm
from .softmax_attention import softmax_attention
from .states import (
    BlockAttentionState,
    KeyValueState,
    LinearAttentionState,
    PairState,
    join_states,
    reorder_state,
    state_bytes,
)

__all__ = [
    "BACKENDS",
    "ENVIRONMENT_VARIABLE",
    "FEATURE_MAPS",
    "BlockAttentionState",
    "KeyValueState",
    "LinearAttentionState",
    "PairState",
    "add_and_norm",
    "add_dropped",
    "block_attention",
    "gated_linear",
    "gated_linear_unit",
    "gated_silu",
    "join_states",
    "linear_attention",
    "linear_cross_entropy",
    "lrpe",
    "norm_beside",
    "reorder_state",
    "resolve_backend",
    "rms_norm",
    "softmax_attention",
    "state_bytes",
]
