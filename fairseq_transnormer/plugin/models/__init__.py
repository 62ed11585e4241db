"""The fairseq models: thin adapters around ``fairseq_transnormer.modules``."""

from . import architectures as architectures
from .language_model import TransNormerDecoder as TransNormerDecoder
from .language_model import TransNormerLanguageModel as TransNormerLanguageModel
from .masked_language_model import TransNormerEncoderModel as TransNormerEncoderModel
