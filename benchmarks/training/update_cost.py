"""An update of the paper's language model, as fairseq trains it and as we do.

    python -m benchmarks update_cost

The paper's sizes and vocabulary; random tokens. fairseq's way: criterion cross_entropy,
optimizer adam. Ours, the configurations': chunked_cross_entropy and fused_adam, on
request with compile_layers or cuda_graphs. All by fairseq's own classes: forward, loss,
backward, gradients divided by the tokens, Adam; fairseq's transformer has our loss by
ops.linear_cross_entropy.
The models are TransNormer T1 and T2, linear attention with 1+elu, and fairseq's
transformer as shipped and with its attention through torch's fused kernels.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from types import SimpleNamespace
from typing import NamedTuple

import torch
from torch import nn

from fairseq_transnormer.argument_types import positive_integer
from fairseq_transnormer.ops import linear_cross_entropy

from ..harness import command_line
from ..harness.cases import Deadline, add_time_limit, time_in_turns
from ..harness.language_models import build_transformer
from ..harness.memory import (
    available_bytes,
    is_out_of_memory,
    peak_bytes,
    why_not_measured,
)
from ..harness.phases import AS_SHIPPED, COMPILED, FAIRSEQS, GRAPHED, OURS, WITH_SDPA

NAME = "update_cost"
MODELS = {
    "TransNormer T2": "transnormer_t2",
    "TransNormer T1": "transnormer_t1",
    "1+elu": "linear_transformer",
}
# fairseq's own, of the same sizes
FAIRSEQ_MODELS = (WITH_SDPA, AS_SHIPPED)
SIZE = {"width": 512, "heads": 8, "layers": 6}
# way -> criterion, optimizer
WAYS = {
    FAIRSEQS: ("cross_entropy", "adam"),
    OURS: ("chunked_cross_entropy", "fused_adam"),
    COMPILED: ("chunked_cross_entropy", "fused_adam"),
    GRAPHED: ("chunked_cross_entropy", "fused_adam"),
}
# way -> what it changes of our models
LAYERS = {COMPILED: {"compile_layers": True}, GRAPHED: {"cuda_graphs": True}}
# logits in the dtype of the weights and in float32, log-softmax and its gradient
LOGITS_HELD = 3.5


class Case(NamedTuple):
    """tokens: of a batch; length: of its sequences."""

    tokens: int
    length: int


def task_of(vocabulary: int) -> SimpleNamespace:
    """What models and criterions ask of a task."""
    from fairseq.data import Dictionary

    dictionary = Dictionary()
    while len(dictionary) < vocabulary:
        dictionary.add_symbol(str(len(dictionary)))
    return SimpleNamespace(source_dictionary=dictionary, target_dictionary=dictionary)


def build(name: str, way: str, length: int, task, options) -> nn.Module:
    """One of the models as fairseq builds it, in training mode."""
    from fairseq.models import MODEL_DATACLASS_REGISTRY, MODEL_REGISTRY

    from .sdpa_transformer import with_sdpa

    torch.manual_seed(0)
    if name in FAIRSEQ_MODELS:
        model = build_transformer(
            **SIZE, vocabulary=options.vocabulary, max_positions=length + 2
        )
        model = with_sdpa(model) if name == WITH_SDPA else model
    else:
        cfg = MODEL_DATACLASS_REGISTRY[MODELS[name]](**LAYERS.get(way, {}))
        model = MODEL_REGISTRY[MODELS[name]].build_model(cfg, task)
    dtype = getattr(torch, options.dtype)
    return model.to(options.device, dtype).train()


def chunked_loss(model: nn.Module, sample: dict) -> tuple[torch.Tensor, int, dict]:
    """chunked_cross_entropy of fairseq's transformer_lm, whose weights are tied."""
    tokens = sample["net_input"]["src_tokens"]
    x, _ = model.decoder.extract_features(tokens, encoder_out=None)
    weight = model.decoder.output_projection.weight
    return linear_cross_entropy(x, weight, sample["target"])[0], sample["ntokens"], {}


class Update:
    """A call that is one update; it returns the loss.

    Args:
        model: its weights are updated.
        way: one of WAYS.
        task: see ``task_of``.
        dtype: of the weights; half precision has float32 copies, as --bf16 and --fp16.
    """

    def __init__(self, model: nn.Module, way: str, task, dtype: str):
        from fairseq.criterions import CRITERION_REGISTRY
        from fairseq.dataclass.configs import FairseqConfig
        from fairseq.models.transformer_lm import TransformerLanguageModel
        from fairseq.optim import OPTIMIZER_REGISTRY
        from fairseq.optim.fp16_optimizer import FP16Optimizer
        from fairseq.registry import REGISTRIES
        from omegaconf import OmegaConf

        criterion, optimizer = WAYS[way]
        self.model = model
        self.criterion = CRITERION_REGISTRY[criterion](task, sentence_avg=False)
        if way != FAIRSEQS and isinstance(model, TransformerLanguageModel):
            self.criterion = chunked_loss
        dataclasses = REGISTRIES["optimizer"]["dataclass_registry"]
        cfg = OmegaConf.structured(FairseqConfig())
        OmegaConf.set_struct(cfg, False)
        cfg.common.bf16, cfg.common.fp16 = dtype == "bfloat16", dtype == "float16"
        cfg.optimization.lr = [1e-5]
        cfg.optimizer = OmegaConf.structured(dataclasses[optimizer])
        settings = cfg.optimizer
        settings._name, settings.adam_betas = optimizer, "(0.9,0.98)"
        settings.weight_decay = 0.01
        parameters = [p for p in model.parameters() if p.requires_grad]
        if dtype == "float32":
            self.optimizer = OPTIMIZER_REGISTRY[optimizer](settings, parameters)
        else:
            self.optimizer = FP16Optimizer.build_optimizer(cfg, parameters)

    def _forget_gradients(self) -> None:
        # of the weights, and of their float32 copies where there are some
        self.optimizer.zero_grad()
        for p in self.model.parameters():
            p.grad = None

    def __call__(self, sample: dict) -> torch.Tensor:
        look = getattr(self.criterion, "look_at_batch", lambda sample: {})
        loss, size, _ = self.criterion(self.model, {**sample, **look(sample)})
        self.optimizer.backward(loss)
        self.optimizer.multiply_grads(1 / size)
        self.optimizer.clip_grad_norm(0.0)
        self.optimizer.step()
        self._forget_gradients()
        return loss.detach()


