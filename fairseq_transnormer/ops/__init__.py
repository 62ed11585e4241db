"""Functions of tensors: what the attentions compute, with interchangeable backends."""

from .backend import BACKENDS, ENVIRONMENT_VARIABLE, resolve_backend
from .block_attention import block_attention
from .feature_maps import FEATURE_MAPS
from .gated_linear_unit import gated_linear_unit
from .gated_silu import gated_linear, gated_silu
from .linear_attention import linear_attention
from .linear_cross_entropy import linear_cross_entropy
from .lrpe import lrpe
from .residual import dropout_add, dropout_add_norm, norm_with_residual
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
    "dropout_add_norm",
    "dropout_add",
    "block_attention",
    "gated_linear",
    "gated_linear_unit",
    "gated_silu",
    "join_states",
    "linear_attention",
    "linear_cross_entropy",
    "lrpe",
    "norm_with_residual",
    "reorder_state",
    "resolve_backend",
    "rms_norm",
    "softmax_attention",
    "state_bytes",
]
