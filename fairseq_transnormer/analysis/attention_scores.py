"""Locally accumulated attention scores (Figure 2); docs/reproduce.md defines them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import numpy
import torch
from torch import Tensor

from ..modules import CausalLanguageModel
from .attention_matrices import attention_matrices, row_distributions
from .figures import Panel
from .trained_models import LanguageModel, run_on


@dataclass
class AttentionScores:
    """What one model's attentions do.

    Attributes:
        ratios: (R,) neighbourhood over length, 0 ... 1.
        curves: attention, from the first layer to the last -> (R,): l(i, r, N) averaged
            over positions, heads and sequences.
        rows: attention -> share of rows with any weight, which the curve is of.
        maps: attention -> (H, N, N), rows that sum to 1, of the first sequence.
        even: (R,) the curve of weights spread evenly over all tokens that are seen.
    """

    ratios: Tensor
    curves: dict[str, Tensor]
    rows: dict[str, float]
    maps: dict[str, Tensor]
    even: Tensor

    @property
    def mean_curve(self) -> Tensor:
        """(R,): the average over layers."""
        return torch.stack(list(self.curves.values())).mean(0)

    def as_json(self) -> dict:
        """Curves, the areas below them, and shares of rows, as plain numbers.

        The larger an area, the closer to its token attention stays.
        """

        def with_area(curve: Tensor) -> dict:
            area = float(torch.trapezoid(curve, self.ratios))
            return {"curve": curve.tolist(), "area": area}

        return {
            "ratios": self.ratios.tolist(),
            "mean": with_area(self.mean_curve),
            "evenly_spread": with_area(self.even),
            "attentions": {
                name: with_area(curve) | {"rows_with_weight": self.rows[name]}
                for name, curve in self.curves.items()
            },
        }


def attention_scores(
    model: LanguageModel, tokens: Tensor, points: int = 101
) -> AttentionScores:
    """Locally accumulated attention scores and maps of a language model.

    Args:
        model: in evaluation mode.
        tokens: int64 (B, N) without pads.
        points: ratios r between 0 and 1.

    Raises:
        ValueError: no attention of the model has a matrix.
    """
    ratios = torch.linspace(0, 1, points, dtype=torch.float64)
    sums, counts, rows, maps = {}, Counter(), Counter(), {}
    # one sequence at a time: a layer's matrices are H N^2 numbers each
    for sequence in tokens.split(1):
        matrices = attention_matrices(model, lambda row=sequence: run_on(model, row))
        for name, matrix in matrices.items():
            weights = row_distributions(matrix)[0]
            maps.setdefault(name, weights)
            curve, count = mean_curve(weights, ratios)
            sums[name] = sums.get(name, 0) + curve * count
            counts[name] += count
            rows[name] += weights[..., 0].numel()
    visible = torch.ones(tokens.shape[1], tokens.shape[1])
    if isinstance(model, CausalLanguageModel):
        visible = visible.tril()
    even, _ = mean_curve(row_distributions(visible), ratios)
    curves = {name: total / max(counts[name], 1) for name, total in sums.items()}
    shares = {name: counts[name] / rows[name] for name in rows}
    return AttentionScores(ratios, curves, shares, maps, even)


def chosen_maps(
    maps: dict[str, Tensor], layers: Iterable[int], head: int | None
) -> dict[str, Tensor]:
    """Title -> (N, N), of the layers that there are."""
    chosen = {}
    for layer, weights in enumerate(maps.values()):
        if layer in layers:
            if head is not None and not 0 <= head < len(weights):
                raise ValueError(
                    f"head must be from 0 to {len(weights) - 1}, got {head}"
                )
            name = "mean over heads" if head is None else f"head {head}"
            map_ = weights.mean(0) if head is None else weights[head]
            chosen[f"attention {layer}, {name}"] = map_
    if not chosen:
        raise ValueError(f"layers must be from 0 to {len(maps) - 1}, got {[*layers]}")
    return chosen


def panels_of(models: dict[str, AttentionScores]) -> list[Panel]:
    """The mean over layers of all models, then each model's layers, the first in blue.

    Dotted: weights spread evenly over all tokens that a model sees.
    """
    x, y = "neighbourhood / length", "accumulated attention score"
    panels = [Panel("mean over layers", x, y)]
    for name, scores in models.items():
        own, ratios = Panel(name, x), scores.ratios.numpy()
        panels.append(own)
        panels[0].add(name, ratios, scores.mean_curve.numpy())
        for index, curve in enumerate(scores.curves.values()):
            depth = index / max(len(scores.curves) - 1, 1)
            colour = (depth, 0.4, 1 - depth)
            own.add(f"attention {index}", ratios, curve.numpy(), color=colour)
        for panel in (panels[0], own):
            dots = {"linestyle": ":", "color": "0.5"}
            panel.add("evenly spread", ratios, scores.even.numpy(), **dots)
    return panels


def brightness(weights: Tensor) -> numpy.ndarray:
    """weight^(1/2) of a map (N, N), from 0 to 1.

    The largest weights, a few in a row, would leave the rest black.
    """
    brightest = max(float(weights.flatten().quantile(0.995)), 1e-12)
    return (weights / brightest).clamp(max=1).sqrt().numpy()


def locally_accumulated_scores(weights: Tensor, ratios: Tensor) -> Tensor:
    """l(i, r, N) = p_i,start + ... + p_i,end over the neighbourhood of each token i.

    The neighbourhood has round(r N) tokens. It is centred on i, with the odd one on the
    left, and moved inside where it would pass an end of the sequence, so that it has
    this length everywhere and l(i, 1, N) = 1.

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
