"""The shapes in which flash-linear-attention publishes its speed.

benchmarks/ops/registry.py there, SHAPE_CONFIGS; its figures for chunk_linear_attn on an
H100 are forward and backward in bfloat16. Helion publishes a linear attention beside
them, but its package (1.5.1) has none.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from . import equations
from .contestant import Case, Computation, Contestant, Group, Setup, heads
from .linear_attention import unscaled

NAME = "published_shapes"
# a CPU holds no larger ones
LARGEST_ON_A_CPU = 2**24
CHECK_LENGTH = 512


class Shape(NamedTuple):
    """Batch, length, heads and head width."""

    batch: int
    length: int
    heads: int
    width: int

    def __str__(self) -> str:
        return f"B{self.batch} T{self.length} H{self.heads} D{self.width}"

    @property
    def elements(self) -> int:
        """Of queries, keys or values."""
        return self.batch * self.length * self.heads * self.width


SHAPES = (
    Shape(8, 1024, 8, 64),
    Shape(4, 2048, 16, 128),
    Shape(2, 16384, 16, 128),
    Shape(1, 8192, 96, 128),
    Shape(4, 4096, 64, 128),
    Shape(8, 2048, 32, 256),
)


def groups(setup: Setup, cases: list[Case], check_case: Case) -> list[Group]:
    """A group a shape, with the contestants of causal linear attention."""
    on_gpu = setup.device.type == "cuda"
    return [
        _group(setup._replace(heads=shape.heads, width=shape.width), shape)
        for shape in SHAPES
        if on_gpu or shape.elements <= LARGEST_ON_A_CPU
    ]


def _group(setup: Setup, shape: Shape) -> Group:
    naive = partial(equations.causal_linear_attention, feature_map=setup.feature_map)
    return Group(
        NAME,
        str(shape),
        Computation(f"causal linear attention, phi = {setup.feature_map}", naive),
        partial(heads, setup),
        _measured_here(unscaled(setup, naive)),
        [Case(shape.batch, shape.length)],
        Case(1, CHECK_LENGTH),
    )


def _measured_here(contestants: list[Contestant]) -> list[Contestant]:
    """Without what compiles for each length, or keeps matrices of it."""
    return [x for x in contestants if not (x.compiled or x.quadratic)]
