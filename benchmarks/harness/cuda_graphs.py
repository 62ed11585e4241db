"""A call as a CUDA graph: the device's work without Python and launches."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch

WARM_UPS = 3


def captured(call: Callable[[], object]) -> Callable[[], None]:
    """Replays what ``call`` launches; its inputs keep their addresses.

    Raises:
        RuntimeError: the call waits for the device, or does what a graph cannot hold.
    """
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(WARM_UPS):
            call()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outputs = call()
    return partial(_replay, graph, outputs)


def _replay(graph: torch.cuda.CUDAGraph, outputs: object) -> None:
    """``outputs`` are held, so that their memory stays theirs."""
    graph.replay()
