"""Time and memory of training over the length, at a constant number of tokens.

    python -m benchmarks training_step

TransNormer beside fairseq's pre-norm transformer_lm, as fairseq ships it and with its
self-attention through torch's fused kernels, in three parts: one layer forward and
backward; a training step (forward, loss, backward, Adam) of the layers without the
output layer; the same of the whole language model. The paper's sizes, random tokens.

Weights have the dtype that is asked for, and Adam float32 copies of them: what
fairseq-train does with --bf16 and --fp16, which do not autocast.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import nn

from fairseq_transnormer.argument_types import positive_integer

from ..harness import command_line
from ..harness.cases import Deadline, add_time_limit, time_in_turns
from ..harness.language_models import VARIANTS, build_transformer, build_transnormer
from ..harness.memory import peak_bytes, why_not_measured
from ..harness.phases import AS_SHIPPED, LAYER, MODEL, STACK, WITH_SDPA
from .training_calls import TrainingStep, VanillaLayer, layer_step

NAME = "training_step"
LENGTHS = [512, 1024, 2048, 4096, 8192, 16384]
TOKENS = {"cuda": 16384, "cpu": 2048}
VOCABULARY = {"cuda": 267744, "cpu": 8000}
PARTS = (MODEL, STACK, LAYER)
# The layers alone: the embedding, whose gradient is as large as it, must not show
STACK_VOCABULARY = 1000
# RMS of the difference of both vanilla transformers' features, relative
SAME = {"float32": 1e-4, "float16": 1e-2, "bfloat16": 5e-2}

Contestants = dict[str, nn.Module | str]


def build_models(options, layers: int, vocabulary: int) -> Contestants:
    """All language models in training mode; for one that cannot run, why."""
    from .sdpa_transformer import relative_difference, with_sdpa

    dtype, device = getattr(torch, options.dtype), options.device
    size = (options.width, options.heads, layers, vocabulary)
    models: Contestants = {}
    for variant in options.variants:
        for backend in options.backends:
            name = f"TransNormer {variant} ({backend})"
            models[name] = command_line.backend_skip(
                backend, dtype, options.width // options.heads, device
            )
            if models[name] is None:
                with device:
                    model = build_transnormer(*size, variant, backend)
                models[name] = model.to(device, dtype).train()
    with device:
        shipped = build_transformer(*size, max(options.lengths) + 2)
    models[AS_SHIPPED] = shipped = shipped.to(device, dtype).train()
    models[WITH_SDPA] = twin = with_sdpa(shipped)
    tokens = torch.randint(4, vocabulary, (2, min(options.lengths)), device=device)
    difference = relative_difference(shipped, twin, tokens)
    if not difference < SAME[options.dtype]:
        models[WITH_SDPA] = f"its features differ from fairseq's by {difference:.2g}"
    return models


def build_layers(options) -> Contestants:
    """One layer of each kind in training mode; for one that cannot run, why."""
    layers: Contestants = {}
    for name, model in build_models(options, 2, STACK_VOCABULARY).items():
        if not name.startswith("TransNormer"):
            layers[name] = model if isinstance(model, str) else VanillaLayer(model)
            continue
        for i, kind in enumerate(("diag", "norm")):
            found = model if isinstance(model, str) else model.stack.layers[i]
            layers[f"{name}, {kind}"] = found
    return layers


def make_calls(
    part: str, contestants: Contestants, options, length: int
) -> dict[str, Callable[[], object] | str]:
    """A call for each contestant on inputs of this length, or why there is none."""
    batch = options.tokens // length
    placement = {"device": options.device, "dtype": getattr(torch, options.dtype)}
    vocabulary = STACK_VOCABULARY if part == STACK else options.vocabulary
    tokens, target = torch.randint(
        4, vocabulary, (2, batch, length), device=options.device
    )
    if part == STACK:
        target = torch.randn(batch, length, options.width, device=options.device)
    x, grad = torch.randn(2, batch, length, options.width, **placement)
    calls = {}
    for name, contestant in contestants.items():
        if isinstance(contestant, str):
            calls[name] = contestant
        elif part != LAYER:
            calls[name] = lambda step=contestant: step(tokens, target)
        else:
            # fairseq has the length first
            shape = (length, batch, -1) if name in (AS_SHIPPED, WITH_SDPA) else x.shape
            inputs = x.detach().view(shape).requires_grad_()
            calls[name] = layer_step(contestant, inputs, grad.view(shape))
    mask_bytes = length**2 * torch.float32.itemsize
    too_large = command_line.quadratic_skip(mask_bytes, options)
    if too_large:
        calls[AS_SHIPPED] = too_large
    else:
        # kept from the first step on: made now, so that no measured step makes it
        shipped = contestants[AS_SHIPPED]
        model = shipped if part == LAYER else shipped.model.decoder
        model.buffered_future_mask(x.view(length, batch, -1))
    return calls


def measure_case(part: str, calls: dict, options, length: int, deadline: Deadline):
    """A row for each contestant; nothing new begins after the deadline."""
    rows, ready = {}, {}
    for name, call in calls.items():
        rows[name] = row = {
            "part": part,
            "contestant": name,
            "length": length,
            "batch": options.tokens // length,
        }
        if isinstance(call, str):
            row["skipped"] = call
        elif deadline.over():
            row["skipped"] = deadline.over()
        else:
            failure = _warm_up(call, row, options.device)
            if failure is None:
                ready[name] = call
            else:
                row["skipped"] = failure
    time_in_turns(rows, ready, options)
    return list(rows.values())


def _warm_up(call: Callable[[], object], row: dict, device) -> str | None:
    """Fill in the peak memory; why the contestant cannot be measured, if so.

    One that fails must not cost the others their rows.
    """
    try:
        row["peak_bytes"] = peak_bytes(call, device)
    except Exception as error:
        failure = why_not_measured(error)
    else:
        return None
    row.pop("peak_bytes", None)
    if device.type == "cuda":
        torch.cuda.empty_cache()
    return failure


def measure(options) -> Iterator[list[dict[str, object]]]:
    """The rows of one length after the other."""
    deadline = Deadline(options.time_limit)
    entered = {}
    for part in options.parts:
        if part == LAYER:
            entered[part] = build_layers(options)
            continue
        vocabulary = STACK_VOCABULARY if part == STACK else options.vocabulary
        entered[part] = {
            name: model
            if isinstance(model, str)
            else TrainingStep(model, with_output=part == MODEL)
            for name, model in build_models(options, options.layers, vocabulary).items()
        }
    for length in options.lengths:
        rows = []
        for part, contestants in entered.items():
            calls = make_calls(part, contestants, options, length)
            rows += measure_case(part, calls, options, length, deadline)
            print(f"{NAME}: length {length}, {part}", flush=True)
        yield rows


def parse(arguments: list[str] | None):
    """The options; those that depend on the device are filled in."""
    parser = command_line.benchmark_parser(NAME, __doc__.splitlines()[0])
    command_line.add_dtype_and_backends(parser, "of the weights")
    add = parser.add_argument
    add("--parts", choices=PARTS, nargs="+", default=list(PARTS), help="to measure")
    add(
        "--variants",
        choices=list(VARIANTS),
        nargs="+",
        default=["T2", "T1"],
        help="ours",
    )
    add(
        "--lengths",
        type=positive_integer,
        nargs="+",
        help=f"n; those of {LENGTHS} that divide --tokens where this is not given",
    )
    for name in ("tokens", "vocabulary"):
        by_device = {"tokens": TOKENS, "vocabulary": VOCABULARY}[name]
        values = ", ".join(f"{value} on {key}" for key, value in by_device.items())
        add(
            f"--{name}", type=positive_integer, help=f"{values} where this is not given"
        )
    command_line.add_width_and_heads(parser, 512)
    add("--layers", type=positive_integer, default=6, help="of the models")
    add_time_limit(parser, 3600)
    options = parser.parse_args(arguments)
    command_line.check_width_and_heads(parser, options)
    options.tokens = options.tokens or TOKENS[options.device.type]
    options.vocabulary = options.vocabulary or VOCABULARY[options.device.type]
    if options.lengths is None:
        options.lengths = [n for n in LENGTHS if options.tokens % n == 0]
    for length in options.lengths or [None]:
        if length is None or options.tokens % length:
            parser.error(
                f"--tokens {options.tokens} with a length of {length or LENGTHS}; "
                "allowed: multiples of each length"
            )
    return options


def main(arguments: list[str] | None = None) -> None:
    """The command line."""
    options = parse(arguments)
    command_line.run(
        NAME,
        options,
        arguments,
        {
            "tokens": options.tokens,
            "vocabulary": options.vocabulary,
            "vocabulary_of_the_stack": STACK_VOCABULARY,
            "width": options.width,
            "heads": options.heads,
            "layers": options.layers,
        },
        measure(options),
    )
