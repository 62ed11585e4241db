"""Every system of ``modules/systems.py`` as fairseq architectures, and tiny ones.

Registered names are NAME (ALM), ``roberta_NAME`` (BLM) and ``lra_NAME`` (classifier),
and ``..._tiny`` for tests. In Hydra's group ``model`` a system is ``alm_NAME``,
``blm_NAME`` and ``lra_NAME``, by its short name. A file of configs/model/ has priority.
"""

from hydra.core.config_store import ConfigStore

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
# values of Hydra's choices that the task decides: a column a position
OF_TASK = {"lra_linformer": {"linformer_length": "${task.max_positions}"}}


for _system in SYSTEMS.values():
    for _kind in _system.kinds:
        _name = _system.architecture_of(_kind)
        register_variant(_name, *MODELS[_kind], **_system.model_values(_kind))
        _option = f"{_kind}_{_system.name}"
        _node = {"_name": _name, **OF_TASK.get(_option, {})}
        ConfigStore.instance().store(_option, _node, "model")
        if _kind in _system.tiny_kinds:
            _tiny = _system.tiny_values(_kind)
            register_variant(f"{_name}_tiny", *MODELS[_kind], **_tiny)
