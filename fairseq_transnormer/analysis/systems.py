"""Every system as a row: names, parameters, operations."""

import torch
from torch import nn

from ..modules import CausalLanguageModel, MaskedLanguageModel, SequenceClassifier
from ..modules.model_flops import layer_flops
from ..modules.systems import CONFIGS, SYSTEMS, System
from ..outputs import markdown

MODELS = {
    "alm": CausalLanguageModel,
    "blm": MaskedLanguageModel,
    "lra": SequenceClassifier,
}
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
            models = [built(system, kind, n) for kind, n in VOCABULARIES.items()]
            counts = [f"{parameters(model):,}" for model in models]
            attention = system.attention_types(system.layers["alm"])
            names = (system.name, system.architecture_of("alm"), attention)
            flops = [_megaflops(models[0].stack, length) for length in LENGTHS]
            rows.append([system.label, *(f"`{n}`" for n in names), *counts, *flops])
    return markdown(header, rows, text=4)


def arena() -> str:
    """A row a classifier, a column a task; and what two layers have alone."""
    rows = []
    for system in SYSTEMS.values():
        if "lra" in system.kinds:
            counts = {task: classifier_parameters(system, task) for task in ARENA}
            alone = counts["listops"] - ARENA["listops"][0] * 64
            name = f"`{system.architecture_of('lra')}`"
            rows.append([name, *(f"{n:,}" for n in [*counts.values(), alone])])
    return markdown(["`--arch`", *ARENA, "without positions (listops)"], rows)


def parameters(model: nn.Module) -> int:
    """The number of a model's parameters."""
    return sum(parameter.numel() for parameter in model.parameters())


def classifier_parameters(system: System, task: str) -> int:
    """Parameters of a system for a task of the arena, positions included."""
    length, *sizes = ARENA[task]
    values = {"max_positions": length, "linformer_length": length}
    return parameters(built(system, "lra", *sizes, **values))


def built(system: System, kind: str, *sizes: int, **values: int) -> nn.Module:
    """A system's model, without memory for its weights."""
    config = CONFIGS[kind](**system.model_values(kind) | values)
    with torch.device("meta"):
        return MODELS[kind](config, *sizes)


def _megaflops(layers: nn.Module, length: int) -> str:
    try:
        return f"{layer_flops(layers, length) / 1e6:.1f}"
    except ValueError:  # not counted
        return NONE
