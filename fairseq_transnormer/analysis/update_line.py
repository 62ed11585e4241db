"""The loss along one update of the weights, and of parts of it."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ..modules.norm_attention import NormAttention
from ..modules.registry import ATTENTIONS
from .context_use import perplexities
from .trained_models import LanguageModel, Trained, run_on

# parts of a model, by its parameters' names
PARTS = {
    "values and outputs of the attentions": r"attention\.(v|out)_proj",
    "queries and keys": r"attention\.(q|k)_proj",
    "channel mixers": r"feed_forward\.",
    "norms": r"norm\.(weight|bias)$",
    "embeddings": r"embed_",
    "masked-LM head": r"lm_head\.",
}
Weights = Mapping[str, Tensor]
Loss = Callable[[Any], float]


def follow(
    before: Trained,
    after: Trained,
    text: Tensor,
    fractions: Iterable[float],
    mask_share: float | None,
) -> dict[str, Any]:
    """What ``analyse update_line`` says of a text, int64 (blocks, length).

    Raises:
        ValueError: the two are not of one run.
    """
    model, length = after.model, text.shape[1]
    old = before.model.state_dict()
    new = {name: value.clone() for name, value in model.state_dict().items()}
    if {k: v.shape for k, v in old.items()} != {k: v.shape for k, v in new.items()}:
        raise ValueError("the checkpoints must be of one run: their weights differ")

    def loss(each: LanguageModel) -> float:
        of = perplexities(each, text.flatten(), [length], mask_share, after.mask)
        return math.log2(of[length])

    found: dict[str, Any] = {
        "bits_a_token": loss_along(model, old, new, fractions, loss),
        "one_part_moved": loss_of_parts(model, old, new, loss),
    }
    model.load_state_dict(old)
    found["likeness_before"] = likeness(model, text)
    return found | {"norm_inputs_before": norm_inputs(model, text)}


def loss_along(
    model: nn.Module,
    before: Weights,
    after: Weights,
    fractions: Iterable[float],
    loss: Loss,
) -> dict[float, float]:
    """Fraction of the update -> the loss with the weights there.

    Args:
        model: takes the weights; has others afterwards.
        before, after: its ``state_dict`` on both sides of the update.
        fractions: 0 is before, 1 after.
        loss: of the model.
    """

    def moved(name: str, fraction: float) -> Tensor:
        old = before[name]
        return old.lerp(after[name], fraction) if old.is_floating_point() else old

    found = {}
    for fraction in fractions:
        model.load_state_dict({name: moved(name, fraction) for name in before})
        found[fraction] = loss(model)
    return found


def loss_of_parts(
    model: nn.Module, before: Weights, after: Weights, loss: Loss
) -> dict[str, float]:
    """Part -> the loss where its weights alone are those after the update.

    Arguments as for ``loss_along``; parts that the model has not are left out. A weight
    that embedding and output layer share is the embedding's.
    """
    # a tied weight has several names, of which load_state_dict takes the last
    first_names: dict[int, str] = {}
    part_of = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        part_of[name] = first_names.setdefault(id(parameter), name)
    found = {}
    for part, pattern in PARTS.items():
        moved = {name for name, first in part_of.items() if re.search(pattern, first)}
        if moved:
            model.load_state_dict(
                {name: (after if name in moved else before)[name] for name in before}
            )
            found[part] = loss(model)
    return found


def likeness(model: LanguageModel, tokens: Tensor) -> list[float]:
    """Of each attention: the length of its outputs' mean over their mean length.

    Args:
        model: in evaluation.
        tokens: int64 (B, N); each row is looked at by itself.

    Returns:
        numbers from 0 to 1, in the order of the layers.
    """

    def of_outputs(_: tuple, output: tuple) -> float:
        x = output[0]
        return (x.mean(1).norm(dim=-1) / x.norm(dim=-1).mean(1)).mean().item()

    kinds = tuple(ATTENTIONS.values())
    attentions = [each for each in model.modules() if isinstance(each, kinds)]
    return _seen(model, tokens, attentions, of_outputs)


def norm_inputs(model: LanguageModel, tokens: Tensor) -> list[float]:
    """Of each NormAttention: the median root mean square of what its norm gets.

    Its norm's eps, which stands beside the square, matters where that is small.
    Arguments as for ``likeness``.
    """

    def of_inputs(given: tuple, _: Any) -> float:
        return given[0].square().mean(-1).sqrt().median().item()

    norms = [each.norm for each in model.modules() if isinstance(each, NormAttention)]
    return _seen(model, tokens, norms, of_inputs)


@torch.no_grad()
def _seen(
    model: LanguageModel,
    tokens: Tensor,
    modules: list[nn.Module],
    measure: Callable[[tuple, Any], float],
) -> list[float]:
    """What ``measure`` makes of the modules' inputs and outputs, as they come."""
    found: list[float] = []

    def note(_: nn.Module, given: tuple, output: Any) -> None:
        found.append(measure(given, output))

    hooks = [each.register_forward_hook(note) for each in modules]
    run_on(model, tokens)
    for hook in hooks:
        hook.remove()
    return found
