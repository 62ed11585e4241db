"""Bounded and unbounded gradients (section 3.1): equations 9, 11, 15 in numbers.

    python -m fairseq_transnormer analyse gradient_bounds --output results/analyses

Random scores of every magnitude go through softmax, scaled linear and NormAttention in
float64; the largest gradient that automatic differentiation gives stands beside the
paper's bound. Writes gradient_bounds.json and gradient_bounds.png into the folder.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from ..argument_types import positive_integer, positive_number
from ..data.whole_files import write_json
from ..cli import command_parser, output_folder, run_command
from .attention_gradients import (
    ATTENTIONS,
    papers_bound,
    probability_gradient,
    score_gradient,
    sharp_bound,
)
from .figures import pyplot, save

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


def draw(results: dict, target: Path) -> None:
    """Draw gradients (lines) and the paper's bounds (dashes)."""
    figure, (left, middle, right) = pyplot().subplots(
        1, 3, figsize=(13, 4), layout="constrained"
    )
    for index, (name, rows) in enumerate(results["magnitudes"].items()):
        magnitudes = [row["magnitude"] for row in rows]
        lines = [(left, "gradient", "bound")]
        if name != "norm":
            lines.append((middle, "probability_gradient", "probability_bound"))
        for axes, measured, bound in lines:
            style = {"color": f"C{index}", "linewidth": 1.4}
            axes.plot(
                magnitudes, [r[measured] for r in rows], label=TITLES[name], **style
            )
            axes.plot(magnitudes, [r[bound] for r in rows], "--", **style)
    eps = [row["eps"] for row in results["eps"]]
    style = {"color": "C2", "linewidth": 1.4}
    right.plot(eps, [r["gradient"] for r in results["eps"]], label="measured", **style)
    right.plot(
        eps, [r["bound"] for r in results["eps"]], "--", label="bound (15)", **style
    )
    left.set(title="loss by score", ylabel="largest |dL / ds|")
    middle.set(title="attention weight by score", ylabel="largest |dp / ds|")
    right.set(title="NormAttention, scores of any size", ylabel="largest |dL / ds|")
    for axes in (left, middle):
        axes.set_xlabel("magnitude of the scores (dashed: bound)")
    right.set_xlabel("eps of RMSNorm")
    for axes in (left, middle, right):
        axes.set(xscale="log", yscale="log")
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8)
    for axes in (left, middle):
        # saturated softmax rows underflow to gradients of zero
        axes.set_ylim(bottom=1e-6)
    save(figure, target)


def main(argv: list[str] | None = None) -> int:
    """Command line; returns the exit code."""
    parser = command_parser("fairseq_transnormer analyse gradient_bounds", __doc__)
    parser.add_argument("--output", type=output_folder, required=True, help="folder")
    add = parser.add_argument
    add("--length", type=positive_integer, default=32, help="n (32)")
    add("--width", type=positive_integer, default=16, help="d (16)")
    add("--eps", type=positive_number, default=1e-8, help="of RMSNorm (1e-8)")
    options = parser.parse_args(argv)
    return run_command(parser.prog, lambda: _run(options))


def _run(options: argparse.Namespace) -> None:
    inputs = Inputs(options.length, options.width)
    results = {
        "length": options.length,
        "width": options.width,
        "eps_of_magnitudes": options.eps,
        "magnitudes": magnitude_sweep(inputs, options.eps),
        "eps": eps_sweep(inputs),
    }
    write_json(options.output / "gradient_bounds.json", results)
    draw(results, options.output / "gradient_bounds.png")
    for name, rows in results["magnitudes"].items():
        print(f"{TITLES[name]}: largest |dL/ds| by magnitude of the scores, and bound")
        for row in rows[::4]:
            print(
                f"  {row['magnitude']:.0e}  {row['gradient']:.3g}  {row['bound']:.3g}"
            )
