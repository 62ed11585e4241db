"""Text generation: prompts in one pass, decoding with a constant state.

    generator = TextGenerator.from_checkpoint("checkpoints/checkpoint_best.pt")
    for text in generator.generate(["The river", "In 1902"], top_p=0.9, seed=1):
        print(text.text)

On the command line: ``python -m fairseq_transnormer generate --help``.
"""

from typing import TYPE_CHECKING

from .errors import GenerationError
from .settings import GenerationSettings

__all__ = [
    "GeneratedText",
    "GenerationError",
    "GenerationSettings",
    "TextGenerator",
]


if TYPE_CHECKING:
    from .generator import GeneratedText, TextGenerator
else:

    def __getattr__(name: str):
        """fairseq is imported when a generator is asked for, not for the settings."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from .. import plugin  # noqa: F401 (imports fairseq first)
        from . import generator

        return getattr(generator, name)
