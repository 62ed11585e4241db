"""A whole update of the paper's language models, by fairseq's own classes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import product

import torch
from torch import Tensor, nn

from fairseq_transnormer.ops import linear_cross_entropy

from . import measure
from .models import AS_SHIPPED, NO_GRAPHS, WITH_SDPA
from .options import Rows, UpdateCost, chosen

FAIRSEQS, GRAPHED = "fairseq's", "ours, layers as CUDA graphs"
# way -> criterion, optimizer, and what it changes of our models
WAYS = {
    FAIRSEQS: ("cross_entropy", "adam", {}),
    "ours": ("chunked_cross_entropy", "fused_adam", {}),
    "ours, compiled layers": (
        "chunked_cross_entropy",
        "fused_adam",
        {"compile_layers": True},
    ),
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


def build(name: str, way: str, length: int, options: UpdateCost) -> nn.Module:
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

    way: one of WAYS. Half precision has float32 copies of the weights.
    """

    def __init__(self, model: nn.Module, way: str, options: UpdateCost):
        from fairseq.criterions import CRITERION_REGISTRY
        from fairseq.dataclass.configs import FairseqConfig
        from fairseq.optim import OPTIMIZER_REGISTRY
        from fairseq.optim.fp16_optimizer import FP16Optimizer
        from fairseq.registry import REGISTRIES
        from omegaconf import OmegaConf

        from .fairseq_transformer import task_of

        criterion, optimizer, _ = WAYS[way]
        task, dtype, self.model = task_of(options.vocabulary), options.dtype, model
        self.criterion = CRITERION_REGISTRY[criterion](task, sentence_avg=False)
        if way != FAIRSEQS and type(model).__name__ == "TransformerLanguageModel":
            self.criterion = _chunked_loss
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


def _why_not(name: str, way: str, tokens: int, options: UpdateCost) -> str | None:
    """Why a case of update_cost is left out."""
    if WAYS[way][2] and MODELS[name] is None:
        return f"{', '.join(WAYS[way][2])} is of this package's layers"
    if way == GRAPHED and not options.on_gpu:
        return NO_GRAPHS
    logits = LOGITS_HELD * tokens * options.vocabulary * 4
    return measure.memory_skip(logits, options) if way == FAIRSEQS else None


def update_cost(options: UpdateCost, settings: dict) -> Iterator[Rows]:
    from .fairseq_transformer import sample_of

    models, ways = chosen("--models", options.models, MODELS), options.ways
    chosen("--ways", ways, WAYS)
    limits = measure.Limits(options)

    def first(name: str, way: str, row: dict, sample: dict):
        model = build(name, way, row["length"], options)
        call = partial(Update(model, way, options), sample)
        # this makes Adam's sums
        row["loss"] = float(call()) / row["tokens"]
        return call

    # one model after the other: with Adam's sums each holds gigabytes
    for (tokens, length), name in product(options.batches, models):
        sample = sample_of(tokens, length, options.vocabulary, options.device)
        cases = []
        for way in ways:
            row = {"provider": f"{name}, {way}", "model": name, "way": way}
            row |= {"tokens": tokens, "length": length}
            reason = limits.over() or _why_not(name, way, tokens, options)
            call = reason or measure.attempt(first, name, way, row, sample)
            cases.append((row, call))
        yield measure.measure(cases, options)
