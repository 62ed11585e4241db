"""Linear attention as Triton kernels; ``ops.linear_attention`` picks one for a call."""

from .bidirectional import bidirectional_linear_attention
from .causal import causal_linear_attention
from .step import linear_attention_step

__all__ = [
    "bidirectional_linear_attention",
    "causal_linear_attention",
    "linear_attention_step",
]
