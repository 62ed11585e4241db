"""What training costs: a layer, the layers, the model, and a whole update.

TransNormer beside fairseq's pre-norm transformer_lm, as fairseq ships it and with its
attention through torch's fused kernels. Random tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import NamedTuple
from unittest import mock

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fairseq_transnormer.modules import CausalLanguageModel
from fairseq_transnormer.modules.layers import LayerStack
from fairseq_transnormer.ops import linear_cross_entropy

from . import measure
from .measure import GRAPH, LAUNCHED, Limits
from .models import (
    AS_SHIPPED,
    VARIANTS,
    WITH_SDPA,
    backend_skip,
    build_transnormer,
    transnormer_config,
)
from .options import (
    DTYPES,
    ModelOptions,
    Options,
    Rows,
    benchmark,
    option,
    two_numbers,
)

LAYER, LAYERS, STACK, MODEL = PARTS = ("layer", "layers", "stack", "model")
LENGTHS = [512, 1024, 2048, 4096, 8192, 16384]
TOKENS = {"cuda": 16384, "cpu": 2048}
VOCABULARY = {"cuda": 267744, "cpu": 8000}
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
            return self.model.features(tokens)
        return self.model.decoder.extract_features(tokens, encoder_out=None)[0]

    def _logits(self, tokens: Tensor) -> Tensor:
        if isinstance(self.model, CausalLanguageModel):
            return self.model(tokens)
        return self.model.decoder.output_layer(self._features(tokens))


def layer_step(layer: nn.Module, x: Tensor, grad: Tensor) -> Callable:
    """Forward and backward of a module: a call that gives all gradients."""
    inputs = [x, *(p for p in layer.parameters() if p.requires_grad)]
    return lambda: torch.autograd.grad(layer(x), inputs, grad)


class Way(NamedTuple):
    """How our layers are run in the part ``layers``.

    compiled: by torch.compile; graphs: with its mode reduce-overhead, CUDA graphs.
    row_wise: whether our kernels do the row-wise ops, beside the attentions.
    """

    compiled: bool = False
    graphs: bool = False
    row_wise: bool = True

    @contextmanager
    def prepared(self) -> Iterator[None]:
        """Inside, what is compiled is compiled anew, in this way."""
        if not self.compiled:
            yield
            return
        import torch._dynamo
        import torch._inductor.config as inductor

        torch._dynamo.reset()
        with ExitStack() as patches:
            patches.enter_context(inductor.patch({"triton.cudagraphs": self.graphs}))
            for name in () if self.row_wise else ROW_WISE:
                module = import_module(f"fairseq_transnormer.ops.{name}")
                patches.enter_context(mock.patch.object(module, "select", _torchs))
            yield


def _torchs(implementations: dict, *unused) -> Callable:
    return implementations["torch"]


# what torch computes where its compiler is to fuse it
ROW_WISE = ("gated_silu", "gated_linear_unit", "residual", "rms_norm")
LAYER_WAYS = {
    "our kernels": Way(),
    "our kernels, cuda_graphs": Way(),
    WITH_SDPA: Way(),
    "our kernels, compiled": Way(True),
    "our attentions, rest compiled": Way(True, row_wise=False),
    "our kernels, compiled with CUDA graphs": Way(True, True),
    "our attentions, rest compiled with CUDA graphs": Way(True, True, False),
}


def layers_of(name: str, options) -> nn.Module:
    """The layers with their last norm, without dropout: (B, N, C) -> the same shape."""
    size, way = (options.width, options.heads, options.layers), LAYER_WAYS[name]
    if name == WITH_SDPA:
        from .fairseq_transformer import FairseqLayers, build_transformer, with_sdpa

        model = with_sdpa(
            build_transformer(*size, STACK_VOCABULARY, max(options.lengths))
        )
        layers = FairseqLayers(model, options.layers, norm=True)
        for part in layers.modules():
            if getattr(part, "p", 0):
                part.p = 0.0
    else:
        replayed = name.endswith("cuda_graphs")
        kinds = {"compile_layers": way.compiled, "cuda_graphs": replayed}
        kinds |= {"backend": options.backends[0], "dropout": 0.0}
        layers = LayerStack(transnormer_config(*size, **kinds), causal=True)
    return layers.to(options.device, options.torch_dtype).train()


def rows_of_layers(length: int, options, limits: Limits) -> Iterator[Rows]:
    """What a kernel written by hand has to beat to stay: the same by torch.compile.

    One way after the other, since what one compiled another one must not run.
    """
    on_gpu = options.device.type == "cuda"
    for name, way in LAYER_WAYS.items():
        row = {"part": LAYERS, "provider": name, "length": length}
        row |= {"batch": options.tokens // length, "timing": LAUNCHED}
        rows, reason = [row], limits.over()
        if not on_gpu and (way.compiled or name.endswith("cuda_graphs")):
            reason = "is measured on a GPU"
        try:
            with way.prepared():
                if reason is None:
                    call = calls_of(
                        LAYERS, {name: layers_of(name, options)}, options, length
                    )
                    _time_layers(rows, call[name], way, options)
        except Exception as error:  # whatever does not compile is the answer
            reason = measure.why_not_measured(error)
        if reason:
            rows[-1]["skipped"] = reason
        yield rows


def _time_layers(rows: Rows, call: Callable, way: Way, options) -> None:
    def called() -> None:
        if way.graphs:
            # what the last call gave is not needed any more
            torch.compiler.cudagraph_mark_step_begin()
        call()

    for _ in range(5):  # until torch.compile's CUDA graphs are recorded
        called()
    rows[0]["seconds"] = measure.time_in_turns({"": called}, options)[""]
    if way.graphs:
        # then it was launched after all
        skips = torch._dynamo.utils.counters["inductor"]["cudagraph_skips"]
        rows[0]["cudagraph_skips"] = skips
    elif options.device.type == "cuda" and "cuda_graphs" not in rows[0]["provider"]:
        rows.append({**rows[0], "timing": GRAPH})
        del rows[1]["seconds"]
        replay = measure.captured(lambda: call)
        rows[1]["seconds"] = measure.time_in_turns({"": replay}, options)[""]


@dataclass
class TrainingStepOptions(ModelOptions):
    """Sizes that are None depend on the device."""

    dtype: str = option("float32", "of the weights", choices=DTYPES)
    backends: list[str] = option(["torch"], "of our ops", choices=["torch", "triton"])
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
    for variant in options.variants:
        for backend in options.backends:
            name = f"TransNormer {variant} ({backend})"
            models[name] = backend_skip(backend, options) or build_transnormer(
                *size, variant, backend=backend
            )
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
        elif part in (LAYER, LAYERS):
            calls[name] = layer_step(step, x.detach().requires_grad_(), grad)
        else:
            calls[name] = partial(step, tokens, target)
    if AS_SHIPPED not in steps:
        return calls
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

    Its parts: one layer forward and backward; on a GPU all layers likewise, by our
    kernels, by torch.compile and by fairseq's; forward, loss, backward and Adam of the
    layers without the output layer; the same of the whole language model. Weights have
    the dtype that is asked for, and Adam float32 copies of them.
    """
    limits = Limits(options)
    parts = [part for part in options.parts if part != LAYERS]
    steps = {part: entered(part, options) for part in parts}
    for length in options.lengths:
        if LAYERS in options.parts:
            yield from rows_of_layers(length, options, limits)
        for part in parts:
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


