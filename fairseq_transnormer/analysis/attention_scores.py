"""Locally accumulated attention scores (Figure 2); docs/reproduce.md defines them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy
import torch
from torch import Tensor

from ..modules import CausalLanguageModel
from .attention_matrices import attention_matrices, row_distributions
from .figures import Panel
from .language_models import LanguageModel, run_on

# of a neighbourhood to the length
RATIOS = torch.linspace(0, 1, 101, dtype=torch.float64)


def attention_scores(
    model: LanguageModel, tokens: Tensor
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Locally accumulated attention scores and maps of a language model.

    Args:
        model: in evaluation mode.
        tokens: int64 (B, N) without pads.

    Returns:
        curves and maps. Curves are l(i, r, N) over the "ratios" r, averaged over
        positions, heads and sequences, as plain numbers. There is one for each of the
        "attentions", with its share of rows that have any weight. "mean" is the mean of
        these; "evenly_spread" is of even weights over all tokens that are seen. The
        larger the area below a curve, the closer to its token attention stays. Maps
        are attention -> (H, N, N), rows that sum to 1, of the first sequence.

    Raises:
        ValueError: no attention of the model has a matrix.
    """
    sums, counts, rows, maps = {}, Counter(), Counter(), {}
    # one sequence at a time: a layer's matrices are H N^2 numbers each
    for sequence in tokens.split(1):
        matrices = attention_matrices(model, lambda row=sequence: run_on(model, row))
        for name, matrix in matrices.items():
            weights = row_distributions(matrix)[0]
            maps.setdefault(name, weights)
            curve, count = mean_curve(weights, RATIOS)
            sums[name] = sums.get(name, 0) + curve * count
            counts[name] += count
            rows[name] += weights[..., 0].numel()
    visible = torch.ones(tokens.shape[1], tokens.shape[1])
    if isinstance(model, CausalLanguageModel):
        visible = visible.tril()
    even, _ = mean_curve(row_distributions(visible), RATIOS)
    curves = {name: total / max(counts[name], 1) for name, total in sums.items()}
    found = {
        "ratios": RATIOS.tolist(),
        "mean": _with_area(torch.stack(list(curves.values())).mean(0)),
        "evenly_spread": _with_area(even),
        "attentions": {
            name: _with_area(curve) | {"rows_with_weight": counts[name] / rows[name]}
            for name, curve in curves.items()
        },
    }
    return found, maps


def _with_area(curve: Tensor) -> dict[str, Any]:
    return {"curve": curve.tolist(), "area": float(torch.trapezoid(curve, RATIOS))}


def chosen_maps(
    maps: dict[str, Tensor], layers: Iterable[int]
) -> list[tuple[str, numpy.ndarray]]:
    """Titles and maps (N, N) from 0 to 1, means over heads, of the layers there are.

    The square roots of weights over the largest: a few weights in a row would leave the
    rest black.
    """
    chosen = []
    for layer, weights in enumerate(maps.values()):
        if layer in layers:
            mean = weights.mean(0)
            brightest = max(float(mean.flatten().quantile(0.995)), 1e-12)
            bright = (mean / brightest).clamp(max=1).sqrt().numpy()
            chosen.append((f"attention {layer}, mean over heads", bright))
    if not chosen:
        raise ValueError(f"layers must be from 0 to {len(maps) - 1}, got {[*layers]}")
    return chosen


def panels_of(models: dict[str, dict[str, Any]]) -> list[Panel]:
    """The mean over layers of all models, then each model's layers, the first in blue.

    Dotted: weights spread evenly over all tokens that a model sees.
    """
    x, y = "neighbourhood / length", "accumulated attention score"
    panels = [Panel("mean over layers", x, y)]
    for name, found in models.items():
        own, ratios, layers = Panel(name, x), found["ratios"], found["attentions"]
        panels.append(own)
        panels[0].add(name, ratios, found["mean"]["curve"])
        for index, each in enumerate(layers.values()):
            depth = index / max(len(layers) - 1, 1)
            colour = (depth, 0.4, 1 - depth)
            own.add(f"attention {index}", ratios, each["curve"], color=colour)
        for panel in (panels[0], own):
            dots = {"linestyle": ":", "color": "0.5"}
            panel.add("evenly spread", ratios, found["evenly_spread"]["curve"], **dots)
    return panels


def locally_accumulated_scores(weights: Tensor, ratios: Tensor) -> Tensor:
    """l(i, r, N) = p_i,start + ... + p_i,end over the neighbourhood of each token i.

    The neighbourhood has round(r N) tokens. It is centred on i, with the odd one on the
    left. Where it would pass an end of the sequence, it is moved inside. So it has this
    length everywhere, and l(i, 1, N) = 1.

    Args:
        weights: (..., N, N), rows that sum to 1.
        ratios: (R,) in 0 ... 1.

    Returns:
        (..., N, R) float64.
    """
    length = weights.shape[-1]
    sizes = (ratios.double() * length).round().long()
    position = torch.arange(length)[:, None]
    start = (position - sizes // 2).clamp(min=0).minimum(length - sizes)
    total = torch.nn.functional.pad(weights.double().cumsum(-1), (1, 0))
    shape = (*total.shape[:-1], len(sizes))
    upper = total.gather(-1, (start + sizes).expand(shape))
    return upper - total.gather(-1, start.expand(shape))


def mean_curve(weights: Tensor, ratios: Tensor) -> tuple[Tensor, int]:
    """l averaged over all rows, those without any weight left out.

    Args:
        weights: (..., N, N), rows that sum to 1 or 0.
        ratios: (R,) in 0 ... 1.

    Returns:
        (R,) float64, and the number of rows it is the mean of; zeros if that is 0.
    """
    scores = locally_accumulated_scores(weights, ratios)
    has_weight = weights.sum(-1) > 0
    count = int(has_weight.sum())
    return scores[has_weight].sum(0) / max(count, 1), count
