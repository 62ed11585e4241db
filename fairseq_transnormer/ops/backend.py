"""Which implementation of an op runs.

Every public op takes ``backend``. An implementation is a function with the op's own
signature; an op names its implementations in a dict, and this room picks one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

BACKENDS = ("auto", "torch", "reference")
ENVIRONMENT_VARIABLE = "FAIRSEQ_TRANSNORMER_BACKEND"


def resolve_backend(backend: str) -> str:
    """Return the name of the implementation that ``backend`` stands for.

    ``"auto"`` follows the environment variable ``FAIRSEQ_TRANSNORMER_BACKEND`` where
    it is set and is ``"torch"`` otherwise. A name passed by the caller wins over the
    environment.

    Raises:
        ValueError: the name, or the environment variable's value, is not known.
    """
    _check(backend, "backend")
    if backend == "auto":
        backend = os.environ.get(ENVIRONMENT_VARIABLE, "auto")
        _check(backend, f"environment variable {ENVIRONMENT_VARIABLE}")
    return "torch" if backend == "auto" else str(backend)


def select(implementations: Mapping[str, Callable], backend: str) -> Callable:
    """The implementation of an op that ``backend`` stands for."""
    return implementations[resolve_backend(backend)]


def _check(name: str, field: str) -> None:
    if name not in BACKENDS:
        raise ValueError(f"{field}={name!r}; allowed: {', '.join(BACKENDS)}")