def sample_of(case: Case, vocabulary: int, device: torch.device) -> dict:
    """A batch without pads, as the task language_modeling makes it."""
    shape = (case.tokens // case.length, case.length)
    tokens = torch.randint(4, vocabulary, (2, *shape), device=device)
    lengths = torch.full(shape[:1], case.length, device=device)
    return {
        "net_input": {"src_tokens": tokens[0], "src_lengths": lengths},
        "target": tokens[1],
        "ntokens": case.tokens,
        "nsentences": shape[0],
    }


def measure(options) -> Iterator[list[dict[str, object]]]:
    """The rows of one case after the other: all models in both ways."""
    deadline = Deadline(options.time_limit)
    task = task_of(options.vocabulary)
    for case in options.cases:
        rows, sample = [], sample_of(case, options.vocabulary, options.device)
        # one model after the other: with Adam's sums each holds gigabytes
        for name in options.models:
            found = _rows(name, case, sample, task, options, deadline)
            rows += found
            print(f"{NAME}: {case}, {name}", flush=True)
        yield rows


def _rows(name: str, case: Case, sample: dict, task, options, deadline) -> list[dict]:
    """Of one model: both ways take turns."""
    rows, calls = {}, {}
    for way in options.ways:
        rows[way] = row = {
            "model": name,
            "way": way,
            "tokens": case.tokens,
            "length": case.length,
        }
        reason = deadline.over() or _skipped(name, way, case, options)
        if reason:
            row["skipped"] = reason
            continue
        model = build(name, way, case.length, task, options)
        update = Update(model, way, task, options.dtype)
        call = functools.partial(update, sample)
        try:
            # the first makes Adam's sums
            row["loss"] = float(call()) / case.tokens
            row["peak_bytes"] = peak_bytes(call, options.device)
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            row["skipped"] = why_not_measured(error)
            row.pop("loss", None)
        else:
            calls[way] = call
    time_in_turns(rows, calls, options)
    return list(rows.values())


def _skipped(name: str, way: str, case: Case, options) -> str | None:
    """Why a case is left out: fairseq's layers are not compiled, and the logits of its
    criterion may not fit this host."""
    if way in LAYERS and name in FAIRSEQ_MODELS:
        return f"{', '.join(LAYERS[way])} is of this package's layers"
    if way == GRAPHED and options.device.type != "cuda":
        return "CUDA graphs need a CUDA device"
    if options.device.type != "cpu" or way != FAIRSEQS:
        return None
    needed = LOGITS_HELD * case.tokens * options.vocabulary * 4
    if needed <= available_bytes():
        return None
    return f"{needed / 2**30:.0f} GiB of logits; {available_bytes() / 2**30:.0f} free"


def parse(arguments: list[str] | None):
    """The options."""
    parser = command_line.benchmark_parser(NAME, __doc__.splitlines()[0])
    add = parser.add_argument
    add("--dtype", choices=command_line.DTYPES, default="float32", help="of weights")
    names = [*MODELS, *FAIRSEQ_MODELS]
    add("--models", nargs="+", choices=names, default=names, help="to measure")
    add("--ways", nargs="+", choices=WAYS, default=[FAIRSEQS, OURS], help="to train")
    add(
        "--batches",
        nargs="+",
        type=command_line.two_numbers("TOKENSxLENGTH", "4096x512"),
        default=[(1024, 512), (2048, 512), (4096, 512), (4096, 2048)],
        metavar="TOKENSxLENGTH",
        help="tokens of a batch and of a sequence",
    )
    add("--vocabulary", type=positive_integer, default=267744, help="words")
    add_time_limit(parser, 7200)
    options = parser.parse_args(arguments)
    options.cases = [Case(*batch) for batch in options.batches]
    for tokens, length in options.batches:
        if tokens % length:
            parser.error(
                f"--batches {tokens}x{length}; allowed: multiples of the length"
            )
    return options


def main(arguments: list[str] | None = None) -> None:
    """The command line."""
    options = parse(arguments)
    import fairseq_transnormer.plugin  # noqa: F401 (fills fairseq's registries)

    command_line.run(
        NAME,
        options,
        arguments,
        {"vocabulary": options.vocabulary, "ways": WAYS},
        measure(options),
    )
