"""Exported models in Hugging Face's transformers.

    import fairseq_transnormer.hf
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained("exported")
    tokenizer = AutoTokenizer.from_pretrained("exported")

``python -m fairseq_transnormer export`` writes the folder. Importing this package
registers the classes; no code of the folder runs. docs/inference.md has more.
"""

try:
    import safetensors  # noqa: F401
    import transformers  # noqa: F401
except ImportError as error:
    raise ModuleNotFoundError(
        f"{error.name} is not installed; install it: pip install "
        "'fairseq-transnormer[hf]'",
        name=error.name,
    ) from error

from transformers import (  # noqa: E402
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
)
from transformers.models.auto.modeling_auto import (  # noqa: E402
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
)

from ..checkpoints.manifest import FORMAT  # noqa: E402
from .cache import TransNormerCache  # noqa: E402
from .causal import TransNormerForCausalLM  # noqa: E402
from .configuration import TransNormerConfig  # noqa: E402
from .encoders import (  # noqa: E402
    TransNormerForMaskedLM,
    TransNormerForSequenceClassification,
    TransNormerModel,
)
from .tokenizer import TransNormerTokenizer  # noqa: E402

AutoConfig.register(FORMAT, TransNormerConfig)
AutoModel.register(TransNormerConfig, TransNormerModel)
AutoModelForCausalLM.register(TransNormerConfig, TransNormerForCausalLM)
# Trainer's list of models whose labels it shifts when it smooths them
MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[FORMAT] = TransNormerForCausalLM.__name__
AutoModelForMaskedLM.register(TransNormerConfig, TransNormerForMaskedLM)
AutoModelForSequenceClassification.register(
    TransNormerConfig, TransNormerForSequenceClassification
)
AutoTokenizer.register(TransNormerConfig, TransNormerTokenizer)

__all__ = [
    "TransNormerCache",
    "TransNormerConfig",
    "TransNormerForCausalLM",
    "TransNormerForMaskedLM",
    "TransNormerForSequenceClassification",
    "TransNormerModel",
    "TransNormerTokenizer",
]
