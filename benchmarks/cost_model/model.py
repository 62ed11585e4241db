"""What training costs, worked out: time and memory on machines that are not here.

    python -m benchmarks cost_model            # results/cost_model/README.md
    python -m benchmarks cost_model --measure  # this CPU's rates and steps first
    python -m benchmarks cost_model --measure-workers  # updates of several processes

docs/cost.md explains the tables.

A step is traced at the paper's sizes (``traced_cost``), and each kernel takes the
longest of three: its operations over the machine's, its bytes over the memory's
bandwidth, a launch. The sum over kernels, times the accumulated batches, the optimizer
and the exchange of gradients are an update.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from fairseq_transnormer.modules import CausalLanguageModel, MaskedLanguageModel
from fairseq_transnormer.modules.config import (
    ClassifierT2Config,
    EncoderT1Config,
    EncoderT2Config,
    LanguageModelT1Config,
    LanguageModelT2Config,
)
from fairseq_transnormer.modules.float32 import Float32Module
from fairseq_transnormer.modules.sequence_classifier import SequenceClassifier

from ..harness.mixed_precision import FlatAdam, MasterAdam
from .machines import Assumptions, Machine
from .traced import Kernel, trace

MASKED = 0.15


class Model(NamedTuple):
    """What is trained, at one size; hashable, so that it is traced once.

    Attributes:
        kind: alm, blm, fine_tuning or arena.
        variant: T1, T2 or softmax, T2 with softmax attention alone.
        width, heads, layers, vocabulary: of it; half of the other layers are local.
        length: tokens of a sequence.
        dtype: of weights and activations.
    """

    kind: str
    variant: str = "T2"
    width: int = 512
    heads: int = 8
    layers: int = 6
    vocabulary: int = 267744
    length: int = 512
    dtype: str = "float32"


class Traced(NamedTuple):
    """What a model costs.

    Attributes:
        micro: kernels of a forward and backward pass over a batch.
        optimizer: kernels of Adam's step.
        parameters: trained.
        gradient_bytes: that workers exchange.
        pass_bytes: that a pass holds at most, gradients included.
        held_bytes: besides, all the time: weights, Adam's sums, and of weights in half
            precision fairseq's float32 copies with gradients of their own.
    """

    micro: tuple[Kernel, ...]
    optimizer: tuple[Kernel, ...]
    parameters: int
    gradient_bytes: int
    pass_bytes: int
    held_bytes: int


def build(model: Model) -> nn.Module:
    """The model, in training mode, with torch's ops."""
    half = model.layers // 2
    arena = model.kind == "arena"
    attentions = f"diag*{half},norm*{model.layers - half}"
    if model.variant == "softmax":
        attentions = f"softmax*{model.layers}"
    size = {
        "attention_types": attentions,
        "embed_dim": model.width,
        "num_heads": model.heads,
        "ffn_dim": (4 if arena else 8) * model.width // 3,
        "backend": "torch",
    }
    first = model.variant == "T1"
    if model.kind == "alm":
        config = LanguageModelT1Config if first else LanguageModelT2Config
        built = CausalLanguageModel(config(**size), model.vocabulary)
    elif arena:
        config = ClassifierT2Config(**size, max_positions=model.length)
        built = SequenceClassifier(config, model.vocabulary, 2)
    else:
        config = EncoderT1Config if first else EncoderT2Config
        built = MaskedLanguageModel(config(**size), model.vocabulary)
    _cast(built, getattr(torch, model.dtype))
    return built.train()


def _cast(built: nn.Module, dtype: torch.dtype) -> None:
    """``built.to(dtype)``, which fake tensors do not allow."""
    cast: dict[nn.Parameter, nn.Parameter] = {}
    for module in built.modules():
        if isinstance(module, Float32Module):
            continue
        for name, parameter in module._parameters.items():
            if parameter is not None:
                if parameter not in cast:
                    tensor = parameter.detach().to(dtype)
                    cast[parameter] = nn.Parameter(tensor, parameter.requires_grad)
                module._parameters[name] = cast[parameter]
        for name, buffer in module._buffers.items():
            if buffer is not None and buffer.is_floating_point():
                module._buffers[name] = buffer.to(dtype)


def loss(built: nn.Module, model: Model, batch: int) -> Tensor:
    """As fairseq's criteria compute it: a sum, from a log-softmax in float32."""
    tokens = torch.zeros(batch, model.length, dtype=torch.long)
    if model.kind == "alm":
        scores = built(tokens).flatten(0, 1)
    elif model.kind == "arena":
        lengths = torch.zeros(batch, dtype=torch.long)
        scores = built([tokens], [lengths])
    elif model.kind == "blm":
        # which tokens are masked is not known to a trace, how many are is
        masked = int(MASKED * tokens.numel())
        scores = built.lm_head(built.features(tokens).flatten(0, 1)[:masked])
    else:
        scores = built.features(tokens)[:, 0, :2]
    target = torch.zeros(len(scores), dtype=torch.long)
    # no name for the probabilities: they go as soon as they are not needed
    return F.nll_loss(
        F.log_softmax(scores, dim=-1, dtype=torch.float32), target, reduction="sum"
    )


