"""The plugin is imported with fairseq, whichever of the two is imported first.

A process that fairseq starts imports this package first, to find the function that it
is to call; a program may import the ops, and load a checkpoint through fairseq later.
In both, fairseq is to be changed, and to know the models.
"""

import importlib
import importlib.util
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

PLUGIN = f"{__package__}.plugin"


def register_with_fairseq() -> None:
    """Import the plugin if fairseq has been imported, or as soon as it is."""
    if sys.modules.get("fairseq") is not None:
        importlib.import_module(PLUGIN)
    elif not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


@contextmanager
def logging_unchanged() -> Iterator[None]:
    """fairseq/tasks/text_to_speech.py: ``logging.basicConfig(level=DEBUG)`` at import.

    A program that imports this package first would get every library's debug lines.
    fairseq's commands set their logging up before they import it.
    """
    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    disabled = root.manager.disable
    logging.disable(logging.INFO)
    try:
        yield
    finally:
        logging.disable(disabled)
        root.setLevel(level)
        for handler in set(root.handlers).difference(handlers):
            root.removeHandler(handler)


class _Finder(MetaPathFinder):
    """Finds fairseq once, where the others find it."""

    def find_spec(self, name, path=None, target=None) -> ModuleSpec | None:
        if name != "fairseq":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)
        return spec


class _Loader(Loader):
    """Loads fairseq as its own loader does, and the plugin after it."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def __getattr__(self, name: str):
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        with logging_unchanged():
            self._loader.exec_module(module)
        importlib.import_module(PLUGIN)
