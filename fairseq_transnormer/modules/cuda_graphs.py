"""Training steps of layers as CUDA graphs: kernels without Python's overhead.

The six layers of the paper's T2 launch hundreds of kernels per step. Python needs ten
times as long to launch them as an H100 to run them. A graph is a single launch.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ..ops.backend import autocast_enabled, like_captured

# each shape's graph holds the gradients and the output of its batch
MOST_SHAPES = 8


class GraphedLayers:
    """``stack.run``, forward and backward, as a graph for each repeated shape.

    The second batch of a shape is captured; it and later ones are replayed. Only the
    first eight shapes have graphs. Graphs of weights that moved or were frozen are
    dropped. Dropout draws the same numbers with and without a graph.

    Args:
        stack: a module whose ``run`` takes x (B, N, C) to a tuple that begins with the
            same shape, without waiting for the device.
    """

    def __init__(self, stack: Any):
        self.stack = stack
        self.hooks: list[Any] = []
        self.forget(())

    def forget(self, weights: tuple[Any, ...]) -> None:
        """Drop all graphs; new ones will use these weights."""
        self.weights = weights
        self.graphs: dict[Any, Callable[[Tensor], Tensor] | None] = {}
        self.passes = 0
        self.pool: Any = None
        self.sums: list[Any] = []
        for hook in self.hooks:
            hook.remove()
        self.hooks.clear()

    def __reduce__(self) -> tuple[Any, ...]:
        # a copy captures new graphs: graphs hold the addresses of these weights
        return type(self), (self.stack,)

    def can_take(self, x: Tensor) -> bool:
        """Whether a graph may replace this call: a training step without hooks."""
        if not (x.is_cuda and torch.is_grad_enabled() and x.requires_grad):
            return False
        return not (
            torch.compiler.is_compiling()
            or autocast_enabled(x)
            or any(
                part._forward_hooks
                or part._forward_pre_hooks
                or part._backward_hooks
                or part._backward_pre_hooks
                for part in self.stack.modules()
            )
        )

    def __call__(self, x: Tensor) -> Tensor:
        """x (B, N, C), which needs a gradient -> the same shape.

        Raises:
            RuntimeError: in the backward pass, after another forward pass.
        """
        weights = (
            *((id(p), p.data_ptr(), p.requires_grad) for p in self.stack.parameters()),
            *(part.training for part in self.stack.modules()),
        )
        if weights != self.weights:
            self.forget(weights)
        shape = x.shape, x.dtype
        if shape not in self.graphs:
            if len(self.graphs) < MOST_SHAPES:
                self.graphs[shape] = None
            with like_captured():
                return self.stack.run(x)[0]
        graph = self.graphs[shape]
        if graph is None:
            graph = self.graphs[shape] = self._capture(x)
        self.passes += 1
        x = x.view_as(x)
        x.register_hook(Tensor.clone)
        y = graph(x)
        y.register_hook(partial(self._check_order, self.passes))
        return y.clone()

    def _capture(self, x: Tensor) -> Callable[[Tensor], Tensor]:
        if self.pool is None:
            self.pool = torch.cuda.graph_pool_handle()
        weights = [p for p in self.stack.parameters() if p.requires_grad]
        if not self.hooks:
            # autograd keeps a gradient without a copy; the next step overwrites it
            self.hooks = [p.register_hook(Tensor.clone) for p in weights]
            # made here, these add up gradients on this stream, not on the capture's
            views = [p.view_as(p) for p in weights]
            self.sums = [x.grad_fn.next_functions[0][0] for x in views if x.grad_fn]
        sample = x.detach().clone().requires_grad_()
        with like_captured(), torch.random.fork_rng([x.device]):
            graph: Any = torch.cuda.make_graphed_callables(
                _Layers(self.stack),
                (sample,),
                allow_unused_input=True,
                pool=self.pool,
            )
        return graph

    def _check_order(self, number: int, grad: Tensor) -> None:
        if number != self.passes:
            raise RuntimeError(
                f"cuda_graphs: the backward pass of forward pass {number} came after "
                f"forward pass {self.passes}; allowed: each before the next one"
            )


class _Layers(nn.Module):
    """A module for ``make_graphed_callables``, which replaces its ``forward``."""

    def __init__(self, stack: Any):
        super().__init__()
        self.stack = stack

    def forward(self, x: Tensor) -> Tensor:
        return self.stack.run(x)[0]
