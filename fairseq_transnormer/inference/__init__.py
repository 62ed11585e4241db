"""Use trained models without fairseq: score, continue and label texts."""

from typing import TYPE_CHECKING

__all__ = [
    "Context",
    "GeneratedText",
    "Prediction",
    "TextClassifier",
    "TextGenerator",
    "TextScore",
    "TextScorer",
]

if TYPE_CHECKING:
    from .classify import Prediction, TextClassifier
    from .generate import GeneratedText, TextGenerator
    from .score import Context, TextScore, TextScorer
else:
    _FILES = {
        "classify": ("Prediction", "TextClassifier"),
        "generate": ("GeneratedText", "TextGenerator"),
        "score": ("Context", "TextScore", "TextScorer"),
    }

    def __getattr__(name: str):
        """Import on demand: only generation needs transformers."""
        from importlib import import_module

        for file, names in _FILES.items():
            if name in names:
                return getattr(import_module(f".{file}", __name__), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
