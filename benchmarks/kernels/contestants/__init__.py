"""The contestants of ``benchmarks kernels``, a file for each of their groups."""

from __future__ import annotations

from . import (
    bidirectional_linear_attention,
    block_attention,
    decode_step,
    linear_attention,
    norm_attention,
    published_shapes,
    rowwise,
)
from .contestant import Case, Group, Setup

# what decides first, so that a run that is cut off has it
MODULES = (
    norm_attention,
    linear_attention,
    published_shapes,
    block_attention,
    bidirectional_linear_attention,
    rowwise,
    decode_step,
)
NAMES = (
    "norm_attention",
    "linear_attention",
    published_shapes.NAME,
    "block_attention",
    "bidirectional_linear_attention",
    "rms_norm",
    "gated_silu",
    "feature_map_and_lrpe",
    "decode_step",
)


def all_groups(setup: Setup, cases: list[Case], check_case: Case) -> list[Group]:
    """Every group; ``cases`` and ``check_case`` are those of the attentions."""
    return [
        group for module in MODULES for group in module.groups(setup, cases, check_case)
    ]
