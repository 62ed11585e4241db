"""Gradients of three attentions with respect to their scores, and their bounds.

Section 3.1 and appendix D, in the paper's symbols: scores s_ij, values V (n, d), a loss
with gradient G = dL/dO at the output O; c1 and c2 are the largest row norms of G and V,
c3 the smallest |s_ij|.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from ..ops.reference import rms_norm
from .figures import Panel

MAGNITUDES = [10.0**exponent for exponent in range(-12, 5)]
EPS = [10.0**exponent for exponent in range(-12, 1)]
TITLES = {"softmax": "vanilla", "linear": "scaled linear", "norm": "NormAttention"}


def softmax_attention(scores: Tensor, value: Tensor, eps: float = 0.0) -> Tensor:
    """softmax(S) V, equation 28; eps plays no part."""
    return scores.softmax(-1) @ value


def scaled_linear_attention(scores: Tensor, value: Tensor, eps: float = 0.0) -> Tensor:
    """Delta^-1 S V for positive scores, equation 29; eps plays no part."""
    return scores / scores.sum(-1, keepdim=True) @ value


def norm_attention(scores: Tensor, value: Tensor, eps: float) -> Tensor:
    """RMSNorm(S V), equation 33."""
    return rms_norm(scores @ value, eps=eps)


ATTENTIONS = {
    "softmax": softmax_attention,
    "linear": scaled_linear_attention,
    "norm": norm_attention,
}


def score_gradient(
    name: str, scores: Tensor, value: Tensor, gradient: Tensor, eps: float
) -> Tensor:
    """dL/dS (n, n) by automatic differentiation.

    Args:
        name: one of ``ATTENTIONS``.
        scores: (n, n) float64; positive for "linear".
        value: (n, d).
        gradient: (n, d), dL/dO.
        eps: of RMSNorm.
    """
    scores = scores.detach().requires_grad_()
    output = ATTENTIONS[name](scores, value, eps)
    return torch.autograd.grad(output, scores, gradient)[0]


def papers_bound(
    name: str, scores: Tensor, value: Tensor, gradient: Tensor, eps: float
) -> float:
    """What the paper holds |dL/ds_ij| to: equations 48, 59 and 61 (15).

    Those of "softmax" and "linear" take the norm of a row of U for at most the bound of
    its entries, which n >= 4 makes good for; see ``sharp_bound``.
    """
    n, d = value.shape
    c1, c2 = _largest_row(gradient), _largest_row(value)
    if name == "norm":
        return 1.5 * c1 * c2 * d / math.sqrt(eps)
    c3 = 1.0 if name == "softmax" else float(scores.abs().min())
    return math.sqrt(n) * c1 * c2 / (4 * c3)


def sharp_bound(
    name: str, scores: Tensor, value: Tensor, gradient: Tensor, eps: float
) -> float:
    """A bound that holds for every n, and is not larger than the paper's for n >= 4.

    dL/ds_ij = p_ij (1 - p_ij) (a_j - the mean of the other a_k, weighted by p_ik) for
    softmax, where a_k = G_i . V_k, at most c1 c2 2 / 4; for linear attention the same
    over s_ij. RMSNorm's Jacobian has the spectral norm 1 / sqrt(sigma_i^2 + eps).
    """
    c1, c2 = _largest_row(gradient), _largest_row(value)
    if name == "norm":
        return c1 * c2 / math.sqrt(eps)
    c3 = 1.0 if name == "softmax" else float(scores.abs().min())
    return c1 * c2 / (2 * c3)


def probability_gradient(name: str, scores: Tensor) -> Tensor:
    """dp_ij / ds_ik as (n, j, k) for "softmax" or "linear": equation 7."""
    normalise = {
        "softmax": lambda row: row.softmax(-1),
        "linear": lambda row: row / row.sum(-1, keepdim=True),
    }[name]
    return torch.func.vmap(torch.func.jacrev(normalise))(scores)


def _largest_row(x: Tensor) -> float:
    return float(x.norm(dim=-1).max())


def measure_all(length: int, width: int, eps: float) -> dict[str, Any]:
    """The largest gradients and their bounds, over magnitudes and over RMSNorm's eps.

    Scores (length, length) are random in 0.5 ... 1.5, values and dL/dO (length, width)
    normal, all in float64.

    Returns:
        "magnitudes": attention -> rows of magnitude, gradient, bound (the paper's) and
        sharp_bound; "softmax" and "linear" also probability_gradient and
        probability_bound, equation 9 or 11. "eps": rows of NormAttention's largest
        gradient over all magnitudes.
    """
    generator = torch.Generator().manual_seed(0)
    options: Any = {"generator": generator, "dtype": torch.float64}
    scores = 0.5 + torch.rand(length, length, **options)
    value, gradient = (torch.randn(length, width, **options) for _ in range(2))

    def measured(name: str, magnitude: float, eps: float) -> dict[str, float]:
        inputs = (name, magnitude * scores, value, gradient, eps)
        return {
            "gradient": float(score_gradient(*inputs).abs().max()),
            "bound": papers_bound(*inputs),
            "sharp_bound": sharp_bound(*inputs),
        }

    magnitudes: dict[str, list[dict[str, float]]] = {name: [] for name in ATTENTIONS}
    for name, rows in magnitudes.items():
        for magnitude in MAGNITUDES:
            row = {"magnitude": magnitude} | measured(name, magnitude, eps)
            if name != "norm":
                found = probability_gradient(name, magnitude * scores)
                least = 1 if name == "softmax" else float((magnitude * scores).min())
                row["probability_gradient"] = float(found.abs().max())
                row["probability_bound"] = 0.25 / least
            rows.append(row)
    by_eps = []
    for each in EPS:
        rows = [measured("norm", magnitude, each) for magnitude in MAGNITUDES]
        by_eps.append({"eps": each} | max(rows, key=lambda row: row["gradient"]))
    return {
        "length": length,
        "width": width,
        "eps_of_magnitudes": eps,
        "magnitudes": magnitudes,
        "eps": by_eps,
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
