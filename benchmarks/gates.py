"""Layers by our kernels beside the same by torch.compile, and beside fairseq's.

What a kernel written by hand has to beat to stay. The layers of T2 are run forward and
backward. Each way prepares in a process of its own, all side by side, since
torch.compile takes long; then they measure one after the other, alone on the device:
as Python launches them, and as a CUDA graph.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import NamedTuple

import torch
from torch import nn

from fairseq_transnormer.modules.layers import LayerStack

from . import measure
from .measure import GRAPH, LAUNCHED
from .models import DROPOUT, transnormer_config
from .options import DTYPES, ModelOptions, Rows, benchmark, option, two_numbers
from .training_step import layer_step

SHAPES = {"cuda": [(8, 512), (1, 8192)], "cpu": [(2, 64)]}
# of the time limit, for what compiles
PREPARATION = 0.65
# what torch computes where its compiler is to fuse it
ROW_WISE = ("gated_silu", "gated_linear_unit", "residual", "rms_norm")


class Way(NamedTuple):
    """How our layers are run.

    compiled: by torch.compile. graphs: with its mode reduce-overhead, CUDA graphs.
    row_wise: whether our kernels do the row-wise ops, beside the attentions.
    replayed: with the layers' own graphs, ``cuda_graphs``.
    """

    compiled: bool = False
    graphs: bool = False
    row_wise: bool = True
    replayed: bool = False


WAYS = {
    "our kernels": Way(),
    "our kernels, cuda_graphs": Way(replayed=True),
    "our kernels, compiled": Way(True),
    "our kernels, compiled with CUDA graphs": Way(True, graphs=True),
    "our attentions, rest compiled": Way(True, row_wise=False),
    "our attentions, rest compiled with CUDA graphs": Way(
        True, graphs=True, row_wise=False
    ),
    "fairseq's layers, SDPA": None,
}


@dataclass
class Gates(ModelOptions):
    """T2 at the paper's width."""

    least_repeats: int = option(10, "samples of each case at least")
    seconds: float = option(0.3, "for the samples of a case beyond the least")
    time_limit: float = option(300.0, "for everything; a part of it to compile")
    dtype: str = option("bfloat16", "of the weights", choices=DTYPES)
    ways: list[str] = option([*WAYS], "to measure", choices=[*WAYS])
    shapes: list[tuple[int, int]] | None = option(
        None, "BxN, batch and length", nargs="+", type=two_numbers
    )

    def check(self) -> None:
        super().check()
        self.shapes = self.shapes or SHAPES[self.device.type]


def layers_of(way: Way | None, options: Gates, dropout: float) -> nn.Module:
    """The six layers with their last norm, (B, N, C) -> the same shape."""
    size = options.width, options.heads, options.layers
    if way is None:
        from .fairseq_transformer import FairseqLayers, build_transformer, with_sdpa

        longest = max(length for _, length in options.shapes)
        model = with_sdpa(build_transformer(*size, 1000, longest))
        layers = FairseqLayers(model, options.layers, norm=True)
        for part in layers.modules():
            # that of attention is 0
            if getattr(part, "p", 0):
                part.p = dropout
    else:
        more = {"compile_layers": way.compiled, "cuda_graphs": way.replayed}
        more["backend"] = "triton" if options.device.type == "cuda" else "torch"
        config = transnormer_config(*size, dropout=dropout, **more)
        layers = LayerStack(config, causal=True)
    return layers.to(options.device, options.torch_dtype).train()


def calls_of(name: str, options: Gates) -> Iterator[tuple[dict, Callable]]:
    """Rows and their calls, forward and backward; with dropout at one shape."""
    way = WAYS[name]
    if way is not None and way.compiled:
        _prepare_compiler(way)
    for dropout in (0.0, DROPOUT):
        layers = layers_of(way, options, dropout)
        for shape in options.shapes[:1] if dropout else options.shapes:
            x, grad = torch.randn(2, *shape, options.width, device=options.device).to(
                options.torch_dtype
            )
            row = {"provider": name, "batch": shape[0], "length": shape[1]}
            call = layer_step(layers, x.detach().requires_grad_(), grad)
            yield row | {"dropout": dropout}, call


def _prepare_compiler(way: Way) -> None:
    """Settings of this process."""
    import torch._dynamo
    import torch._inductor.config

    torch._dynamo.config.automatic_dynamic_shapes = False
    torch._dynamo.config.recompile_limit = 64
    torch._inductor.config.triton.cudagraphs = way.graphs
    for name in () if way.row_wise else ROW_WISE:
        module = importlib.import_module(f"fairseq_transnormer.ops.{name}")
        module.select = lambda implementations, *_: implementations["torch"]


def process(name: str, options: Gates, pipe: Connection) -> None:
    """Prepares, says so ([]) or why not (text), waits, sends its rows."""
    torch.set_num_threads(options.threads)
    way = WAYS[name] or Way()

    def called(call: Callable) -> None:
        if way.graphs:
            # what the last call gave is not needed any more
            torch.compiler.cudagraph_mark_step_begin()
        call()

    try:
        calls = list(calls_of(name, options))
        for _, call in calls:
            for _ in range(5):  # until torch.compile's CUDA graphs are recorded
                called(call)
    except Exception as error:  # whatever does not compile is the answer
        return pipe.send(measure.why_not_measured(error))
    pipe.send([])
    pipe.recv()
    rows = []
    for row, call in calls:
        plain = options.device.type == "cuda" and not (way.graphs or way.replayed)
        for timing in (LAUNCHED, *([GRAPH] if plain and not row["dropout"] else [])):
            rows.append(found := row | {"timing": timing})
            if way.graphs:
                # then it was launched after all
                skips = torch._dynamo.utils.counters["inductor"]["cudagraph_skips"]
                found["cudagraph_skips"] = skips
            try:
                timed = lambda call=call: called(call)  # noqa: E731
                if timing == GRAPH:
                    timed = measure.captured(lambda call=call: call)
                samples = measure.time_in_turns({"": timed}, options, cold=True)
                found["seconds"] = samples[""]
            except Exception as error:
                found["skipped"] = measure.why_not_measured(error)
    pipe.send(rows)


def received(pipe: Connection, until: float) -> Rows | str:
    """Rows, or why there are none."""
    try:
        if pipe.poll(max(0.0, until - time.monotonic())):
            return pipe.recv()
    except EOFError:
        return "its process ended"
    return "not ready within --time-limit"


@benchmark(Gates)
def gates(options: Gates, settings: dict) -> Iterator[Rows]:
    """Layers by our kernels, by torch.compile, and fairseq's, forward and backward."""
    begin, context, started = time.monotonic(), get_context("spawn"), {}
    try:
        for name in options.ways:
            pipe, other = context.Pipe()
            child = context.Process(target=process, args=(name, options, other))
            child.start()
            other.close()
            started[name] = child, pipe
        ready = begin + PREPARATION * options.time_limit
        answers = {name: received(pipe, ready) for name, (_, pipe) in started.items()}
        for name, answer in answers.items():
            if isinstance(answer, str):
                # whoever still compiles takes the time of those who measure
                started[name][0].kill()
        for name, answer in answers.items():
            child, pipe = started[name]
            if not isinstance(answer, str):
                pipe.send("go")
                answer = received(pipe, begin + options.time_limit)
                child.kill()
            if isinstance(answer, str):
                answer = [{"provider": name, "skipped": answer}]
            yield answer
    finally:
        for child, _ in started.values():
            child.kill()
