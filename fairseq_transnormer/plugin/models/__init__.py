"""The fairseq models: thin adapters around ``fairseq_transnormer.modules``."""

from ...fairseq_patches.apply import apply

apply()

from . import architectures as architectures  # noqa: E402
from .language_model import TransNormerDecoder, TransNormerLanguageModel  # noqa: E402
from .masked_language_model import (  # noqa: E402
    TransNormerEncoder,
    TransNormerEncoderModel,
)
from .sequence_classifier import SequenceClassifierModel  # noqa: E402

__all__ = [
    "SequenceClassifierModel",
    "TransNormerDecoder",
    "TransNormerEncoder",
    "TransNormerEncoderModel",
    "TransNormerLanguageModel",
]
