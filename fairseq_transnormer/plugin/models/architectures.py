"""Every system of ``modules/systems.py`` as fairseq architectures, and tiny ones.

What is registered: NAME (ALM), ``roberta_NAME`` (BLM) and ``lra_NAME`` (classifier);
``..._tiny`` for tests.
"""

from ...modules.systems import SYSTEMS, System
from .language_model import TransNormerConfig, TransNormerLanguageModel
from .masked_language_model import TransNormerEncoderConfig, TransNormerEncoderModel
from .sequence_classifier import SequenceClassifierConfig, SequenceClassifierModel
from .variants import register_variant

MODELS = {
    "alm": (TransNormerLanguageModel, TransNormerConfig),
    "blm": (TransNormerEncoderModel, TransNormerEncoderConfig),
    "lra": (SequenceClassifierModel, SequenceClassifierConfig),
}


def _register(system: System, kind: str) -> None:
    name = system.architecture_of(kind)
    model, config = MODELS[kind]
    register_variant(name, model, config, **system.model_values(kind))
    if kind in system.tiny_kinds:
        tiny = system.tiny_values(kind)
        register_variant(f"{name}_tiny", model, config, **tiny)


for _system in SYSTEMS.values():
    for _kind in _system.kinds:
        _register(_system, _kind)
