"""Commands of ``python -m fairseq_transnormer`` in this process."""

from collections.abc import Callable, Iterable

from fairseq_transnormer.__main__ import main


def command(*names: str) -> Callable[[Iterable[object]], int]:
    """A command, to be called with its arguments; it returns the exit code."""
    return lambda arguments: main([*names, *map(str, arguments)])
