"""Time for each generated token, and what is kept between tokens, over the context.

    python -m benchmarks generation_cost

A TransNormer T2 of the paper's width, heads and layers, but a small vocabulary, beside
the same model without states and fairseq's transformer_lm of the same size with its
cache of keys and values; on a GPU also with the step as a CUDA graph. Batch 1, random
weights in the dtype that is asked for, no dropout.
"""

from __future__ import annotations

import torch

from fairseq_transnormer.argument_types import integer_between, positive_integer
from fairseq_transnormer.modules.cpu_decoding import lay_out_for_decoding

from ..harness import command_line
from ..harness.cases import time_in_turns
from ..harness.language_models import build_transformer, build_transnormer
from ..harness.memory import first_line
from ..harness.phases import AS_SHIPPED, PREFILL, STEP
from .decoders import (
    CachingTransformer,
    GraphedTransNormer,
    RecomputingTransNormer,
    StatefulTransNormer,
)

NAME = "generation_cost"
CONTEXTS = [64, 512, 4096, 16384]
OUR_DECODERS = {
    "states": StatefulTransNormer,
    "states, CUDA graph": GraphedTransNormer,
    "recomputing": RecomputingTransNormer,
}


def measure(options) -> tuple[list[dict[str, object]], dict[str, int]]:
    """A row for each contestant, phase and context; and the parameters of the models.

    A row's ``context`` is the length in front of the first timed step; the following
    ones see one token more each.
    """
    dtype = getattr(torch, options.dtype)
    size = (options.width, options.heads, options.layers, options.vocabulary)
    # room for the steps, and for fairseq's positions starting after the padding index
    longest = max(options.contexts) + options.most_repeats + options.least_repeats + 2
    ours = {
        backend: command_line.backend_skip(
            backend, dtype, options.width // options.heads, options.device
        )
        or build_transnormer(*size, backend=backend).to(options.device, dtype)
        for backend in options.backends
    }
    if options.device.type == "cpu":
        # as ``generation`` does with a checkpoint
        for model in ours.values():
            if not isinstance(model, str):
                lay_out_for_decoding(model)
    transformer = build_transformer(*size, longest).to(options.device, dtype)
    models = [("TransNormer T2", model) for model in ours.values()]
    parameters = {
        name: sum(p.numel() for p in model.parameters())
        for name, model in [*models, (AS_SHIPPED, transformer)]
        if not isinstance(model, str)
    }
    rows = []
    for context in options.contexts:
        prompt = torch.randint(
            4, options.vocabulary, (1, context), device=options.device
        )
        for measure_phase in (measure_steps, measure_prefill):
            with torch.no_grad():
                rows += measure_phase(ours, transformer, prompt, options)
        print(f"{NAME}: context {context}", flush=True)
    return rows, parameters


def measure_steps(ours: dict, transformer, prompt, options) -> list[dict]:
    """Rows of one-token steps after the prompt."""
    decoders = {}
    for backend, model in ours.items():
        for way, kind in OUR_DECODERS.items():
            name = f"TransNormer T2 ({backend}), {way}"
            decoders[name] = model if isinstance(model, str) else kind(model)
    decoders[f"{AS_SHIPPED}, cache"] = CachingTransformer(transformer)
    decoders[f"{AS_SHIPPED}, cache, CUDA graph"] = (
        "its cache grows with each token, and a graph has fixed shapes"
    )
    rows, calls, token = {}, {}, prompt[:, :1]
    for name, decoder in decoders.items():
        reason = decoder if isinstance(decoder, str) else None
        if name.endswith("CUDA graph") and options.device.type != "cuda":
            reason = "CUDA graphs need a CUDA device"
        if reason is None:
            reason = _set_context(decoder, prompt)
        rows[name] = _row(name, STEP, prompt, skipped=reason)
        if reason is None:
            rows[name]["kept_bytes"] = decoder.kept_bytes()
            calls[name] = lambda decoder=decoder: decoder.step(token)
    return _timed(rows, calls, options)


def _set_context(decoder, prompt) -> str | None:
    """Take in the prompt, by a step at last, which warms the steps up.

    Returns why the step cannot be captured, if so.
    """
    try:
        decoder.set_context(prompt[:, :-1])
        decoder.step(prompt[:, -1:])
    except RuntimeError as error:
        if not isinstance(decoder, GraphedTransNormer):
            raise
        return f"its step cannot be captured: {first_line(error)}"
    return None


def measure_prefill(ours: dict, transformer, prompt, options) -> list[dict]:
    """Rows of taking in the prompt."""
    peer, length = CachingTransformer(transformer), prompt.shape[1]
    calls, skipped = {}, {}
    for backend, model in ours.items():
        name = f"TransNormer T2 ({backend}), states"
        if isinstance(model, str):
            calls[name], skipped[name] = None, model
            continue
        decoder = StatefulTransNormer(model)
        calls[name] = lambda decoder=decoder: decoder.prefill(prompt)
    plain = f"{AS_SHIPPED}, plain pass without cache"
    calls[plain] = lambda: peer.prefill_without_cache(prompt)
    mask_bytes = length**2 * getattr(torch, options.dtype).itemsize
    skipped[plain] = command_line.quadratic_skip(mask_bytes, options)
    by_token = f"{AS_SHIPPED}, token by token"
    calls[by_token] = lambda: peer.prefill(prompt)
    if length > options.token_by_token_limit:
        skipped[by_token] = (
            f"{length} steps, above --token-by-token-limit "
            f"{options.token_by_token_limit}"
        )
    rows = {
        name: _row(name, PREFILL, prompt, skipped=skipped.get(name)) for name in calls
    }
    if options.device.type == "cuda":
        # compiles kernels
        for name, call in calls.items():
            if "skipped" not in rows[name]:
                call()
    return _timed(rows, calls, options)


def _row(name: str, phase: str, prompt: torch.Tensor, **values) -> dict[str, object]:
    row = {"contestant": name, "phase": phase, "context": prompt.shape[1], **values}
    return {key: value for key, value in row.items() if value is not None}


def _timed(rows: dict[str, dict], calls: dict, options) -> list[dict]:
    calls = {name: calls[name] for name, row in rows.items() if "skipped" not in row}
    time_in_turns(rows, calls, options)
    return list(rows.values())


def main(arguments: list[str] | None = None) -> None:
    """The command line."""
    parser = command_line.benchmark_parser(NAME, __doc__.splitlines()[0])
    command_line.add_dtype_and_backends(parser, "of the weights")
    add = parser.add_argument
    add("--contexts", type=integer_between(2), nargs="+", default=CONTEXTS)
    command_line.add_width_and_heads(parser, 512)
    add("--layers", type=positive_integer, default=6, help="of both models")
    add("--vocabulary", type=positive_integer, default=8000, help="entries")
    add(
        "--token-by-token-limit",
        type=positive_integer,
        default=512,
        help="longest prompt that fairseq's decoder takes token by token",
    )
    options = parser.parse_args(arguments)
    command_line.check_width_and_heads(parser, options)
    command_line.prepare(options)
    measurements, parameters = measure(options)
    record = command_line.record(
        NAME,
        options,
        arguments,
        {
            "batch": 1,
            "dtype": options.dtype,
            "width": options.width,
            "heads": options.heads,
            "layers": options.layers,
            "vocabulary": options.vocabulary,
            "parameters": parameters,
        },
    )
    record.add(measurements)
    record.finish()
