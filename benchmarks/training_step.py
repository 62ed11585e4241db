"""What training costs: a layer, the layers, the model, and a whole update.

TransNormer and fairseq's pre-norm transformer_lm, as fairseq ships it and with its
attention through torch's fused kernels. Random tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fairseq_transnormer.modules import CausalLanguageModel

from . import measure
from .measure import Limits
from .models import (
    AS_SHIPPED,
    VARIANTS,
    WITH_SDPA,
    backend_skip,
    build_transnormer,
)
from .options import (
    DTYPES,
    ModelOptions,
    Rows,
    benchmark,
    option,
)

LAYER, STACK, MODEL = PARTS = ("layer", "stack", "model")
LENGTHS = [512, 1024, 2048, 4096, 8192, 16384]
TOKENS = {"cuda": 16384, "cpu": 2048}
VOCABULARY = {"cuda": 267744, "cpu": 8000}
# how our layers are run: launched one by one, as CUDA graphs, by torch.compile
WAYS = {"eager": {}, "cuda_graphs": {"cuda_graphs": True}}
WAYS["compiled"] = {"compile_layers": True}
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
            loss = F.nll_loss(
                F.log_softmax(
                    self._logits(tokens), dim=-1, dtype=torch.float32
                ).flatten(0, 1),
                target.flatten(),
                reduction="sum",
            )
        else:
            loss = F.mse_loss(self._features(tokens).float(), target, reduction="sum")
        loss.backward()
        self.optimizer.step()
        # nothing is held between the steps but weights and Adam's sums
        self.optimizer.zero_grad()
        return loss.detach()

    def _features(self, tokens: Tensor) -> Tensor:
        if isinstance(self.model, CausalLanguageModel):
            return self.model.features(tokens)[0]
        return self.model.decoder.extract_features(tokens, encoder_out=None)[0]

    def _logits(self, tokens: Tensor) -> Tensor:
        if isinstance(self.model, CausalLanguageModel):
            return self.model(tokens)
        return self.model.decoder.output_layer(self._features(tokens))


def layer_step(layer: nn.Module, x: Tensor, grad: Tensor) -> Callable:
    """Forward and backward of a module: a call that gives all gradients."""
    inputs = [x, *(p for p in layer.parameters() if p.requires_grad)]

    def step():
        y = layer(x)
        # ours return their state, too
        y = y[0] if isinstance(y, tuple) else y
        return torch.autograd.grad(y, inputs, grad)

    return step


@dataclass
class TrainingStepOptions(ModelOptions):
    """Sizes that are None depend on the device."""

    dtype: str = option("float32", "of the weights", choices=DTYPES)
    backends: list[str] = option(["torch"], "of our ops", choices=["torch", "triton"])
    ways: list[str] = option(["eager"], "to run our layers", choices=[*WAYS])
    parts: list[str] = option([MODEL, STACK, LAYER], "to measure", choices=PARTS)
    variants: list[str] = option(["T2", "T1"], "ours", choices=[*VARIANTS])
    lengths: list[int] | None = option(None, "n", nargs="+", type=int)
    tokens: int | None = option(None, f"of a step ({TOKENS})", type=int)
    vocabulary: int | None = option(None, f"of the model ({VOCABULARY})", type=int)

    def check(self) -> None:
        super().check()
        self.tokens = self.tokens or TOKENS[self.device.type]
        self.vocabulary = self.vocabulary or VOCABULARY[self.device.type]
        fitting = [n for n in LENGTHS if self.tokens % n == 0]
        self.lengths = self.lengths or fitting or LENGTHS
        for length in self.lengths:
            if length < 1 or self.tokens % length:
                raise ValueError(
                    f"--lengths must divide --tokens {self.tokens}, got {length}"
                )


def build_models(options, layers: int, vocabulary: int) -> dict[str, nn.Module | str]:
    """All language models in training mode; for one that cannot run, why."""
    from .fairseq_transformer import build_transformer, with_sdpa

    size = (options.width, options.heads, layers, vocabulary)
    models: dict[str, nn.Module | str] = {}
    kinds = product(options.variants, options.backends, options.ways)
    for variant, backend, way in kinds:
        name = f"TransNormer {variant} ({backend})"
        name += "" if way == "eager" else f", {way}"
        reason = backend_skip(backend, options)
        if way == "cuda_graphs" and options.device.type != "cuda":
            reason = reason or "CUDA graphs need a CUDA device"
        with options.device:
            models[name] = reason or build_transnormer(
                *size, variant, backend=backend, **WAYS[way]
            )
    with options.device:
        shipped = build_transformer(*size, max(options.lengths) + 2)
    models |= {AS_SHIPPED: shipped, WITH_SDPA: with_sdpa(shipped)}
    for name, model in models.items():
        if not isinstance(model, str):
            models[name] = model.to(options.device, options.torch_dtype).train()
    return models


def entered(part: str, options) -> dict[str, object]:
    """Name -> what is called for a part, or why it cannot run."""
    if part != LAYER:
        vocabulary = STACK_VOCABULARY if part == STACK else options.vocabulary
        return {
            name: model
            if isinstance(model, str)
            else TrainingStep(model, with_output=part == MODEL)
            for name, model in build_models(options, options.layers, vocabulary).items()
        }
    from .fairseq_transformer import FairseqLayers

    found: dict[str, object] = {}
    for name, model in build_models(options, 2, STACK_VOCABULARY).items():
        if name in (AS_SHIPPED, WITH_SDPA):
            found[name] = FairseqLayers(model, 1)
            continue
        for i, kind in enumerate(("diag", "norm")):
            skipped = isinstance(model, str)
            found[f"{name}, {kind}"] = model if skipped else model.stack.layers[i]
    return found


def calls_of(part: str, steps: dict, options, length: int) -> dict:
    """A call for each name on inputs of this length, or why there is none."""
    shape = (options.tokens // length, length)
    vocabulary = STACK_VOCABULARY if part == STACK else options.vocabulary
    tokens, target = torch.randint(4, vocabulary, (2, *shape), device=options.device)
    wide = (2, *shape, options.width)
    x, grad = torch.randn(wide, device=options.device, dtype=options.torch_dtype)
    if part == STACK:
        target = torch.randn(wide[1:], device=options.device)
    calls = {}
    for name, step in steps.items():
        if isinstance(step, str):
            calls[name] = step
        elif part == LAYER:
            calls[name] = layer_step(step, x.detach().requires_grad_(), grad)
        else:
            calls[name] = partial(step, tokens, target)
    too_large = measure.quadratic_skip(4 * length**2, options)
    if too_large:
        calls[AS_SHIPPED] = too_large
    else:
        # kept from the first step on: made now, so that no measured step makes it
        shipped = steps[AS_SHIPPED]
        mask = (
            shipped.mask
            if part == LAYER
            else shipped.model.decoder.buffered_future_mask
        )
        mask(x.transpose(0, 1))
    return calls


@benchmark(TrainingStepOptions)
def training_step(options: TrainingStepOptions, settings: dict) -> Iterator[Rows]:
    """A training step over the length, at a constant number of tokens.

    Its parts: one layer forward and backward; forward, loss, backward and Adam of the
    layers without the output layer; the same of the whole language model. Weights have
    the dtype that is asked for, and Adam float32 copies of them.
    """
    limits = Limits(options)
    steps = {part: entered(part, options) for part in options.parts}
    for length in options.lengths:
        for part in options.parts:
            rows, calls = {}, {}
            for name, call in calls_of(part, steps[part], options, length).items():
                rows[name] = {"part": part, "provider": name, "length": length}
                rows[name]["batch"] = options.tokens // length
                reason = call if isinstance(call, str) else limits.over()
                if reason:
                    rows[name]["skipped"] = reason
                else:
                    calls[name] = call
            measure.measure(rows, calls, options)
            yield [*rows.values()]
