"""Trained language models: text for them, and its perplexity."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from ..checkpoints import load
from ..checkpoints.identity import KEY, check_dictionary
from ..checkpoints.manifest import CAUSAL, MANIFEST
from ..checkpoints.vocabulary import Vocabulary
from ..data.binary_data import read_binary_data
from ..data.subword_files import BOS, DICTIONARY
from ..modules import CausalLanguageModel, MaskedLanguageModel
from ..modules.encoder_classifier import EncoderClassifier

TOKENS_AT_ONCE = 4096
LanguageModel = CausalLanguageModel | MaskedLanguageModel


def language_model(
    path: Path, data: Path, device: str | torch.device = "cpu"
) -> load.TrainedModel:
    """A model or its export in evaluation, without a classification head.

    Raises:
        CheckpointError: it cannot be loaded, or the data have another dictionary.
    """
    if (path / MANIFEST).is_file():
        trained = load.load(path, device=device)
        manifest = trained.manifest
        rows, has_mask = manifest.vocab_size, manifest.kind != CAUSAL
        here = Vocabulary.read(data / DICTIONARY, (), rows, has_mask)
        check_dictionary({KEY: manifest.dictionary_sha256}, here, path)
    else:
        trained = load.load(path, data, device=device)
    if isinstance(trained.model, EncoderClassifier):
        return replace(trained, model=trained.model.model)
    return trained


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
    model.features(tokens if is_causal else _after_begin(tokens))


def perplexities(
    trained: load.TrainedModel,
    text: Tensor,
    lengths: Sequence[int],
    mask_share: float | None = None,
) -> dict[int, float]:
    """Perplexity of one set of tokens, by the length of the blocks they stand in.

    A causal model predicts each token from those before it, but for the first of each
    of the shortest blocks. A masked one predicts a random ``mask_share`` of them, all
    replaced by ``<mask>``. It never predicts the last of a shortest block, whose place
    ``<s>`` takes.

    Args:
        trained: causal or masked.
        text: token ids, int64 (N,).
        lengths: of the blocks; each divides N, and the shortest all others.
        mask_share: of a masked model's tokens; a causal one needs none.

    Raises:
        ValueError: a length does not fit, or the model has no positions for it.
    """
    shortest = min(lengths)
    for length in lengths:
        if length < 2 or len(text) % length or length % shortest:
            raise ValueError(
                f"length {length} must be a divisor of {len(text)} from 2 on and a "
                f"multiple of {shortest}"
            )
    place = torch.arange(len(text)) % shortest
    predicted = place > 0
    if not isinstance(trained.model, CausalLanguageModel):
        if not 0 < (mask_share or 0) <= 1:
            raise ValueError(f"mask_share must be above 0, at most 1, got {mask_share}")
        drawn = torch.rand(len(text), generator=torch.Generator().manual_seed(0))
        predicted = (drawn < mask_share) & (place < shortest - 1)
    if not predicted.any():
        raise ValueError(f"none of {len(text)} tokens is predicted; allowed: more")
    found = {}
    for length in lengths:
        total = torch.zeros((), dtype=torch.float64)
        at_once = max(1, TOKENS_AT_ONCE // length)
        blocks = text.view(-1, length).split(at_once)
        chosen = predicted.view(-1, length).split(at_once)
        for tokens, wanted in zip(blocks, chosen, strict=True):
            scores = _scores(trained, tokens, wanted)
            total += scores.gather(-1, tokens.unsqueeze(-1)).squeeze(-1)[wanted].sum()
        found[length] = float(torch.exp(-total / predicted.sum()))
    return found


@torch.no_grad()
def _scores(trained: load.TrainedModel, tokens: Tensor, wanted: Tensor) -> Tensor:
    """Log-probabilities, float64 (B, N, vocab), at each token's own place."""
    model, mask = trained.model, trained.manifest.special_tokens.get("mask")
    if isinstance(model, CausalLanguageModel):
        # nothing predicts a block's first token
        logits = torch.nn.functional.pad(model(tokens[:, :-1]), (0, 0, 1, 0))
    else:
        # ... and its last one, whose place has none, is never wanted
        logits = model(_after_begin(tokens.masked_fill(wanted, mask))).roll(-1, 1)
    return logits.double().log_softmax(-1)


def _after_begin(tokens: Tensor) -> Tensor:
    """(B, N) tokens for a masked model: ``<s>``, and all but the last."""
    return torch.cat([torch.full_like(tokens[:, :1], BOS), tokens[:, :-1]], 1)
