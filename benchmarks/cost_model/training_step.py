"""A training step of the real modules, traced, as a GPU or a CPU takes it."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import cache
from typing import NamedTuple

import torch
import torch.nn.functional as F
from pandas import DataFrame
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from fairseq_transnormer.modules import CausalLanguageModel, MaskedLanguageModel, config
from fairseq_transnormer.modules.float32 import Float32Module

from .on_a_gpu import as_on_a_gpu
from .traced import Trace

MASKED = 0.15


class Model(NamedTuple):
    """kind: alm or blm; variant: T1, T2 or softmax, T2 with softmax attention alone."""

    kind: str
    variant: str = "T2"
    width: int = 512
    heads: int = 8
    layers: int = 6
    vocabulary: int = 267744
    length: int = 512
    dtype: str = "float32"


class Way(NamedTuple):
    """How a step is computed, and on what.

    backend: of the model, "torch" or "auto". chunked: the loss inside the model, or
    from all logits as fairseq's criterions do. optimizer: "adam" or "fused_adam".
    device: "A100" stands for all later GPUs too, whose Triton multiplies matrices, and
    "V100" for those without that; or "CPU". A GPU's cross entropy in chunks is Triton's
    with either backend.
    """

    backend: str
    chunked: bool
    optimizer: str
    device: str = "A100"


BEFORE = Way("torch", chunked=False, optimizer="adam")
AFTER = Way("auto", chunked=True, optimizer="fused_adam")


def build(model: Model, way: Way) -> nn.Module:
    """The model, in training mode; half of its layers are local."""
    half, variant = model.layers // 2, "T1" if model.variant == "T1" else "T2"
    attentions = f"diag*{half},norm*{model.layers - half}"
    if model.variant == "softmax":
        attentions = f"softmax*{model.layers}"
    family = "LanguageModel" if model.kind == "alm" else "Encoder"
    options = getattr(config, f"{family}{variant}Config")(
        attention_types=attentions,
        embed_dim=model.width,
        num_heads=model.heads,
        ffn_dim=8 * model.width // 3,
        backend=way.backend,
    )
    kind = CausalLanguageModel if model.kind == "alm" else MaskedLanguageModel
    built = kind(options, model.vocabulary)
    return cast(built, getattr(torch, model.dtype)).train()


def cast(built: nn.Module, dtype: torch.dtype) -> nn.Module:
    """built.to(dtype), which fake tensors do not allow; what is tied stays tied."""
    done: dict[Tensor, Tensor] = {}
    for module in built.modules():
        for name, p in module._parameters.items():
            if p is not None and not isinstance(module, Float32Module):
                done.setdefault(p, nn.Parameter(p.detach().to(dtype), p.requires_grad))
                module._parameters[name] = done[p]
    return built


def loss(built: nn.Module, model: Model, batch: int, way: Way) -> Tensor:
    """The loss of tokens without pads: the plugin's criterions', or fairseq's."""
    tokens = torch.zeros(batch, model.length, dtype=torch.long)
    # which tokens are masked is not known to a trace, how many are is
    masked = int(MASKED * tokens.numel())
    if way.chunked:
        options = {"targets": tokens, "padding": "none"}
        if model.kind == "blm":
            options["positions"] = torch.arange(masked)
        return built(tokens, **options)[0]
    if model.kind == "alm":
        scores = built(tokens, padding="none").flatten(0, 1)
    else:
        features = built.features(tokens, padding="none").flatten(0, 1)
        scores = built.lm_head(features.index_select(0, torch.arange(masked)))
    target = torch.zeros(len(scores), dtype=torch.long)
    # no name for the probabilities: they go as soon as they are not needed
    return F.nll_loss(_log_softmax(scores, way), target, reduction="sum")


def _log_softmax(scores: Tensor, way: Way) -> Tensor:
    """In float32; GPUs have a kernel for float16, and convert bfloat16 before."""
    if way.device != "CPU" and scores.dtype == torch.float16:
        return torch._log_softmax(scores, -1, half_to_float=True)
    return F.log_softmax(scores, dim=-1, dtype=torch.float32)


class Cost(NamedTuple):
    """Kernels of a pass over a batch, of one whose gradients are added to those of the
    passes before, and of all that follows; what workers exchange; the most that is held
    during one pass, and where several are accumulated, beside what is held all the
    time: weights, Adam's sums, fairseq's float32 copies with their gradients."""

    first: DataFrame
    further: DataFrame
    update: DataFrame
    parameters: int
    gradient_bytes: int
    pass_bytes: int
    accumulated_bytes: int
    held_bytes: int

    def peak_bytes(self, update_freq: int) -> int:
        """Of a worker among several, which exchange buckets of gradients."""
        passes = self.pass_bytes if update_freq == 1 else self.accumulated_bytes
        return self.held_bytes + passes + self.gradient_bytes


@cache
def traced(model: Model, batch: int, way: Way) -> Cost:
    """Trace passes over ``batch`` sequences, and an update."""
    from .fairseq_update import Update

    with _mode(way):
        built = build(model, way)
        weights = [p for p in built.parameters() if p.requires_grad]
        with Trace():  # in which tensors without memory have an answer to questions
            update = Update(weights, way.optimizer, getattr(torch, model.dtype))
        with Trace() as counted:
            update.backward(loss(built, model, batch, way))
            first, pass_bytes = len(counted.kernels), counted.peak_bytes
            update.backward(loss(built, model, batch, way))
            further, accumulated_bytes = len(counted.kernels), counted.peak_bytes
            update()
        parts = (
            counted.kernels[:first],
            counted.kernels[first:further],
            counted.kernels[further:],
        )
        return Cost(
            *map(DataFrame, parts),
            sum(p.numel() for p in weights),
            sum(p.nbytes for p in weights),
            pass_bytes,
            max(accumulated_bytes, counted.peak_bytes),
            sum(x.nbytes for x in update.held()),
        )


def _mode(way: Way) -> AbstractContextManager:
    if way.device == "CPU":
        return FakeTensorMode()
    return as_on_a_gpu(products=way.device == "A100")
