"""TransNormer's language models as the benchmarks build them."""

from __future__ import annotations

from typing import Any

import torch

from fairseq_transnormer.modules import (
    CausalLanguageModel,
    LanguageModelConfig,
    LanguageModelT1Config,
    LanguageModelT2Config,
)
from fairseq_transnormer.ops.backend import Kernels, why_triton_cannot_run

VARIANTS = {"T1": LanguageModelT1Config, "T2": LanguageModelT2Config}
DROPOUT = 0.1  # the paper's, in training
# names of the peers
AS_SHIPPED, WITH_SDPA = "fairseq transformer_lm", "fairseq transformer_lm, SDPA"
NO_GRAPHS = "CUDA graphs need a CUDA device"


def transnormer_config(
    width: int, heads: int, layers: int, variant: str = "T2", **more: Any
) -> LanguageModelConfig:
    """The first half of the layers Diag, the other Norm; GLU of int(8/3 width).

    variant: one of ``VARIANTS``. more: other fields, such as ``backend``.
    """
    half = layers // 2
    values = {"ffn_dim": 8 * width // 3, "dropout": DROPOUT, **more}
    values["attention_types"] = ",".join(["diag"] * half + ["norm"] * (layers - half))
    return VARIANTS[variant](embed_dim=width, num_heads=heads, **values)


def build_transnormer(
    width: int, heads: int, layers: int, vocabulary: int, variant="T2", **more: Any
) -> CausalLanguageModel:
    """A model of ``transnormer_config``, for evaluation."""
    config = transnormer_config(width, heads, layers, variant, **more)
    return CausalLanguageModel(config, vocabulary).eval()


def backend_skip(backend: str, options) -> str | None:
    """Why a model with this backend is left out, or None.

    options: dtype, device, width, heads.
    """
    if backend != "triton":
        return None
    sample = torch.empty(0, dtype=options.torch_dtype, device=options.device)
    kernels = Kernels("attention", widths=(options.width // options.heads,))
    reason = why_triton_cannot_run([sample], kernels)
    return None if reason is None else f"Triton cannot run: {reason}"
