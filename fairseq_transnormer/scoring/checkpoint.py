"""A checkpoint that can score texts, with the units that it was trained on."""

from __future__ import annotations

from pathlib import Path

import torch
from fairseq.hub_utils import GeneratorHubInterface
from fairseq.models import ARCH_MODEL_REGISTRY, FairseqLanguageModel
from fairseq.models.transformer_lm import TransformerLanguageModel

from ..generation import GenerationError
from ..generation.checkpoint import load_with_units, own_models
from ..plugin.models.masked_language_model import TransNormerEncoderModel
from .causal import CausalScorer
from .errors import ScoringError
from .masked import MaskedScorer

TASKS = ("language_modeling", "masked_lm")


def load_for_scoring(
    path: str | Path,
    data: str | Path | None,
    sentencepiece_model: str | Path | None,
    device: torch.device,
    batch_tokens: int,
) -> tuple[GeneratorHubInterface, CausalScorer | MaskedScorer]:
    """Load a checkpoint of a causal or a masked language model.

    Raises:
        ScoringError: a file is missing or not what it should be, or they do not belong
            together.
    """
    fairseqs = {
        name
        for name, model in ARCH_MODEL_REGISTRY.items()
        if model is TransformerLanguageModel
    }
    causal = own_models(FairseqLanguageModel) | fairseqs | {"transformer_lm"}
    masked = own_models(TransNormerEncoderModel)
    try:
        hub = load_with_units(path, data, sentencepiece_model, causal | masked, TASKS)
    except GenerationError as error:
        raise ScoringError(str(error)) from error
    _check_settings(path, hub.cfg)
    hub = hub.to(device).eval()
    (model,) = hub.models
    if isinstance(model, TransNormerEncoderModel):
        task = hub.task
        return hub, MaskedScorer(model, task.dictionary, task.mask_idx, batch_tokens)
    return hub, CausalScorer(model, batch_tokens)


def _check_settings(path: str | Path, cfg) -> None:
    for setting in ("add_bos_token", "output_dictionary_size"):
        value = getattr(cfg.task, setting, None)
        if value not in (None, False, -1):
            raise ScoringError(
                f"{path}: trained with {setting}={value}; allowed: without it"
            )
