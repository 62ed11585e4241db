"""Every system as a row: names, parameters, operations."""

from types import SimpleNamespace

import torch
from torch import nn

from ..modules.model_flops import layer_flops
from ..modules.systems import SYSTEMS, System
from ..outputs import markdown

VOCABULARIES = {"alm": 267_744, "blm": 50_265}
LENGTHS = (512, 8192)
# task: longest sequence, token ids, classes, sequences
ARENA = {
    "text": (4096, 256, 2, 1),
    "listops": (2048, 15, 10, 1),
    "retrieval": (4096, 256, 2, 2),
    "pathfinder": (1024, 256, 2, 1),
    "image": (1024, 256, 10, 1),
}
NONE = "–"


def language_models() -> str:
    """A row a system that has language models."""
    lengths = [f"MFLOP, {length:,}" for length in LENGTHS]
    header = ["system", "name", "`--arch`", "`attention_types`", "ALM", "BLM", *lengths]
    rows = []
    for system in SYSTEMS.values():
        if "alm" in system.kinds:
            counts = [f"{parameters(_built(system, kind)):,}" for kind in VOCABULARIES]
            names = (system.name, system.architecture_of("alm"))
            attention = system.attention_types(system.layers["alm"])
            names = [f"`{name}`" for name in (*names, attention)]
            flops = [_megaflops(system, length) for length in LENGTHS]
            rows.append([system.label, *names, *counts, *flops])
    return markdown(header, rows, text=4)


def arena() -> str:
    """A row a classifier, a column a task; and what two layers have alone."""
    rows = []
    for system in SYSTEMS.values():
        if "lra" in system.kinds:
            name = system.architecture_of("lra")
            counts = [classifier_parameters(name, task) for task in ARENA]
            alone = classifier_parameters(name, "listops") - ARENA["listops"][0] * 64
            rows.append([f"`{name}`", *(f"{n:,}" for n in [*counts, alone])])
    return markdown(["`--arch`", *ARENA, "without positions (listops)"], rows)


def parameters(model: nn.Module) -> int:
    """The number of a model's parameters."""
    return sum(parameter.numel() for parameter in model.parameters())


def classifier_parameters(architecture: str, task: str) -> int:
    """Parameters of an architecture for a task of the arena, positions included."""
    length, vocabulary, classes, sequences = ARENA[task]
    setup = SimpleNamespace(
        vocabulary_size=vocabulary, num_classes=classes, num_sequences=sequences
    )
    values = {"max_positions": length, "linformer_length": length}
    return parameters(_model(architecture, setup, **values))


def _built(system: System, kind: str) -> nn.Module:
    from fairseq.data import Dictionary

    words = Dictionary()
    words.symbols = range(VOCABULARIES[kind])
    task = SimpleNamespace(
        source_dictionary=words, target_dictionary=words, dictionary=words
    )
    return _model(system.architecture_of(kind), task)


def _model(architecture: str, task: object, **values) -> nn.Module:
    """The model, without memory for its weights."""
    from .. import plugin  # noqa: F401 (registers the models)

    # isort: split
    from fairseq.models import MODEL_DATACLASS_REGISTRY, MODEL_REGISTRY

    config = MODEL_DATACLASS_REGISTRY[architecture](**values)
    with torch.device("meta"):
        return MODEL_REGISTRY[architecture].build_model(config, task)


def _megaflops(system: System, length: int) -> str:
    layers = _built(system, "alm").decoder.model.stack
    try:
        return f"{layer_flops(layers, length) / 1e6:.1f}"
    except ValueError:  # not counted
        return NONE
