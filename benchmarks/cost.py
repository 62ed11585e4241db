"""What an update of the paper's models takes at the least on GPUs, by data sheets.

    python -m benchmarks cost

One bound is the operations of matrix products over the peak in half precision. The
other is bytes over the memory's bandwidth. An update takes no less than the larger of
both. Nothing is measured; docs/kernels.md compares it with a measured update.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

import torch

from fairseq_transnormer.modules import (
    CausalLanguageModel,
    EncoderT2Config,
    LanguageModelT2Config,
    MaskedLanguageModel,
)
from fairseq_transnormer.modules.model_flops import (
    TRAINING_OVER_FORWARD,
    layer_flops,
    output_flops,
)
from fairseq_transnormer.ops.linear_cross_entropy import rows_at_a_time

# TB/s of memory by the data sheets of the SXM versions
BANDWIDTHS = {"A100": 2.039, "H100": 3.35, "H200": 4.8}
# of an input (B, N, width) that a layer moves forward and backward by Triton's kernels
LAYER_MOVES = 130
# of a weight in half precision by fused Adam, its float32 copy and its gradient's
BYTES_A_WEIGHT = 56
HALF = 2


@dataclass(frozen=True)
class Model:
    """One of the paper's models in training; predicted: part of the tokens."""

    name: str
    vocabulary: int
    sequences: int
    batch: int
    updates: int
    predicted: float = 1.0

    def build(self) -> torch.nn.Module:
        """Without memory."""
        with torch.device("meta"):
            if self.name == "ALM T2":
                return CausalLanguageModel(LanguageModelT2Config(), self.vocabulary)
            return MaskedLanguageModel(EncoderT2Config(), self.vocabulary)


MODELS = (
    Model("ALM T2", 267744, 128, 8, 100_000),
    Model("BLM T2", 50265, 512, 32, 50_000, predicted=0.15),
)
LENGTH = 512


def flops(model: Model, built: torch.nn.Module) -> float:
    """Operations of a token in training: forward and backward."""
    vocabulary, width = built.embed_tokens.weight.shape
    dense = isinstance(built, MaskedLanguageModel)
    forward = layer_flops(built.stack, LENGTH) + output_flops(
        width, vocabulary, dense=dense, predicted=model.predicted
    )
    return TRAINING_OVER_FORWARD * forward


def moved_bytes(model: Model, built: torch.nn.Module, batch: int) -> float:
    """Bytes of a pass over ``batch`` sequences: layers, and the loss in chunks.

    A chunk's logits are written, read twice and overwritten by the loss, and read by
    two products. The weights are read twice, and their float32 sums read and written.
    """
    vocabulary, width = built.embed_tokens.weight.shape
    tokens = batch * LENGTH
    layers = len(built.stack.layers) * LAYER_MOVES * tokens * width * HALF
    rows = int(model.predicted * tokens)
    chunks = ceil(rows / rows_at_a_time(vocabulary, HALF))
    logits = 6 * rows * vocabulary * HALF
    return layers + logits + chunks * vocabulary * width * (2 * HALF + 2 * 4)


def rows(gpus: int) -> list[dict[str, object]]:
    """A row for each model and GPU."""
    from fairseq_transnormer.plugin.models.utilisation import PEAK_TFLOPS

    found = []
    for model in MODELS:
        built = model.build()
        weights = sum(p.numel() for p in built.parameters() if p.requires_grad)
        passes = model.sequences / gpus / model.batch
        operations = flops(model, built) * model.sequences * LENGTH / gpus
        moved = passes * moved_bytes(model, built, model.batch)
        moved += BYTES_A_WEIGHT * weights
        for gpu, bandwidth in BANDWIDTHS.items():
            products = operations / (PEAK_TFLOPS[gpu][0] * 1e12)
            memory = moved / (bandwidth * 1e12)
            least = max(products, memory)
            found.append(
                {
                    "model": model.name,
                    "GPUs": f"{gpus} x {gpu}",
                    "TFLOP": f"{operations / 1e12:.2f}",
                    "GB": f"{moved / 1e9:.1f}",
                    "products, ms": f"{1e3 * products:.1f}",
                    "memory, ms": f"{1e3 * memory:.1f}",
                    "hours at least": f"{least * model.updates / 3600:.2g}",
                }
            )
    return found
