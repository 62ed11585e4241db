"""In which dtype the ops sum, so that no caller has to know."""

from __future__ import annotations

import torch
from torch import Tensor


def accumulation_dtype(dtype: torch.dtype) -> torch.dtype:
    """float64 stays float64; everything else is summed in float32."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def unscaled_output_dtype(dtype: torch.dtype) -> torch.dtype:
    """dtype of an attention output that is a sum and no average.

    Such a sum grows with the length and passes float16's largest number, 65,504,
    within the paper's 512 tokens, so float16 inputs give a float32 output. The norm
    that follows brings it back.
    """
    return torch.float32 if dtype == torch.float16 else dtype


def autocast_disabled(tensor: Tensor) -> torch.autocast:
    """Context in which autocast leaves the float32 sums alone."""
    return torch.autocast(device_type=tensor.device.type, enabled=False)
