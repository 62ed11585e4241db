"""Trained models at work: text scored, continued and labelled, without fairseq."""

from typing import Any

# name -> the file that has it
_HOMES = {
    "GeneratedText": "generate",
    "TextGenerator": "generate",
    "Context": "score",
    "TextScore": "score",
    "TextScorer": "score",
    "Prediction": "classify",
    "TextClassifier": "classify",
}
__all__ = [*_HOMES]


def __getattr__(name: str) -> Any:
    """Each is imported when it is asked for: generation alone needs transformers."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f".{_HOMES[name]}", __name__), name)
