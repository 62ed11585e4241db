"""Makes the classes known to transformers' Auto classes."""

from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
)

from ..export.manifest import FORMAT
from .causal import TransNormerForCausalLM
from .configuration import TransNormerConfig
from .encoders import TransNormerForMaskedLM, TransNormerForSequenceClassification
from .tokenizer import TransNormerTokenizer

MODELS = {
    AutoModelForCausalLM: TransNormerForCausalLM,
    AutoModelForMaskedLM: TransNormerForMaskedLM,
    AutoModelForSequenceClassification: TransNormerForSequenceClassification,
}


def register() -> None:
    """Register configuration, models and tokenizer."""
    AutoConfig.register(FORMAT, TransNormerConfig)
    for auto, model in MODELS.items():
        auto.register(TransNormerConfig, model)
    AutoTokenizer.register(TransNormerConfig, TransNormerTokenizer)
