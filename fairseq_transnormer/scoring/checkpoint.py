"""A checkpoint that can score texts, with the units that it was trained on."""

from __future__ import annotations

from pathlib import Path

import torch
from fairseq.hub_utils import GeneratorHubInterface
from fairseq.models import ARCH_MODEL_REGISTRY, FairseqLanguageModel
from fairseq.models.transformer_lm import TransformerLanguageModel

from ..checkpoints.identity import check_reported_file
from ..checkpoints.safe_loading import CheckpointError
from ..generation import GenerationError
from ..generation.checkpoint import load_with_units, own_models
from ..models.masked_language_model import TransNormerEncoderModel
from .causal import CausalScorer
from .errors import ScoringError
from .masked import MaskedScorer

TASKS = ("language_modeling", "masked_lm")
# more pieces than this part of a sentencepiece model are in its training's dictionary
KNOWN_PIECES = 0.5


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
    _check_units(hub)
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


def _check_units(hub: GeneratorHubInterface) -> None:
    """See that texts are cut into the units that the dictionary has."""
    dictionary = hub.task.source_dictionary
    units = getattr(getattr(hub.bpe, "sp", None), "id_to_piece", None)
    folder = Path(hub.cfg.task.data)
    if units is None:
        return
    model, processor = Path(hub.cfg.bpe.sentencepiece_model), hub.bpe.sp
    try:
        check_reported_file(folder, "sentencepiece.bpe.model", model)
    except CheckpointError as error:
        raise ScoringError(str(error)) from error
    pieces = [
        processor.id_to_piece(i)
        for i in range(processor.get_piece_size())
        if not (processor.is_control(i) or processor.is_unknown(i))
    ]
    unknown = dictionary.unk()
    missing = sum(dictionary.index(piece) == unknown for piece in pieces)
    if missing > (1 - KNOWN_PIECES) * len(pieces):
        raise ScoringError(
            f"{model}: {missing:,} of its {len(pieces):,} pieces are not in "
            f"{folder / 'dict.txt'}; allowed: the sentencepiece model that the "
            "training's text was cut up by"
        )
