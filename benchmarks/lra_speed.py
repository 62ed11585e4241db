"""Speed and memory of the Long-Range Arena's classifiers over the length (Table 7)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from functools import partial
from types import SimpleNamespace

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from fairseq_transnormer.modules import systems

from . import measure
from .options import LRASpeed, Rows, chosen
from .training_step import MasterAdam

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
# heads whose length x length matrices a system keeps, in each of two layers; and a
# step's peak as a multiple of one layer's matrices, as measured on a CPU at 16K
QUADRATIC = {
    MATERIALISED: (2, {"inference": 2.3, "training": 7}),
    "Kernelized Attention": (2, {"inference": 3, "training": 9}),
    "FLASH-quad": (1, {"inference": 6.1, "training": 15.2}),
}


def build(name: str, options: LRASpeed, length: int) -> nn.Module:
    """A system's classifier for sequences of up to ``length`` tokens."""
    import fairseq_transnormer.plugin  # noqa: F401 (registers the models)

    # isort: split
    from fairseq.models import MODEL_DATACLASS_REGISTRY, MODEL_REGISTRY

    architecture = SYSTEMS[name]
    config = MODEL_DATACLASS_REGISTRY[architecture](
        max_positions=length, linformer_length=length, backend=options.backend
    )
    if name == FUSED and not options.on_gpu:
        # with it torch has no fused kernel on a CPU
        config.attention_dropout = 0.0
    task = SimpleNamespace(
        vocabulary_size=VOCABULARY, num_classes=CLASSES, num_sequences=1
    )
    model = MODEL_REGISTRY[architecture].build_model(config, task)
    return model.to(options.device)


class Classifier:
    """A system's steps; positions and Linformer's projections are for ``length``."""

    def __init__(self, name: str, options: LRASpeed, length: int):
        self.name, self.model = name, build(name, options, length)
        self.options = options
        self.optimizer = MasterAdam(self.model.parameters(), 1e-4)

    def step(self, phase: str, tokens: Tensor, labels: Tensor) -> None:
        """int64 (B, N) and (B,): one step of inference or of training."""
        lengths = torch.full_like(labels, tokens.shape[1])
        training, dtype = phase == "training", self.options.torch_dtype
        as_matrix, half = self.name == MATERIALISED, dtype != torch.float32
        self.model.train(training)
        with (
            sdpa_kernel(SDPBackend.MATH) if as_matrix else nullcontext(),
            torch.set_grad_enabled(training),
        ):
            with torch.autocast(tokens.device.type, dtype, enabled=half):
                logits = self.model((tokens,), (lengths,))
                loss = F.cross_entropy(logits.float(), labels)
            if training:
                loss.backward()
        if training:
            self.optimizer.step()
            self.optimizer.zero_grad()


def _why_not(name: str, options: LRASpeed, phase: str, length: int) -> str | None:
    if options.on_gpu or name not in QUADRATIC:
        return None
    heads, peaks = QUADRATIC[name]
    matrices = options.batch * heads * length**2 * torch.float32.itemsize
    reason = measure.memory_skip(peaks[phase] * matrices, options)
    return reason or measure.quadratic_skip(matrices, options)


def lra_speed(options: LRASpeed, settings: dict) -> Iterator[Rows]:
    limits, device = measure.Limits(options), options.device
    names = chosen("--systems", options.systems, SYSTEMS)
    for length in sorted(options.lengths):
        made = {name: Classifier(name, options, length) for name in names}
        for phase in options.phases:
            cases = []
            tokens = torch.randint(VOCABULARY, (options.batch, length), device=device)
            labels = torch.randint(CLASSES, (options.batch,), device=device)
            for name, classifier in made.items():
                row = {"provider": name, "phase": phase, "length": length}
                row["batch"] = options.batch
                reason = _why_not(name, options, phase, length) or limits.over()
                call = partial(classifier.step, phase, tokens, labels)
                cases.append((row, reason or call))
            yield measure.measure(cases, options)
            for classifier in made.values():
                # gradients that were made before the memory ended
                classifier.optimizer.zero_grad()
