"""Layers by our kernels beside the same by torch.compile, and beside fairseq's.

    python -m benchmarks gates --device cuda

What a kernel written by hand has to beat to stay. The layers of T2 at the paper's width
are run forward and backward. Each contestant prepares in a process of its own, all side
by side, since torch.compile takes long; then they measure one after the other, alone on
the device, with cold caches: as Python launches them, and as a CUDA graph.
"""

from __future__ import annotations

import argparse
import importlib
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import NamedTuple

import torch
from torch import Tensor, nn

from fairseq_transnormer.argument_types import positive_integer
from fairseq_transnormer.modules.layers import LayerStack

from ..harness import cold_cache, command_line
from ..harness.cases import add_time_limit
from ..harness.cuda_graphs import captured
from ..harness.language_models import DROPOUT, build_transformer, transnormer_config
from ..harness.memory import why_not_measured
from ..harness.phases import GRAPH, LAUNCHED
from ..harness.timing import interleave
from .training_calls import layer_step

NAME = "gates"
SHAPES = {"cuda": [(8, 512), (1, 8192)], "cpu": [(2, 64)]}
# of the time limit, for what compiles
PREPARATION = 0.65
# what torch computes where its compiler is to fuse it
ROW_WISE = ("gated_silu", "gated_linear_unit", "residual", "rms_norm")
FAIRSEQS = "fairseq's layers, SDPA"
# calls until torch.compile's CUDA graphs are recorded
WARM_UPS = 5


class Way(NamedTuple):
    """How our layers are run.

    compiled: by torch.compile.
    graphs: with what its mode reduce-overhead adds, CUDA graphs.
    row_wise: whether our kernels do the row-wise ops, beside the attentions.
    replayed: with the layers' own graphs, ``cuda_graphs``.
    """

    compiled: bool
    graphs: bool = False
    row_wise: bool = True
    replayed: bool = False


WAYS = {
    "our kernels": Way(False),
    "our kernels, cuda_graphs": Way(False, replayed=True),
    "our kernels, compiled": Way(True),
    "our kernels, compiled with CUDA graphs": Way(True, graphs=True),
    "our attentions, rest compiled": Way(True, row_wise=False),
    "our attentions, rest compiled with CUDA graphs": Way(
        True, graphs=True, row_wise=False
    ),
    FAIRSEQS: None,
}


class FairseqLayers(nn.Module):
    """The layers and the last norm of transformer_lm, with causal SDPA."""

    def __init__(self, options: argparse.Namespace, dropout: float):
        super().__init__()
        from .sdpa_transformer import with_sdpa

        size = options.width, options.heads, options.layers
        longest = max(length for _, length in options.shapes)
        decoder = with_sdpa(build_transformer(*size, 1000, longest)).decoder
        self.layers, self.norm = decoder.layers, decoder.layer_norm
        for part in self.modules():
            # that of attention is 0
            if getattr(part, "p", 0):
                part.p = dropout

    def forward(self, x: Tensor) -> Tensor:
        """(B, N, C) -> the same shape."""
        x = x.transpose(0, 1)
        for layer in self.layers:
            x, *_ = layer(x)
        return self.norm(x).transpose(0, 1)


def our_layers(options: argparse.Namespace, dropout: float, way: Way) -> LayerStack:
    """T2's, half of each kind."""
    backend = "triton" if options.device.type == "cuda" else "torch"
    size = options.width, options.heads, options.layers
    config = transnormer_config(*size, backend=backend)
    config = replace(
        config,
        dropout=dropout,
        compile_layers=way.compiled,
        cuda_graphs=way.replayed,
    )
    return LayerStack(config, causal=True)


def calls_of(name: str, options: argparse.Namespace) -> Iterator[tuple[dict, Callable]]:
    """Rows and their calls, forward and backward; with dropout at one shape."""
    way, dtype = WAYS[name], getattr(torch, options.dtype)
    if way is not None and way.compiled:
        prepare_compiler(way)
    for dropout in (0.0, DROPOUT):
        if way is None:
            stack = FairseqLayers(options, dropout)
        else:
            stack = our_layers(options, dropout, way)
        stack = stack.to(options.device, dtype).train()
        for shape in options.shapes[:1] if dropout else options.shapes:
            size = (*shape, options.width)
            x, grad = (
                torch.randn(size, device=options.device).to(dtype) for _ in range(2)
            )
            row = {"contestant": name, "batch": shape[0], "length": shape[1]}
            yield (
                row | {"dropout": dropout},
                layer_step(stack, x.requires_grad_(), grad),
            )


