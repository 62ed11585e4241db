"""Labels for new text from a fine-tuned model, and GLUE submission files.

    classifier = TextClassifier.from_checkpoint("checkpoints/checkpoint_best.pt")
    for found in classifier.classify(["It rains.", ("Who?", "He did.")]):
        print(found.label, found.probabilities)

On the command line: ``python -m fairseq_transnormer.classification --help``.
"""

from .classifier import Prediction, TextClassifier
from .errors import ClassificationError

__all__ = ["ClassificationError", "Prediction", "TextClassifier"]
