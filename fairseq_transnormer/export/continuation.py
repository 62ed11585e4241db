"""Continues tokens in plain PyTorch: prompts in one pass, then state by state."""

from __future__ import annotations

from typing import TypedDict

import torch
from torch import Tensor

from ..modules import CausalLanguageModel
from ..modules.sampling_settings import check_drawing
from .errors import ExportError


class Settings(TypedDict, total=False):
    """What can be chosen in ``continue_tokens``, by name, for a type checker."""

    max_new_tokens: int
    temperature: float
    top_k: int | None
    top_p: float | None
    seed: int | None


@torch.no_grad()
def continue_tokens(
    model: CausalLanguageModel,
    tokens: Tensor,
    *,
    end: int,
    pad: int,
    max_new_tokens: int = 128,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int | None = None,
) -> Tensor:
    """Append tokens to rows, the likeliest ones or drawn ones.

    Args:
        model: in evaluation.
        tokens: int64 (B, N), without pads.
        end: the token after which a row is not continued.
        pad: is never chosen; fills rows that have ended.
        max_new_tokens: most tokens that are appended.
        temperature: divides the logits of drawn tokens; from 1e-8 to 1e8.
        top_k: draw from the k likeliest tokens.
        top_p: draw from the likeliest tokens that together have this probability.
        seed: of what is drawn. With none of ``top_k``, ``top_p`` and ``seed`` nothing
            is drawn: each token is the likeliest one.

    Returns:
        int64 (B, N + M), M up to ``max_new_tokens``.

    Raises:
        ExportError: a setting is not allowed.
    """
    check_drawing(
        ExportError,
        max_new_tokens=max_new_tokens,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        seed=seed,
    )
    rows = model.embed_tokens.weight.shape[0]
    if not ((tokens >= 0) & (tokens < rows)).all():
        raise ExportError(f"tokens={tokens.tolist()!r:.80}; allowed: 0 to {rows - 1}")
    random = None
    if not top_k is top_p is seed is None:
        random = torch.Generator(tokens.device)
        random.manual_seed(seed) if seed is not None else random.seed()
    written, unread, states = [tokens], tokens, None
    ended = torch.zeros(len(tokens), dtype=torch.bool, device=tokens.device)
    for _ in range(max_new_tokens):
        features, states = model.features(unread, states, return_states=True)
        logits = model.output(features[:, -1]).float()
        logits[:, pad] = -torch.inf
        if random is None:
            chosen = logits.argmax(-1, keepdim=True)
        else:
            chosen = _draw(logits / temperature, top_k, top_p, random)
        unread = chosen
        written.append(chosen.masked_fill(ended[:, None], pad))
        ended |= chosen[:, 0] == end
        if ended.all():
            break
    return torch.cat(written, 1)


def _draw(
    logits: Tensor, top_k: int | None, top_p: float | None, random: torch.Generator
) -> Tensor:
    """(B, V) -> (B, 1)."""
    ranked, order = logits.sort(dim=-1, descending=True)
    probabilities = ranked.softmax(-1)
    if top_k is not None:
        probabilities[:, top_k:] = 0
    if top_p is not None:
        before = probabilities.cumsum(-1) - probabilities
        # the likeliest one stays, however small top_p is as a float32
        probabilities[:, 1:][before[:, 1:] >= top_p] = 0
    return order.gather(1, probabilities.multinomial(1, generator=random))
