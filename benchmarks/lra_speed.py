"""Speed and memory of the Long-Range Arena's classifiers over the length (Table 7).

All systems take turns in one process, in inference and in training (forward, loss,
backward, AdamW's step), on random bytes without pads, at Appendix E's sizes. The
vanilla transformer stands there twice: with its attention as a matrix, as in the paper,
and through torch's fused attention (on a CPU without attention_dropout, which torch has
no fused kernel for).

A case that runs out of memory, which the paper marks with a dash, has no figures and
says so. On a CPU, whose memory cannot be used up safely, systems that keep matrices of
length x length are left out where they would need more than there is, or where one
layer's are above --quadratic-limit-gib.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from fairseq_transnormer.modules import systems

from . import measure
from .measure import Limits
from .options import DTYPES, Options, Rows, benchmark, option

INFERENCE, TRAINING_STEP = PHASES = ("inference", "training")
# 48 GB, where the paper's vanilla transformer ends between 2K and 3K in inference and
# in training alike, point to about so many sequences in float32
BATCH = {"cuda": 256, "cpu": 1}
VOCABULARY, CLASSES = 256, 2
MATERIALISED, FUSED = "Transformer", "Transformer, SDPA"
_ARCHITECTURES = {
    name: system.architecture_of("lra")
    for name, system in systems.SYSTEMS.items()
    if "lra" in system.kinds
}
# provider: architecture
SYSTEMS = dict.fromkeys((MATERIALISED, FUSED), _ARCHITECTURES.pop("vanilla")) | {
    systems.SYSTEMS[name].label: architecture
    for name, architecture in _ARCHITECTURES.items()
}
# heads whose length x length matrices a system keeps, in each of two layers
QUADRATIC = {MATERIALISED: 2, "Kernelized Attention": 2, "FLASH-quad": 1}
# a step's peak as a multiple of one layer's matrices, as measured on a CPU at 16K
PEAKS = {
    INFERENCE: {MATERIALISED: 2.3, "Kernelized Attention": 3, "FLASH-quad": 6.1},
    TRAINING_STEP: {MATERIALISED: 7, "Kernelized Attention": 9, "FLASH-quad": 15.2},
}


@dataclass
class LRASpeed(Options):
    """Options; the batch depends on the device."""

    # two heads' matrices of 16K tokens in float32
    quadratic_limit_gib: float = option(2.0, "of one layer's matrices, on a CPU")
    systems: list[str] = option([*SYSTEMS], "to measure", choices=[*SYSTEMS])
    phases: list[str] = option([*PHASES], "to measure", choices=PHASES)
    lengths: list[int] = option([1024 * k for k in (1, 2, 3, 4, 5, 8, 16)], "tokens")
    batch: int | None = option(None, f"sequences ({BATCH})", type=int)
    backend: str = option("auto", "of our ops")
    dtype: str = option("float32", "or what is autocast to", choices=DTYPES)

    def check(self) -> None:
        self.batch = self.batch or BATCH[self.device.type]


def build(name: str, options: LRASpeed, length: int) -> nn.Module:
    """A system's classifier for sequences of up to ``length`` tokens."""
    import fairseq_transnormer.plugin  # noqa: F401 (registers the models)

    # isort: split
    from fairseq.models import MODEL_DATACLASS_REGISTRY, MODEL_REGISTRY

    architecture = SYSTEMS[name]
    config = MODEL_DATACLASS_REGISTRY[architecture](
        max_positions=length, linformer_length=length, backend=options.backend
    )
    if name == FUSED and options.device.type == "cpu":
        # with it torch has no fused kernel on a CPU
        config.attention_dropout = 0.0
    task = SimpleNamespace(
        vocabulary_size=VOCABULARY, num_classes=CLASSES, num_sequences=1
    )
    model = MODEL_REGISTRY[architecture].build_model(config, task)
    return model.to(options.device)


class Classifier:
    """A system's steps.

    Args:
        name: one of ``SYSTEMS``.
        options: of the command line.
        length: tokens, which positions and Linformer's projections are for.
    """

    def __init__(self, name: str, options: LRASpeed, length: int):
        self.name, self.model = name, build(name, options, length)
        self.dtype = options.torch_dtype
        parameters = [p for p in self.model.parameters() if p.requires_grad]
        self.optimizer = torch.optim.AdamW(parameters, 1e-4, weight_decay=0.0)
        # AdamW makes its sums in its first step: now, so that they do not count
        for p in parameters:
            p.grad = torch.zeros_like(p)
        self.optimizer.step()
        self.optimizer.zero_grad()

    def step(self, phase: str, tokens: Tensor, labels: Tensor) -> None:
        """int64 (B, N) and (B,): one step of inference or of training."""
        lengths = torch.full_like(labels, tokens.shape[1])
        training = phase == TRAINING_STEP
        self.model.train(training)
        as_matrix = self.name == MATERIALISED
        autocast = None if self.dtype == torch.float32 else self.dtype
        with (
            sdpa_kernel(SDPBackend.MATH) if as_matrix else nullcontext(),
            torch.set_grad_enabled(training),
        ):
            device = tokens.device.type
            with torch.autocast(device, autocast, enabled=autocast is not None):
                logits = self.model((tokens,), (lengths,))
                loss = F.cross_entropy(logits.float(), labels)
            if training:
                loss.backward()
        if training:
            self.optimizer.step()
            self.optimizer.zero_grad()


def _why_not(name: str, options: LRASpeed, phase: str, length: int) -> str | None:
    if options.device.type == "cuda" or name not in QUADRATIC:
        return None
    matrices = options.batch * QUADRATIC[name] * length**2 * torch.float32.itemsize
    needed, there = PEAKS[phase][name] * matrices, measure.available_bytes()
    if needed > there:
        gib = measure.GIB
        return f"out of memory: it takes {needed / gib:.3g} GiB of {there / gib:.3g}"
    return measure.quadratic_skip(matrices, options)


@benchmark(LRASpeed)
def lra_speed(options: LRASpeed, settings: dict) -> Iterator[Rows]:
    """Long-Range Arena's speed and memory over the length: Table 7."""
    limits, device = Limits(options), options.device
    for length in sorted(options.lengths):
        made = {name: Classifier(name, options, length) for name in options.systems}
        for phase in options.phases:
            rows, calls = {}, {}
            tokens = torch.randint(VOCABULARY, (options.batch, length), device=device)
            labels = torch.randint(CLASSES, (options.batch,), device=device)
            for name, classifier in made.items():
                rows[name] = row = {"provider": name, "phase": phase}
                row |= {"length": length, "batch": options.batch}
                reason = _why_not(name, options, phase, length) or limits.over()
                if reason:
                    row["skipped"] = reason
                else:
                    calls[name] = partial(classifier.step, phase, tokens, labels)
            measure.measure(rows, calls, options)
            for classifier in made.values():
                # gradients that were made before the memory ended
                classifier.optimizer.zero_grad()
            yield [*rows.values()]
