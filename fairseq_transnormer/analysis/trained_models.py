"""Trained models and text to look at them with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import torch
from torch import Tensor

from ..checkpoints.load import TrainedModel
from ..checkpoints.safe_loading import read_checkpoint
from ..data.binary_data import read_binary_data
from ..data.subword_files import SPECIAL
from ..modules import CausalLanguageModel, MaskedLanguageModel
from ..modules.encoder_classifier import EncoderClassifier

LanguageModel = CausalLanguageModel | MaskedLanguageModel


def language_model(trained: TrainedModel) -> LanguageModel:
    """The model, without a classification head."""
    model = trained.model
    return model.model if isinstance(model, EncoderClassifier) else model


def trained_mask_share(paths: Iterable[Path]) -> float | None:
    """The share of tokens that the masked models among checkpoints learnt to tell,
    ``task.mask_prob``; None where there is no masked model.

    Raises:
        ValueError: they learnt with different shares, or a file is no checkpoint.
    """
    shares = {}
    for path in filter(Path.is_file, paths):
        settings = read_checkpoint(path, mmap=True, compare_sums=False).get("cfg")
        task = settings.get("task") if isinstance(settings, Mapping) else None
        share = task.get("mask_prob") if isinstance(task, Mapping) else None
        if share is not None:
            shares[path] = float(share)
    if len(set(shares.values())) > 1:
        each = ", ".join(f"{path}: {share}" for path, share in shares.items())
        raise ValueError(
            f"trained with different shares of masked tokens ({each}); set --mask-share"
        )
    return next(iter(shares.values()), None)


def read_blocks(data: Path, split: str, count: int, length: int) -> Tensor:
    """The first ``count`` consecutive blocks of ``length`` tokens of a binarised split.

    Returns:
        int64 (count, length).

    Raises:
        ValueError: there is no such split, it is damaged, or it has fewer tokens.
    """
    found = read_binary_data(data / split)
    if found.tokens < count * length:
        raise ValueError(
            f"{data}: split {split!r} has {found.tokens} tokens; allowed: {count} * "
            f"{length} tokens at least"
        )
    ids = found.ids()[: count * length].astype("int64")
    return torch.from_numpy(ids).view(count, length)


def run_on(model: LanguageModel, tokens: Tensor) -> None:
    """Run a model on tokens (B, N), as in training but for masked words."""
    is_causal = isinstance(model, CausalLanguageModel)
    model.features(tokens if is_causal else after_begin(tokens))


def after_begin(tokens: Tensor) -> Tensor:
    """(B, N) tokens for a masked model: ``<s>``, as fairseq's data have it, and all but
    the last."""
    begin = torch.full_like(tokens[:, :1], SPECIAL.index("<s>"))
    return torch.cat([begin, tokens[:, :-1]], 1)
