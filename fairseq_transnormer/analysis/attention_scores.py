"""Where models look (Figure 2): locally accumulated attention scores, attention maps.

    python -m fairseq_transnormer analyse attention_scores --data data-bin/stdlib \\
        --checkpoint T2=runs/alm_t2/checkpoints/checkpoint_best.pt \\
        --checkpoint vanilla=runs/alm_vanilla/checkpoints/checkpoint_best.pt \\
        --output results/attention

writes curves.png, maps.png and curves.json into the folder. docs/analyses.md has the
definitions.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from ..argument_types import positive_integer
from ..checkpoints.load import load
from ..data.whole_files import write_json
from ..modules import CausalLanguageModel
from ..cli import command_parser, output_folder, run_command
from .attention_matrices import attention_matrices, row_distributions
from .figures import named_paths, pyplot, save
from .trained_models import LanguageModel, language_model, read_blocks, run_on

MAPS = 3  # drawn by default


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
        """Curves, the areas below them, and shares of rows, as plain numbers."""
        mean = self.mean_curve
        return {
            "ratios": self.ratios.tolist(),
            "mean": {"curve": mean.tolist(), "area": area(self.ratios, mean)},
            "evenly_spread": {
                "curve": self.even.tolist(),
                "area": area(self.ratios, self.even),
            },
            "attentions": {
                name: {
                    "curve": curve.tolist(),
                    "area": area(self.ratios, curve),
                    "rows_with_weight": self.rows[name],
                }
                for name, curve in self.curves.items()
            },
        }


def area(ratios: Tensor, curve: Tensor) -> float:
    """Area below a curve: the larger, the closer to its token attention stays."""
    return float(torch.trapezoid(curve, ratios))


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
    sums, counts, rows, maps = {}, {}, {}, {}
    # one sequence at a time: a layer's matrices are H N^2 numbers each
    for sequence in tokens.split(1):
        matrices = attention_matrices(model, lambda row=sequence: run_on(model, row))
        for name, matrix in matrices.items():
            weights = row_distributions(matrix)[0]
            curve, count = mean_curve(weights, ratios)
            sums[name] = sums.get(name, 0) + curve * count
            counts[name] = counts.get(name, 0) + count
            rows[name] = rows.get(name, 0) + weights[..., 0].numel()
            maps.setdefault(name, weights)
    visible = torch.ones(tokens.shape[1], tokens.shape[1])
    if isinstance(model, CausalLanguageModel):
        visible = visible.tril()
    even, _ = mean_curve(row_distributions(visible), ratios)
    return AttentionScores(
        ratios,
        {name: total / max(counts[name], 1) for name, total in sums.items()},
        {name: counts[name] / rows[name] for name in rows},
        maps,
        even,
    )


def main(argv: list[str] | None = None) -> int:
    """Command line; returns the exit code."""
    parser = command_parser("fairseq_transnormer analyse attention_scores", __doc__)
    parser.add_argument(
        "--checkpoint",
        action="append",
        required=True,
        metavar="[NAME=]FILE",
        help="a model; may be given again",
    )
    parser.add_argument(
        "--data", type=Path, required=True, help="binarised text, with its dict.txt"
    )
    parser.add_argument("--split", default="valid", help="of the text (valid)")
    number = {"type": positive_integer}
    parser.add_argument("--sequences", **number, default=8, help="to average over (8)")
    parser.add_argument("--length", **number, default=512, help="tokens each (512)")
    parser.add_argument(
        "--layers", type=int, nargs="+", help="of the maps (the first three)"
    )
    parser.add_argument(
        "--head", type=int, help="of the maps; the mean over heads by default"
    )
    parser.add_argument("--output", type=output_folder, required=True, help="folder")
    options = parser.parse_args(argv)
    return run_command(parser.prog, lambda: _run(options))


def _run(options: argparse.Namespace) -> None:
    paths = named_paths(options.checkpoint)
    tokens = read_blocks(options.data, options.split, options.sequences, options.length)
    models, maps, weights = {}, {}, {}
    for name, path in paths.items():
        trained = load(path, options.data)
        weights[name] = trained.fingerprint()
        models[name] = scores = attention_scores(language_model(trained), tokens)
        maps[name] = _chosen_maps(scores.maps, options.layers, options.head)
    results = {
        name: scores.as_json() | {"weights": weights[name]}
        for name, scores in models.items()
    }
    write_json(options.output / "curves.json", results, indent=None)
    draw_curves(models, options.output / "curves.png")
    draw_maps(maps, options.output / "maps.png")
    for name, result in results.items():
        mean, even = (result[key]["area"] for key in ("mean", "evenly_spread"))
        print(
            f"{name}: area below the mean curve {mean:.3f} (evenly spread {even:.3f})"
        )
        for layer, each in result["attentions"].items():
            print(f"  {each['area']:.3f}  {layer}")


def _chosen_maps(
    maps: dict[str, Tensor], layers: list[int] | None, head: int | None
) -> dict[str, Tensor]:
    """Title -> (N, N)."""
    names = list(maps)
    layers = [*range(len(names))][:MAPS] if layers is None else layers
    for layer in layers:
        if not 0 <= layer < len(names):
            raise ValueError(f"--layers {layer}; allowed: 0 ... {len(names) - 1}")
    chosen = {}
    for layer in layers:
        weights = maps[names[layer]]
        if head is None:
            chosen[f"attention {layer}, mean over heads"] = weights.mean(0)
        elif 0 <= head < len(weights):
            chosen[f"attention {layer}, head {head}"] = weights[head]
        else:
            raise ValueError(f"--head {head}; allowed: 0 ... {len(weights) - 1}")
    return chosen


def draw_curves(models: dict[str, AttentionScores], target: Path) -> None:
    """Draw the mean over layers of all models, then each model's layers.

    Dotted: weights spread evenly over all tokens that a model sees.
    """
    columns = 1 + len(models)
    figure, grid = pyplot().subplots(
        1, columns, figsize=(3.6 * columns, 3.6), sharey=True, layout="constrained"
    )
    grid[0].set(ylabel="accumulated attention score", title="mean over layers")
    colours = pyplot().get_cmap("viridis")
    for number, (name, scores) in enumerate(models.items()):
        ratios, even = scores.ratios.numpy(), scores.even.numpy()
        own = grid[1 + number]
        own.set_title(name)
        grid[0].plot(ratios, scores.mean_curve.numpy(), color=f"C{number}", label=name)
        for index, curve in enumerate(scores.curves.values()):
            own.plot(
                ratios,
                curve.numpy(),
                color=colours(0.9 * index / max(len(scores.curves) - 1, 1)),
                label=f"attention {index}",
            )
        own.plot(ratios, even, ":", color="0.5", label="evenly spread")
        grid[0].plot(ratios, even, ":", color="0.5")
    for axes in grid:
        axes.set(xlabel="neighbourhood / length")
        axes.grid(alpha=0.3)
        axes.legend(fontsize=7, loc="lower right")
    save(figure, target)


def draw_maps(models: dict[str, dict[str, Tensor]], target: Path) -> None:
    """Draw attention maps, a row a model; brightness is weight^(1/2), by map.

    Args:
        models: name -> title -> (N, N) of weights.
        target: image to write.
    """
    columns = max(map(len, models.values()))
    figure, grid = pyplot().subplots(
        len(models),
        columns,
        figsize=(2.4 * columns, 2.5 * len(models)),
        squeeze=False,
        layout="constrained",
    )
    for row, (name, maps) in zip(grid, models.items(), strict=True):
        row[0].set_ylabel(f"{name}\nquery", fontsize=9)
        for axes, (title, weights) in zip(row, maps.items(), strict=True):
            # the largest weights, a few in a row, would leave the rest black
            brightest = max(float(weights.flatten().quantile(0.995)), 1e-12)
            brightness = (weights / brightest).clamp(max=1).sqrt().numpy()
            axes.imshow(brightness, cmap="magma", vmin=0, vmax=1)
            axes.set_title(title, fontsize=8)
            axes.set_xlabel("key", fontsize=8)
            axes.tick_params(labelsize=7)
    save(figure, target)


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