FAIRSEQS, OURS, COMPILED = "fairseq's", "ours", "ours, compiled layers"
GRAPHED = "ours, layers as CUDA graphs"
# way -> criterion, optimizer, and what it changes of our models
WAYS = {
    FAIRSEQS: ("cross_entropy", "adam", {}),
    OURS: ("chunked_cross_entropy", "fused_adam", {}),
    COMPILED: ("chunked_cross_entropy", "fused_adam", {"compile_layers": True}),
    GRAPHED: ("chunked_cross_entropy", "fused_adam", {"cuda_graphs": True}),
}
MODELS = {
    "TransNormer T2": "transnormer_t2",
    "TransNormer T1": "transnormer_t1",
    "1+elu": "linear_transformer",
    WITH_SDPA: None,
    AS_SHIPPED: None,
}
# logits in the dtype of the weights and in float32, log-softmax and its gradient
LOGITS_HELD = 3.5


def build(name: str, way: str, length: int, options) -> nn.Module:
    """One of ``MODELS`` at the paper's size as fairseq builds it, in training mode."""
    from fairseq.models import MODEL_DATACLASS_REGISTRY, MODEL_REGISTRY

    from .fairseq_transformer import build_transformer, task_of, with_sdpa

    torch.manual_seed(0)
    architecture = MODELS[name]
    if architecture is None:
        model = build_transformer(512, 8, 6, options.vocabulary, length + 2)
        model = with_sdpa(model) if name == WITH_SDPA else model
    else:
        config = MODEL_DATACLASS_REGISTRY[architecture](**WAYS[way][2])
        task = task_of(options.vocabulary)
        model = MODEL_REGISTRY[architecture].build_model(config, task)
    return model.to(options.device, options.torch_dtype).train()


def _chunked_loss(model: nn.Module, sample: dict) -> tuple[Tensor, int, dict]:
    """chunked_cross_entropy of fairseq's transformer_lm, whose weights are tied."""
    tokens = sample["net_input"]["src_tokens"]
    x, _ = model.decoder.extract_features(tokens, encoder_out=None)
    weight = model.decoder.output_projection.weight
    return linear_cross_entropy(x, weight, sample["target"])[0], sample["ntokens"], {}


