"""The fairseq models: thin adapters around ``fairseq_transnormer.modules``."""

from . import architectures as architectures
from .language_model import TransNormerDecoder, TransNormerLanguageModel
from .masked_language_model import TransNormerEncoder, TransNormerEncoderModel
from .sequence_classifier import SequenceClassifierModel

__all__ = [
    "SequenceClassifierModel",
    "TransNormerDecoder",
    "TransNormerEncoder",
    "TransNormerEncoderModel",
    "TransNormerLanguageModel",
]
