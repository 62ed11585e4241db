"""Trained models and text to look at them with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from ..checkpoints import load
from ..checkpoints.safe_loading import read_checkpoint
from ..data.binary_data import read_binary_data
from ..data.subword_files import SPECIAL
from ..modules import CausalLanguageModel, MaskedLanguageModel
from ..modules.encoder_classifier import EncoderClassifier

LanguageModel = CausalLanguageModel | MaskedLanguageModel


class Trained(NamedTuple):
    """A language model; mask: its token ``<mask>``; weights: their fingerprint."""

    model: LanguageModel
    mask: int | None
    weights: str


def language_model(path: Path, data: Path) -> Trained:
    """A model or its export in evaluation, without a classification head."""
    trained = load.load(path, data)
    model = trained.model
    model = model.model if isinstance(model, EncoderClassifier) else model
    mask = trained.manifest.special_tokens.get("mask")
    return Trained(model, mask, trained.fingerprint())


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
        ValueError: it has fewer tokens.
    """
    ids = read_binary_data(data / split).ids()
    if len(ids) < count * length:
        raise ValueError(
            f"{data / split} must have {count} * {length} tokens, got {len(ids)}"
        )
    return torch.from_numpy(ids[: count * length].astype("int64")).view(count, length)


def run_on(model: LanguageModel, tokens: Tensor) -> None:
    """Run a model on tokens (B, N), as in training but for masked words."""
    is_causal = isinstance(model, CausalLanguageModel)
    model.features(tokens if is_causal else after_begin(tokens))


def after_begin(tokens: Tensor) -> Tensor:
    """(B, N) tokens for a masked model: ``<s>``, as fairseq's data have it, and all but
    the last."""
    begin = torch.full_like(tokens[:, :1], SPECIAL.index("<s>"))
    return torch.cat([begin, tokens[:, :-1]], 1)
