"""Labels for new text from a fine-tuned model, and GLUE submission files.

    classifier = TextClassifier.from_checkpoint("checkpoints/checkpoint_best.pt")
    for found in classifier.classify(["It rains.", ("Who?", "He did.")]):
        print(found.label, found.probabilities)

On the command line: ``python -m fairseq_transnormer classify --help``.
"""

from typing import TYPE_CHECKING

from .errors import ClassificationError

if TYPE_CHECKING:
    from .classifier import Prediction, TextClassifier

__all__ = ["ClassificationError", "Prediction", "TextClassifier"]


def __getattr__(name: str):
    """fairseq is imported when a classifier is asked for."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .. import plugin  # noqa: F401 (imports fairseq first)
    from . import classifier

    return getattr(classifier, name)
