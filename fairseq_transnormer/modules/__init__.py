"""TransNormer as plain PyTorch modules, independent of fairseq."""

from .attention import Attention
from .config import (
    ClassifierConfig,
    ClassifierT1Config,
    ClassifierT2Config,
    EncoderConfig,
    EncoderT1Config,
    EncoderT2Config,
    LanguageModelConfig,
    LanguageModelT1Config,
    LanguageModelT2Config,
    LayerConfig,
)
from .diag_attention import DiagAttention
from .feed_forward import FFN, GLU
from .language_model import CausalLanguageModel
from .layers import LayerStack, TransNormerLayer
from .lrpe import LRPE
from .masked_language_model import MaskedLanguageModel, MaskedLanguageModelHead
from .norm_attention import NormAttention
from .norms import LayerNorm, RMSNorm, SimpleRMSNorm
from .registry import (
    ATTENTIONS,
    LAYERS,
    parse_attention_types,
    register_attention,
    register_layer,
    token_mixers,
)
from .sequence_classifier import SequenceClassifier

__all__ = [
    "ATTENTIONS",
    "FFN",
    "GLU",
    "LAYERS",
    "LRPE",
    "Attention",
    "CausalLanguageModel",
    "ClassifierConfig",
    "ClassifierT1Config",
    "ClassifierT2Config",
    "DiagAttention",
    "EncoderConfig",
    "EncoderT1Config",
    "EncoderT2Config",
    "LanguageModelConfig",
    "LanguageModelT1Config",
    "LanguageModelT2Config",
    "LayerConfig",
    "LayerNorm",
    "LayerStack",
    "MaskedLanguageModel",
    "MaskedLanguageModelHead",
    "NormAttention",
    "RMSNorm",
    "SequenceClassifier",
    "SimpleRMSNorm",
    "TransNormerLayer",
    "parse_attention_types",
    "register_attention",
    "register_layer",
    "token_mixers",
]
