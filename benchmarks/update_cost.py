"""A whole update of the paper's language models, by fairseq's own classes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from fairseq_transnormer.ops import linear_cross_entropy

from . import measure
from .measure import Limits
from .models import AS_SHIPPED, WITH_SDPA
from .options import DTYPES, Options, Rows, benchmark, option, two_numbers

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
