"""Gradients of the attentions over magnitudes of their scores, and their bounds."""

from __future__ import annotations

from typing import Any

import torch

from .attention_gradients import (
    ATTENTIONS,
    papers_bound,
    probability_gradient,
    score_gradient,
    sharp_bound,
)
from .figures import Panel

MAGNITUDES = [10.0**exponent for exponent in range(-12, 5)]
EPS = [10.0**exponent for exponent in range(-12, 1)]
TITLES = {
    "softmax": "vanilla",
    "linear": "scaled linear",
    "norm": "NormAttention",
}


class Inputs:
    """Random scores in 0.5 ... 1.5, and normal values and dL/dO, float64."""

    def __init__(self, length: int, width: int, seed: int = 0):
        generator = torch.Generator().manual_seed(seed)
        options = {"generator": generator, "dtype": torch.float64}
        self.scores = 0.5 + torch.rand(length, length, **options)
        self.value = torch.randn(length, width, **options)
        self.gradient = torch.randn(length, width, **options)

    def measure(self, name: str, magnitude: float, eps: float) -> dict[str, float]:
        """The largest |dL/ds_ij| at ``magnitude`` times the scores, and bounds."""
        inputs = (name, magnitude * self.scores, self.value, self.gradient, eps)
        return {
            "gradient": float(score_gradient(*inputs).abs().max()),
            "bound": papers_bound(*inputs),
            "sharp_bound": sharp_bound(*inputs),
        }

    def measure_probabilities(self, name: str, magnitude: float) -> dict[str, float]:
        """The largest |dp_ij/ds_ik|, and equation 9 or 11."""
        scores = magnitude * self.scores
        return {
            "probability_gradient": float(
                probability_gradient(name, scores).abs().max()
            ),
            "probability_bound": 0.25
            if name == "softmax"
            else 0.25 / float(scores.min()),
        }


def magnitude_sweep(inputs: Inputs, eps: float) -> dict[str, list[dict[str, float]]]:
    """Gradients and bounds over magnitudes of the scores.

    Returns:
        attention -> rows of magnitude, gradient, bound (the paper's) and sharp_bound;
        "softmax" and "linear" also probability_gradient and probability_bound.
    """
    results = {name: [] for name in ATTENTIONS}
    for name, rows in results.items():
        for magnitude in MAGNITUDES:
            row = {"magnitude": magnitude} | inputs.measure(name, magnitude, eps)
            if name != "norm":
                row |= inputs.measure_probabilities(name, magnitude)
            rows.append(row)
    return results


def eps_sweep(inputs: Inputs) -> list[dict[str, float]]:
    """NormAttention's largest gradient over all magnitudes, for RMSNorm's eps."""
    rows = []
    for eps in EPS:
        found = [inputs.measure("norm", magnitude, eps) for magnitude in MAGNITUDES]
        rows.append({"eps": eps} | max(found, key=lambda row: row["gradient"]))
    return rows


def measure_all(length: int, width: int, eps: float) -> dict[str, Any]:
    """Both sweeps, for scores (length, length) and values (length, width)."""
    inputs = Inputs(length, width)
    return {
        "length": length,
        "width": width,
        "eps_of_magnitudes": eps,
        "magnitudes": magnitude_sweep(inputs, eps),
        "eps": eps_sweep(inputs),
    }


def panels_of(results: dict[str, Any]) -> list[Panel]:
    """Gradients (lines) and the paper's bounds (dashes)."""
    # saturated softmax rows underflow to gradients of zero
    options: Any = {"log": "xy", "limits": (1e-6, None)}
    x = "magnitude of the scores (dashed: bound)"
    loss = Panel("loss by score", x, "largest |dL / ds|", **options)
    weight = Panel("attention weight by score", x, "largest |dp / ds|", **options)
    by_eps = Panel("NormAttention, scores of any size", "eps of RMSNorm", log="xy")
    by_eps.y = loss.y

    def add(panel: Panel, key: str, rows: list[dict], label: str, colour: str) -> None:
        for name, style in (("gradient", "-"), ("bound", "--")):
            values = [row[key.replace("gradient", name)] for row in rows]
            x = [row["eps" if panel is by_eps else "magnitude"] for row in rows]
            shown = label if style == "-" else None
            panel.add(shown, x, values, linestyle=style, color=colour)

    for index, (name, rows) in enumerate(results["magnitudes"].items()):
        add(loss, "gradient", rows, TITLES[name], f"C{index}")
        if name != "norm":
            add(weight, "probability_gradient", rows, TITLES[name], f"C{index}")
    add(by_eps, "gradient", results["eps"], "measured; dashed: bound (15)", "C2")
    return [loss, weight, by_eps]
