"""Every attention and layer of this package: importing one registers it."""

from . import attention_pairs, diag_attention, norm_attention
from .baselines import (
    bigbird,
    cosformer,
    flash,
    flash_quad,
    informer,
    kernelized,
    linear_attention,
    linformer,
    long_short,
    nystromformer,
    performer,
    reformer,
    skyformer,
    softmax_attention,
)

__all__ = [
    "attention_pairs",
    "bigbird",
    "cosformer",
    "diag_attention",
    "flash",
    "flash_quad",
    "informer",
    "kernelized",
    "linear_attention",
    "linformer",
    "long_short",
    "norm_attention",
    "nystromformer",
    "performer",
    "reformer",
    "skyformer",
    "softmax_attention",
]