@cache
def traced(model: Model, batch: int) -> Traced:
    """Trace a model's pass over ``batch`` sequences, and Adam's step."""
    with FakeTensorMode():
        built = build(model)
        adam = MasterAdam if model.dtype == "float32" else FlatAdam
        optimizer = adam(built.parameters())
        weights = [p for p in built.parameters() if p.requires_grad]
        passes = trace(lambda: loss(built, model, batch).backward())
        for p in weights:  # of a head that is not used, as fairseq has them
            if p.grad is None or not p.grad.is_contiguous():
                p.grad = torch.zeros_like(p)
        step = trace(optimizer.step)
        held = sum(_bytes(p) for p in (*weights, *optimizer.copies))
        held += sum(
            _bytes(x)
            for state in optimizer.adam.state.values()
            for x in state.values()
            if x.dim()
        )
        parameters = sum(p.numel() for p in weights)
        gradients = sum(_bytes(p) for p in weights)
    return Traced(
        tuple(passes.kernels),
        tuple(step.kernels),
        parameters,
        gradients,
        passes.peak_bytes,
        held,
    )


def _bytes(x: Tensor) -> int:
    return x.numel() * x.element_size()


class Seconds(NamedTuple):
    """Of an update, by what they wait for."""

    products: float = 0.0
    memory: float = 0.0
    launches: float = 0.0
    exchange: float = 0.0

    @property
    def bottleneck(self) -> str:
        """What they mostly wait for, with its share."""
        name, most = max(self._asdict().items(), key=lambda item: item[1])
        return f"{name} {most / sum(self):.0%}"


def kernels_take(
    kernels: Sequence[Kernel], machine: Machine, assumed: Assumptions
) -> Seconds:
    """Each kernel takes the longest of its three, and counts there."""

    def products(kernel: Kernel) -> float:
        return machine.single_flops if kernel.single else machine.flops

    sums = [0.0, 0.0, 0.0]
    for kernel in kernels:
        each = (
            kernel.flops / (products(kernel) * assumed.products),
            kernel.bytes / (machine.bandwidth * assumed.bandwidth),
            assumed.kernel,
        )
        sums[each.index(max(each))] += max(each)
    return Seconds(*sums)


def exchange_takes(
    size: float, workers: int, per_node: int, machine: Machine, assumed: Assumptions
) -> float:
    """Seconds of a ring's all-reduce: 2 (W - 1) / W of the gradients, each way.

    Rings of several nodes leave a node at different GPUs, and share all of its network.
    """
    if workers == 1:
        return 0.0
    rate = machine.link if workers <= per_node else min(machine.link, machine.network)
    return 2 * (workers - 1) / workers * size / (rate * assumed.link)


class Run(NamedTuple):
    """A training run.

    Attributes:
        name: of it.
        model: what is trained.
        sequences: of an update.
        most: sequences that a device takes at once.
        updates: of the run.
        workers: devices.
    """

    name: str
    model: Model
    sequences: int
    most: int
    updates: int
    workers: int = 8

    def layout(self) -> tuple[int, int]:
        """Batch and accumulated batches of each device."""
        share = self.sequences // self.workers
        batch = min(self.most, share)
        return batch, share // batch

    def on(self, machine: Machine) -> tuple[Traced, int]:
        """What a batch costs in the machine's dtype, and how many are accumulated."""
        batch, update_freq = self.layout()
        # both half precisions take the same bytes: one trace serves both
        dtype = "float32" if machine.dtype == "float32" else "bfloat16"
        return traced(self.model._replace(dtype=dtype), batch), update_freq

    def update_takes(
        self, machine: Machine, assumed: Assumptions, per_node: int = 8
    ) -> Seconds:
        """Seconds of one update."""
        cost, update_freq = self.on(machine)
        micro = kernels_take(cost.micro, machine, assumed)
        step = kernels_take(cost.optimizer, machine, assumed)
        exchange = exchange_takes(
            cost.gradient_bytes, self.workers, per_node, machine, assumed
        )
        # all but the first parts of the backward pass of the last batch can hide it
        hidden = min(exchange * assumed.overlap, 2 / 3 * sum(micro))
        sums = [update_freq * a + b for a, b in zip(micro, step, strict=True)]
        return Seconds(*sums[:3], exchange - hidden)

    def peak_bytes(self, machine: Machine) -> int:
        """That a device holds at most; of several, with buckets of the gradients."""
        cost, _ = self.on(machine)
        buckets = cost.gradient_bytes if self.workers > 1 else 0
        return cost.pass_bytes + cost.held_bytes + buckets

    def flops(self, machine: Machine) -> float:
        """Operations of an update, of all devices together."""
        cost, update_freq = self.on(machine)
        return sum(k.flops for k in cost.micro) * update_freq * self.workers

    def tokens(self) -> int:
        """Of an update."""
        return self.sequences * self.model.length
