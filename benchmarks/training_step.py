"""What training costs: a step of the layers, and of the whole model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import product

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fairseq_transnormer.modules import CausalLanguageModel

from . import measure
from .models import AS_SHIPPED, NO_GRAPHS, WITH_SDPA, backend_skip, build_transnormer
from .options import Rows
from .options import TrainingStep as Options

WAYS = {
    "eager": {},
    "cuda_graphs": {"cuda_graphs": True},
    "compiled": {"compile_layers": True},
}
# the layers alone: the embedding, whose gradient is as large as it, must not show
STACK_VOCABULARY = 1000


class MasterAdam:
    """torch's Adam on float32 copies of half-precision weights, as --bf16 and --fp16.

    fairseq's own Adam does the same sums in many launches for each parameter; this one
    costs little, so that the models show.
    """

    def __init__(self, parameters: Iterable[Tensor], learning_rate: float = 1e-5):
        self.weights = [p for p in parameters if p.requires_grad]
        self.halves = [p for p in self.weights if p.dtype != torch.float32]
        self.copies = [p.detach().float() for p in self.halves]
        whole = [p for p in self.weights if p.dtype == torch.float32]
        cuda = self.weights[0].is_cuda
        self.adam = torch.optim.Adam([*self.copies, *whole], learning_rate, fused=cuda)
        # Adam makes its sums in its first step: now, by one that changes nothing
        for p in (*self.copies, *whole):
            p.grad = torch.zeros_like(p)
        self.adam.step()
        for state in self.adam.state.values():
            state["step"].zero_()
        self.zero_grad()

    def zero_grad(self) -> None:
        """Give all gradients' memory back."""
        for p in (*self.weights, *self.copies):
            p.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """Update the weights by their gradients."""
        for half, copy in zip(self.halves, self.copies, strict=True):
            copy.grad = half.grad.float()
            half.grad = None
        self.adam.step()
        if self.halves:
            torch._foreach_copy_(self.halves, self.copies)


class TrainingStep:
    """Forward, loss, backward and Adam's step of one model in training mode.

    The loss with the output layer is what fairseq's criterion cross_entropy computes: a
    sum, from a log-softmax in float32. Without it, the squared error of the features.
    """

    def __init__(self, model: nn.Module, *, with_output: bool):
        self.model, self.with_output = model, with_output
        self.optimizer = MasterAdam(model.parameters())

    def __call__(self, tokens: Tensor, target: Tensor) -> Tensor:
        """target: int64 (B, N), or float32 (B, N, width) without the output layer."""
        if self.with_output:
            # no name for the logits: they are to go as soon as they are not needed
            scores = F.log_softmax(self._outputs(tokens), dim=-1, dtype=torch.float32)
            loss = F.nll_loss(scores.flatten(0, 1), target.flatten(), reduction="sum")
            del scores
        else:
            loss = F.mse_loss(self._outputs(tokens).float(), target, reduction="sum")
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.detach()

    def _outputs(self, tokens: Tensor) -> Tensor:
        """Logits, or features of the last layer."""
        model = self.model
        if isinstance(model, CausalLanguageModel):
            return model(tokens) if self.with_output else model.features(tokens)[0]
        x = model.decoder.extract_features(tokens, encoder_out=None)[0]
        return model.decoder.output_layer(x) if self.with_output else x


def build_models(options: Options, vocabulary: int) -> dict:
    """All language models in training mode; for one that cannot run, why."""
    from .fairseq_transformer import build_transformer, with_sdpa

    size = (options.width, options.heads, options.layers, vocabulary)
    models: dict[str, nn.Module | str] = {}
    kinds = product(options.variants, options.backends, options.ways)
    with torch.device(options.device):
        for variant, backend, way in kinds:
            name = f"TransNormer {variant} ({backend})"
            name += "" if way == "eager" else f", {way}"
            reason = backend_skip(backend, options)
            if way == "cuda_graphs" and not options.on_gpu:
                reason = reason or NO_GRAPHS
            more = {"backend": backend, **WAYS[way]}
            models[name] = reason or build_transnormer(*size, variant, **more)
        shipped = build_transformer(*size, max(options.lengths) + 2)
    models |= {AS_SHIPPED: shipped, WITH_SDPA: with_sdpa(shipped)}
    for name, model in models.items():
        if not isinstance(model, str):
            models[name] = model.to(options.device, options.torch_dtype).train()
    return models


def calls_of(part: str, steps: dict, options: Options, length: int) -> dict:
    """A call for each name on inputs of this length, or why there is none."""
    shape, device = (options.tokens // length, length), options.device
    vocabulary = options.vocabulary if part == "model" else STACK_VOCABULARY
    tokens, target = torch.randint(4, vocabulary, (2, *shape), device=device)
    if part == "stack":
        target = torch.randn((*shape, options.width), device=device)
    calls = {
        name: step if isinstance(step, str) else partial(step, tokens, target)
        for name, step in steps.items()
    }
    if too_large := measure.quadratic_skip(4 * length**2, options):
        return calls | {AS_SHIPPED: too_large}
    # its mask is kept from the first step on: made now, so that no measured step does
    x = torch.empty((length, 1, 1), device=device, dtype=options.torch_dtype)
    steps[AS_SHIPPED].model.decoder.buffered_future_mask(x)
    return calls


def training_step(options: Options, settings: dict) -> Iterator[Rows]:
    limits, steps = measure.Limits(options), {}
    for part in options.parts:
        vocabulary = options.vocabulary if part == "model" else STACK_VOCABULARY
        steps[part] = build_models(options, vocabulary)
        for name, model in steps[part].items():
            if not isinstance(model, str):
                steps[part][name] = TrainingStep(model, with_output=part == "model")
    for length, part in product(options.lengths, options.parts):
        cases = []
        for name, call in calls_of(part, steps[part], options, length).items():
            row = {"part": part, "provider": name, "length": length}
            row["batch"] = options.tokens // length
            reason = call if isinstance(call, str) else limits.over()
            cases.append((row, reason or call))
        yield measure.measure(cases, options)