class Update:
    """A call that is one update by fairseq's own classes; it returns the loss.

    way: one of WAYS. dtype: of the weights; half precision has float32 copies.
    """

    def __init__(self, model: nn.Module, way: str, vocabulary: int, dtype: str):
        from fairseq.criterions import CRITERION_REGISTRY
        from fairseq.dataclass.configs import FairseqConfig
        from fairseq.optim import OPTIMIZER_REGISTRY
        from fairseq.optim.fp16_optimizer import FP16Optimizer
        from fairseq.registry import REGISTRIES
        from omegaconf import OmegaConf

        from .fairseq_transformer import task_of

        criterion, optimizer, _ = WAYS[way]
        self.model = model
        made = CRITERION_REGISTRY[criterion](task_of(vocabulary), sentence_avg=False)
        fairseqs_model = type(model).__name__ == "TransformerLanguageModel"
        self.criterion = _chunked_loss if way != FAIRSEQS and fairseqs_model else made
        dataclasses = REGISTRIES["optimizer"]["dataclass_registry"]
        cfg = OmegaConf.structured(FairseqConfig())
        OmegaConf.set_struct(cfg, False)
        cfg.common.bf16, cfg.common.fp16 = dtype == "bfloat16", dtype == "float16"
        cfg.optimization.lr = [1e-5]
        cfg.optimizer = OmegaConf.structured(dataclasses[optimizer])
        cfg.optimizer._name, cfg.optimizer.adam_betas = optimizer, "(0.9,0.98)"
        cfg.optimizer.weight_decay = 0.01
        parameters = [p for p in model.parameters() if p.requires_grad]
        if dtype == "float32":
            self.optimizer = OPTIMIZER_REGISTRY[optimizer](cfg.optimizer, parameters)
        else:
            self.optimizer = FP16Optimizer.build_optimizer(cfg, parameters)

    def __call__(self, sample: dict) -> Tensor:
        look = getattr(self.criterion, "look_at_batch", lambda sample: {})
        loss, size, _ = self.criterion(self.model, {**sample, **look(sample)})
        self.optimizer.backward(loss)
        self.optimizer.multiply_grads(1 / size)
        self.optimizer.clip_grad_norm(0.0)
        self.optimizer.step()
        # of the weights, and of their float32 copies where there are some
        self.optimizer.zero_grad()
        for p in self.model.parameters():
            p.grad = None
        return loss.detach()


@dataclass
class UpdateCostOptions(Options):
    """Of the paper's size."""

    dtype: str = option("float32", "of the weights", choices=DTYPES)
    models: list[str] = option([*MODELS], "to measure", choices=[*MODELS])
    ways: list[str] = option([FAIRSEQS, OURS], "to train", choices=[*WAYS])
    batches: list[tuple[int, int]] = option(
        [(1024, 512), (2048, 512), (4096, 512), (4096, 2048)],
        "TOKENSxLENGTH, of a batch and of a sequence",
        type=two_numbers,
    )
    vocabulary: int = option(267744, "words")

    def check(self) -> None:
        for tokens, length in self.batches:
            if tokens % length:
                raise ValueError(
                    f"--batches must be multiples of the length, got {tokens}x{length}"
                )


def _why_not(name: str, way: str, tokens: int, options) -> str | None:
    """Why a case of update_cost is left out."""
    if WAYS[way][2] and MODELS[name] is None:
        return f"{', '.join(WAYS[way][2])} is of this package's layers"
    if way == GRAPHED and options.device.type != "cuda":
        return "CUDA graphs need a CUDA device"
    needed = LOGITS_HELD * tokens * options.vocabulary * 4
    if options.device.type == "cuda" or way != FAIRSEQS:
        return None
    free = measure.available_bytes()
    if needed <= free:
        return None
    return f"out of memory: {needed / 2**30:.0f} GiB of logits, {free / 2**30:.0f} free"


@benchmark(UpdateCostOptions)
def update_cost(options: UpdateCostOptions, settings: dict) -> Iterator[Rows]:
    """An update of the paper's language models, as fairseq trains them and as we do.

    fairseq's way: criterion cross_entropy, optimizer adam. Ours, the configurations':
    chunked_cross_entropy and fused_adam, on request with compile_layers or cuda_graphs;
    fairseq's transformer has our loss by ops.linear_cross_entropy.
    """
    from .fairseq_transformer import sample_of

    limits = Limits(options)
    for tokens, length in options.batches:
        sample = sample_of(tokens, length, options.vocabulary, options.device)
        # one model after the other: with Adam's sums each holds gigabytes
        for name in options.models:
            rows, calls = {}, {}
            for way in options.ways:
                rows[way] = row = {"provider": f"{name}, {way}", "model": name}
                row |= {"way": way, "tokens": tokens, "length": length}
                reason = limits.over() or _why_not(name, way, tokens, options)
                if reason:
                    row["skipped"] = reason
                    continue
                model = build(name, way, length, options)
                update = Update(model, way, options.vocabulary, options.dtype)
                calls[way] = partial(update, sample)
                try:
                    # the first makes Adam's sums
                    row["loss"] = float(calls[way]()) / tokens
                except RuntimeError as error:
                    if not measure.is_out_of_memory(error):
                        raise
                    row["skipped"] = measure.why_not_measured(error)
                    del calls[way]
            measure.measure(rows, calls, options)
            yield [*rows.values()]
