"""Names that tables may use, each for a function; others are MODULE:FUNCTION."""

import importlib
from collections.abc import Callable

from ..data.typed_mappings import shown
from .errors import ReproduceError


class Registry:
    """Functions by name.

    Args:
        kind: what the names stand for, for messages.
        home: module that registers some of them, where its importers cannot import it.
    """

    def __init__(self, kind: str, home: str | None = None) -> None:
        self._kind, self._home = kind, home
        self._known: dict[str, Callable] = {}

    def register(self, name: str) -> Callable[[Callable], Callable]:
        """Decorator: make a function known as ``name``."""

        def add(function: Callable) -> Callable:
            if name in self._known:
                raise ValueError(f"{self._kind} {name!r} is registered already")
            self._known[name] = function
            return function

        return add

    def names(self) -> list[str]:
        return sorted(self._known)

    def find(self, name: str) -> Callable:
        """The function of this name, or the one at "package.module:function".

        Raises:
            ReproduceError: there is none.
        """
        if self._home is not None:
            importlib.import_module(self._home)
        if name in self._known:
            return self._known[name]
        module, colon, function = name.partition(":")
        if not colon:
            raise ReproduceError(
                f"{self._kind} {name!r} is not known; allowed: "
                f"{', '.join(self.names())}, or MODULE:FUNCTION"
            )
        try:
            found = getattr(importlib.import_module(module), function)
        except (ImportError, AttributeError, TypeError, ValueError) as error:
            raise ReproduceError(f"{self._kind} {name!r}: {error}") from error
        if not callable(found):
            raise ReproduceError(
                f"{self._kind} {name!r}: {shown(found)}; allowed: a function or a class"
            )
        return found


# tables look jobs up, and jobs import tables
JOBS = Registry("job", home=f"{__package__}.tables.jobs")
