"""A call as a CUDA graph: the device's work without Python and launches."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch

WARM_UPS = 3


def captured(make_call: Callable[[], Callable[[], object]]) -> Callable[[], None]:
    """Replays what a call launches; its inputs keep their addresses.

    Args:
        make_call: returns the call. It runs on the stream that captures, since autograd
            runs a backward pass on the stream of its forward pass.

    Raises:
        RuntimeError: the call waits for the device, or does what a graph cannot hold.
    """
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        call = make_call()
        for _ in range(WARM_UPS):
            call()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        outputs = call()
    return partial(_replay, graph, outputs)


def _replay(graph: torch.cuda.CUDAGraph, outputs: object) -> None:
    """``outputs`` are held, so that their memory stays theirs."""
    graph.replay()
