"""The list of systems, as plain PyTorch reads it."""

from dataclasses import fields

import pytest
from fairseq.models import MODEL_DATACLASS_REGISTRY

import fairseq_transnormer.plugin  # noqa: F401 (registers the models)
from fairseq_transnormer.modules.systems import CONFIGS, SYSTEMS

MODELS = [(system, kind) for system in SYSTEMS.values() for kind in system.kinds]


@pytest.mark.parametrize(
    ("system", "kind"), MODELS, ids=lambda each: getattr(each, "name", each)
)
def test_values_are_those_of_the_architecture(system, kind):
    ours = CONFIGS[kind](**system.model_values(kind))
    fairseqs = MODEL_DATACLASS_REGISTRY[system.architecture_of(kind)]()
    for each in fields(ours):
        assert getattr(ours, each.name) == getattr(fairseqs, each.name), each.name
