"""Functions of fairseq that do something of ours around what they do."""

import functools
from collections.abc import Callable
from typing import Any


def wrap(owner: Any, name: str, around: Callable) -> None:
    """Make ``owner.name(...)`` call ``around(original, ...)``; once, if asked again.

    Several that are put around one function call each other, the last one first.

    Args:
        owner: a module or a class that has ``name``.
        name: of a function, a method or a static method.
        around: takes the original and the arguments.
    """
    original = getattr(owner, name)
    there = getattr(original, "wrapped_in", ())
    if around in there:
        return

    @functools.wraps(original)
    def wrapped(*arguments, **keywords):
        return around(original, *arguments, **keywords)

    wrapped.wrapped_in = (*there, around)
    is_static = isinstance(vars(owner).get(name), staticmethod)
    setattr(owner, name, staticmethod(wrapped) if is_static else wrapped)