def prepare_compiler(way: Way) -> None:
    """Settings of this process."""
    import torch._dynamo
    import torch._inductor.config

    torch._dynamo.config.automatic_dynamic_shapes = False
    torch._dynamo.config.recompile_limit = 64
    torch._inductor.config.triton.cudagraphs = way.graphs
    if way.row_wise:
        return
    ops = "fairseq_transnormer.ops"
    for name in ROW_WISE:
        module = importlib.import_module(f"{ops}.{name}")
        module.select = lambda implementations, *_: implementations["torch"]


def contestant(name: str, options: argparse.Namespace, pipe: Connection) -> None:
    """A process: prepares, says so ([]) or why not (text), waits, sends its rows."""
    command_line.prepare(options)
    way = WAYS[name]
    replays = way is not None and way.graphs
    try:
        calls = list(calls_of(name, options))
        for _, call in calls:
            for _ in range(WARM_UPS):
                called(call, replays)
    except Exception as error:  # whatever does not compile is the answer
        return pipe.send(why_not_measured(error))
    pipe.send([])
    pipe.recv()
    rows = []
    for row, call in calls:
        timings = [LAUNCHED]
        own = way is not None and way.replayed
        if options.device.type == "cuda" and not (replays or own or row["dropout"]):
            timings.append(GRAPH)
        for timing in timings:
            rows.append(found := row | {"timing": timing})
            if replays:
                # then it was launched after all
                skips = torch._dynamo.utils.counters["inductor"]["cudagraph_skips"]
                found["cudagraph_skips"] = skips
            try:
                found["seconds"] = seconds(call, timing, replays, options)
            except Exception as error:
                found["skipped"] = why_not_measured(error)
    pipe.send(rows)


def called(call: Callable, replays: bool) -> None:
    if replays:
        # what the last call gave is not needed any more
        torch.compiler.cudagraph_mark_step_begin()
    call()


def seconds(call: Callable, timing: str, replays: bool, options) -> list[float]:
    """Samples with cold caches."""
    if timing == GRAPH:
        timed = captured(lambda: call)
    else:

        def timed() -> None:
            called(call, replays)

    flush = cold_cache.flusher(options.device, wait=timing == LAUNCHED)
    repeats = command_line.repeats(options)
    return interleave({"": timed}, options.device, repeats, before_each=flush)[""]


def received(pipe: Connection, until: float) -> list[dict] | str:
    """Rows, or why there are none."""
    try:
        if pipe.poll(max(0.0, until - time.monotonic())):
            return pipe.recv()
    except EOFError:
        return "its process ended"
    return "not ready within --time-limit"


def run(options: argparse.Namespace, record) -> None:
    """Measure; the record grows by each contestant."""
    begin = time.monotonic()
    context, started = get_context("spawn"), {}
    try:
        for name in options.ways:
            pipe, other = context.Pipe()
            process = context.Process(target=contestant, args=(name, options, other))
            process.start()
            other.close()
            started[name] = process, pipe
        answers = {
            name: received(pipe, begin + PREPARATION * options.time_limit)
            for name, (_, pipe) in started.items()
        }
        for name, answer in answers.items():
            if isinstance(answer, str):
                # whoever still compiles takes the time of those who measure
                started[name][0].kill()
        print(f"{NAME}: prepared in {time.monotonic() - begin:.0f} s", flush=True)
        for name, answer in answers.items():
            process, pipe = started[name]
            if not isinstance(answer, str):
                pipe.send("go")
                answer = received(pipe, begin + options.time_limit)
                process.kill()
            if isinstance(answer, str):
                answer = [{"contestant": name, "skipped": answer}]
            record.add(answer)
            print(f"{NAME}: {name}: {len(answer)} rows", flush=True)
    finally:
        for process, _ in started.values():
            process.kill()


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """The options; those that depend on the device are filled in."""
    parser = command_line.benchmark_parser(NAME, __doc__.splitlines()[0])
    parser.set_defaults(least_repeats=10, seconds=0.3)
    add = parser.add_argument
    add("--dtype", choices=command_line.DTYPES, default="bfloat16", help="of weights")
    add("--ways", nargs="+", choices=WAYS, default=list(WAYS), help="to measure")
    shape = command_line.two_numbers("BxN", "8x512")
    add("--shapes", nargs="+", type=shape, metavar="BxN", help="batch and length")
    command_line.add_width_and_heads(parser, 512)
    add("--layers", type=positive_integer, default=6, help="of the stack")
    add_time_limit(parser, 300)
    options = parser.parse_args(arguments)
    command_line.check_width_and_heads(parser, options)
    if options.shapes is None:
        options.shapes = SHAPES[options.device.type]
    return options


def main(arguments: list[str] | None = None) -> None:
    """The command line."""
    options = parse(arguments)
    settings = {name: getattr(options, name) for name in ("dtype", "width", "heads")}
    settings["layers"] = options.layers
    record = command_line.record(NAME, options, arguments, settings)
    run(options, record)
    record.finish()
