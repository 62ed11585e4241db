"""Gradients of three attentions with respect to their scores, and their bounds.

Section 3.1 and appendix D, in the paper's symbols: scores s_ij and values V (n, d). The
loss has the gradient G = dL/dO at the output O. The largest row norms of G and V are c1
and c2. The smallest |s_ij| is c3.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..ops.reference import rms_norm
from .figures import Panel

LENGTH, WIDTH = 32, 16  # n, d
MAGNITUDES = [10.0**exponent for exponent in range(-12, 5)]
EPS = [10.0**exponent for exponent in range(-12, 1)]
USUAL_EPS = 1e-8
TITLES = {"softmax": "vanilla", "linear": "scaled linear", "norm": "NormAttention"}
# equation 7: how rows of scores become weights
WEIGHTS: dict[str, Callable[[Tensor], Tensor]] = {
    "softmax": lambda scores: scores.softmax(-1),
    "linear": lambda scores: scores / scores.sum(-1, keepdim=True),
    "norm": lambda scores: scores,
}


def attention(name: str, scores: Tensor, value: Tensor, eps: float) -> Tensor:
    """Equations 28, 29 and 33: (n, d) of scores, values and RMSNorm's eps."""
    output = WEIGHTS[name](scores) @ value
    return rms_norm(output, eps=eps) if name == "norm" else output


def score_gradient(
    name: str, scores: Tensor, value: Tensor, gradient: Tensor, eps: float
) -> Tensor:
    """dL/dS (n, n) by automatic differentiation.

    Args:
        name: one of ``WEIGHTS``.
        scores: (n, n) float64; positive for "linear".
        value: (n, d).
        gradient: (n, d), dL/dO.
        eps: of RMSNorm.
    """
    scores = scores.detach().requires_grad_()
    return torch.autograd.grad(attention(name, scores, value, eps), scores, gradient)[0]


def bounds(
    name: str, scores: Tensor, value: Tensor, gradient: Tensor, eps: float
) -> tuple[float, float]:
    """What |dL/ds_ij| is held to by the paper, and a sharper bound for every n.

    The paper's are equations 48, 59 and 61 (15). For "softmax" and "linear" they hold
    from n = 4 on. They take the norm of a row of U for at most its entries' bound.

    dL/ds_ij = p_ij (1 - p_ij) (a_j - the mean of the other a_k, weighted by p_ik) for
    softmax, where a_k = G_i . V_k, at most c1 c2 2 / 4; for linear attention the same
    over s_ij. RMSNorm's Jacobian has the spectral norm 1 / sqrt(sigma_i^2 + eps).
    """
    n, d = value.shape
    c1, c2 = (float(x.norm(dim=-1).max()) for x in (gradient, value))
    if name == "norm":
        return 1.5 * c1 * c2 * d / math.sqrt(eps), c1 * c2 / math.sqrt(eps)
    c3 = 1.0 if name == "softmax" else float(scores.abs().min())
    return math.sqrt(n) * c1 * c2 / (4 * c3), c1 * c2 / (2 * c3)


def probability_gradient(name: str, scores: Tensor) -> Tensor:
    """dp_ij / ds_ik as (n, j, k) for "softmax" or "linear": equation 7."""
    return torch.func.vmap(torch.func.jacrev(WEIGHTS[name]))(scores)


def measure_all() -> dict[str, Any]:
    """The largest gradients and their bounds, over magnitudes and over RMSNorm's eps.

    Scores (n, n) are random in 0.5 ... 1.5, values and dL/dO (n, d) normal, all in
    float64.

    Returns:
        "magnitudes": attention -> rows of magnitude, gradient, bound (the paper's) and
        sharp_bound; "softmax" and "linear" also probability_gradient and
        probability_bound, equation 9 or 11. "eps": rows of NormAttention's largest
        gradient over all magnitudes.
    """
    generator = torch.Generator().manual_seed(0)
    options: Any = {"generator": generator, "dtype": torch.float64}
    scores = 0.5 + torch.rand(LENGTH, LENGTH, **options)
    value, gradient = (torch.randn(LENGTH, WIDTH, **options) for _ in range(2))

    def measured(name: str, magnitude: float, eps=USUAL_EPS) -> dict[str, float]:
        inputs = (name, magnitude * scores, value, gradient, eps)
        paper, sharp = bounds(*inputs)
        row = {"gradient": float(score_gradient(*inputs).abs().max())}
        row |= {"bound": paper, "sharp_bound": sharp}
        if name != "norm":
            found = probability_gradient(name, inputs[1])
            least = 1 if name == "softmax" else float(inputs[1].min())
            row["probability_gradient"] = float(found.abs().max())
            row["probability_bound"] = 0.25 / least
        return row

    magnitudes = {
        name: [{"magnitude": each} | measured(name, each) for each in MAGNITUDES]
        for name in WEIGHTS
    }
    by_eps = []
    for each in EPS:
        rows = [measured("norm", magnitude, each) for magnitude in MAGNITUDES]
        by_eps.append({"eps": each} | max(rows, key=lambda row: row["gradient"]))
    settings = {"length": LENGTH, "width": WIDTH, "eps_of_magnitudes": USUAL_EPS}
    return settings | {"magnitudes": magnitudes, "eps": by_eps}


def panels_of(results: dict[str, Any]) -> list[Panel]:
    """Gradients (lines) and the paper's bounds (dashes)."""
    # saturated softmax rows underflow to gradients of zero
    options: Any = {"log": "xy", "bottom": 1e-6}
    x, y = "magnitude of the scores (dashed: bound)", "largest |dL / ds|"
    loss = Panel("loss by score", x, y, **options)
    weight = Panel("attention weight by score", x, "largest |dp / ds|", **options)
    eps = "eps of RMSNorm (dashed: bound 15)"
    by_eps = Panel("NormAttention, scores of any size", eps, y, log="xy")

    def add(panel: Panel, name: str, key: str, rows: list[dict], x: str) -> None:
        for kind, style in (("gradient", "-"), ("bound", "--")):
            values = ([row[each] for row in rows] for each in (x, key + kind))
            panel.add(TITLES[name], *values, linestyle=style)

    for name, rows in results["magnitudes"].items():
        add(loss, name, "", rows, "magnitude")
        if name != "norm":
            add(weight, name, "probability_", rows, "magnitude")
    add(by_eps, "norm", "", results["eps"], "eps")
    return [loss, weight, by_eps]
