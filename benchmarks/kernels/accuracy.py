"""Whether a contestant computes what it claims: outputs and gradients against float64.

An error is |x - reference| / |reference| in the Euclidean norm, the largest over the
tensors. The yardstick is the error of the plain torch form in the measured dtype.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from .contestants.contestant import Case, Contestant, Group, as_tuple, normal_like

# a contestant is wrong above this many times the yardstick's error
FACTOR = 4.0


class Errors(NamedTuple):
    """Relative errors; gradients: None where nothing is differentiated."""

    forward: float
    gradients: float | None


class Verdict(NamedTuple):
    """Errors of a contestant beside the yardstick's."""

    errors: Errors
    yardstick: Errors

    @property
    def is_wrong(self) -> bool:
        """NaN is wrong too."""
        return not all(
            error is None or error <= FACTOR * allowed
            for error, allowed in zip(self.errors, self.yardstick, strict=True)
        )

    def fields(self) -> dict[str, object]:
        """For a row of the JSON; NaN and infinity as text."""
        return {
            "errors": {
                key: value if value is None or math.isfinite(value) else str(value)
                for key, value in self.errors._asdict().items()
            },
            "yardstick": self.yardstick._asdict(),
            "wrong": self.is_wrong,
        }


class Judge:
    """Holds the references of one group at its checked size."""

    def __init__(self, group: Group):
        self.group = group
        self.inputs = group.inputs(group.check_case)
        self._expected = {}

    def __call__(self, contestant: Contestant) -> Verdict:
        """Run the contestant once."""
        computation = self.group.computation_of(contestant)
        if computation.name not in self._expected:
            self._expected[computation.name] = self._references(computation.equation)
        grads, expected, yardstick = self._expected[computation.name]
        inputs = contestant.arranged(self.inputs)
        outputs = contestant.start(inputs)()
        outputs, gradients = _differentiated(
            as_tuple(outputs), inputs, contestant.arranged(grads)
        )
        # back into (B, N, H, D)
        outputs, gradients = map(contestant.arranged, (outputs, gradients))
        return Verdict(_errors((outputs, gradients), expected), yardstick)

    def _references(self, equation: Callable):
        exact = [
            x.detach().double().requires_grad_(x.requires_grad) for x in self.inputs
        ]
        outputs = as_tuple(equation(*exact))
        grads = [normal_like(y).to(self.inputs[0].dtype) for y in outputs]
        expected = _differentiated(outputs, exact, grads)
        del outputs
        plain = _differentiated(as_tuple(equation(*self.inputs)), self.inputs, grads)
        return grads, expected, _errors(plain, expected)


def _differentiated(
    outputs: Sequence[Tensor], inputs: Sequence[Tensor], grads: Sequence[Tensor]
) -> tuple[list[Tensor], list[Tensor]]:
    """Detached outputs, and the gradients of the inputs that require them."""
    leaves = [x for x in inputs if x.requires_grad]
    gradients = []
    if leaves:
        grads = [g.to(y.dtype) for g, y in zip(grads, outputs, strict=True)]
        used = torch.autograd.grad(outputs, leaves, grads, allow_unused=True)
        gradients = [
            torch.zeros_like(x) if g is None else g
            for g, x in zip(used, leaves, strict=True)
        ]
    return [y.detach() for y in outputs], gradients


def _errors(actual, expected) -> Errors:
    return Errors(
        *(
            max(map(relative_error, *both)) if both[0] else None
            for both in zip(actual, expected, strict=True)
        )
    )


def relative_error(actual: Tensor, expected: Tensor) -> float:
    """In the Euclidean norm; infinite where the shapes differ."""
    if actual.shape != expected.shape:
        return math.inf
    expected = expected.double()
    norm = expected.norm().item()
    distance = (actual.double() - expected).norm().item()
    return distance / norm if norm > 0 else distance


def check_case(tokens: int, length: int, device: torch.device) -> Case:
    """Where the attentions are checked.

    On a GPU with all tokens, which is a measured size too: torch.compile then has no
    other to compile. A CPU would need too long.
    """
    batch = max(tokens // length, 1) if device.type == "cuda" else 2
    return Case(batch, length)
