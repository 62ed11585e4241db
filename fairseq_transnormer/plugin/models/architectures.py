"""Every system of ``modules/systems.py`` as fairseq architectures, and tiny ones.

What is registered: NAME (ALM), ``roberta_NAME`` (BLM) and ``lra_NAME`` (classifier);
``..._tiny`` for tests.
"""

from ...modules.systems import SYSTEMS
from .language_model import TransNormerConfig, TransNormerLanguageModel
from .masked_language_model import TransNormerEncoderConfig, TransNormerEncoderModel
from .sequence_classifier import SequenceClassifierConfig, SequenceClassifierModel
from .variants import register_variant

MODELS = {
    "alm": (TransNormerLanguageModel, TransNormerConfig),
    "blm": (TransNormerEncoderModel, TransNormerEncoderConfig),
    "lra": (SequenceClassifierModel, SequenceClassifierConfig),
}


for _system in SYSTEMS.values():
    for _kind in _system.kinds:
        _name = _system.architecture_of(_kind)
        register_variant(_name, *MODELS[_kind], **_system.model_values(_kind))
        if _kind in _system.tiny_kinds:
            _tiny = _system.tiny_values(_kind)
            register_variant(f"{_name}_tiny", *MODELS[_kind], **_tiny)
