"""Perplexity of the same tokens after shorter texts."""

from collections.abc import Sequence

import torch
from torch import Tensor

from ..modules import CausalLanguageModel
from .trained_models import LanguageModel, after_begin

TOKENS_AT_ONCE = 4096


def perplexities(
    model: LanguageModel,
    text: Tensor,
    lengths: Sequence[int],
    mask_share: float | None = None,
    mask: int | None = None,
) -> dict[int, float]:
    """Perplexity of one set of tokens, by the length of the blocks they stand in.

    A causal model predicts each token from those before it, but for the first of each
    of the shortest blocks. A masked one predicts a random ``mask_share`` of them, which
    are all replaced by ``<mask>``, but for the last of each of the shortest blocks,
    whose place ``<s>`` takes.

    Args:
        model: in evaluation, causal or masked.
        text: token ids, int64 (N,).
        lengths: of the blocks; each divides N, and the shortest all others.
        mask_share: of a masked model's tokens; a causal one needs none.
        mask: the token ``<mask>``, likewise.

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
    if not isinstance(model, CausalLanguageModel):
        if not mask_share:
            raise ValueError(f"mask_share must be above 0, got {mask_share}")
        drawn = torch.rand(len(text), generator=torch.Generator().manual_seed(0))
        predicted = (drawn < mask_share) & (place < shortest - 1)
    found = {}
    for length in lengths:
        total = torch.zeros((), dtype=torch.float64)
        at_once = max(1, TOKENS_AT_ONCE // length)
        blocks = text.view(-1, length).split(at_once)
        chosen = predicted.view(-1, length).split(at_once)
        for tokens, wanted in zip(blocks, chosen, strict=True):
            scores = _scores(model, tokens, wanted, mask)
            total += scores.gather(-1, tokens.unsqueeze(-1)).squeeze(-1)[wanted].sum()
        found[length] = float(torch.exp(-total / predicted.sum()))
    return found


@torch.no_grad()
def _scores(
    model: LanguageModel, tokens: Tensor, wanted: Tensor, mask: int | None
) -> Tensor:
    """Log-probabilities, float64 (B, N, vocab), at each token's own place."""
    if isinstance(model, CausalLanguageModel):
        logits = model(tokens[:, :-1])
        logits = torch.cat([torch.zeros_like(logits[:, :1]), logits], 1)
    else:
        logits = model(after_begin(tokens.masked_fill(wanted, mask)))
        logits = torch.cat([logits[:, 1:], torch.zeros_like(logits[:, :1])], 1)
    return logits.double().log_softmax(-1)
