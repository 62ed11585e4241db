"""How the kernels of linear attention are launched: a fixed table, no autotuning."""

from __future__ import annotations

import math

import torch

from .support import tf32_is_allowed

# up to here summing up the tokens before a chunk again beats a launch for the states
SHORT_LENGTH = 1024
SMALLEST_SEGMENT = 256
# from here on the sequences alone keep a GPU busy, without cutting them in segments
ENOUGH_SEQUENCES = 256


def segment_length(length: int, sequences: int = 1) -> int:
    """Tokens of a segment: a power of two, or one segment of all tokens.

    A state is read once by each later segment, so that the states' traffic falls with
    the segment and is balanced with the tokens' near sqrt(128 N).

    Args:
        length: N.
        sequences: B * H, where one segment a sequence is allowed.
    """
    if sequences >= ENOUGH_SEQUENCES:
        return max(length, SMALLEST_SEGMENT)
    root = math.isqrt(128 * length - 1) + 1
    return max(SMALLEST_SEGMENT, 1 << (root - 1).bit_length())


def launch_options(dtype: torch.dtype, width: int, value_width: int) -> dict:
    """Chunk, precision of products, warps and stages for inputs of ``dtype``.

    float16 always multiplies its float32 sums in TF32, which has its ten bits.
    """
    ieee = dtype == torch.float32 and not tf32_is_allowed()
    wide = max(width, value_width) > 64
    # where wide heads take float32 operands, more would not fit an sm_86
    small = wide and dtype != torch.bfloat16
    return {
        "CHUNK": 32 if small else 64,
        "PRECISION": "ieee" if ieee else "tf32",
        "num_warps": 8 if wide else 4,
        "num_stages": 1 if small else 2,
    }
