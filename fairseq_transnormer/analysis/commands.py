"""``python -m fairseq_transnormer analyse NAME``: the analyses of runs and models.

Those that need torch have their signatures here, so that their help does not load it.
"""

from __future__ import annotations

import logging
import math
from pathlib import Path
from typing import Annotated, Any

import tyro

from ..cli import Subcommand, run
from ..data.whole_files import write_json
from ..outputs import OutputFile, OutputFolder
from .figures import ImageFile, Panel, curves, named_paths, pictures

# name, file, summary
_TABLE = (
    ("run_curves", "run_curves", "loss curves and last values of runs"),
    ("gradient_statistics", "gradient_statistics", "Table 2: how far gradients vary"),
    ("update_line", "commands", "the loss along one update of the weights"),
    ("gradient_bounds", "commands", "section 3.1: bounds of the gradients"),
    ("attention_scores", "commands", "Figures 1 and 3: where attention goes"),
    ("context_use", "commands", "perplexity over the length of the context"),
    ("frequency_baselines", "frequency_baselines", "perplexity of unigram and bigram"),
    ("trivial_rules", "trivial_rules", "accuracy of what needs no model"),
    ("images", "images", "draw and complete images"),
    ("precision_curves", "precision_curves", "half precision compared with float32"),
    ("systems", "commands", "names, parameters and operations of every system"),
)
ANALYSES = {
    name: Subcommand(f"{__package__}.{file}:{name}", summary)
    for name, file, summary in _TABLE
}
Checkpoints = Annotated[tuple[str, ...], tyro.conf.arg(metavar="[NAME=]PATH ...")]


def main(arguments: list[str] | None = None) -> int:
    """Run an analysis; returns its exit code."""
    return run(
        "python -m fairseq_transnormer analyse",
        "Reads logs, checkpoints and data; docs/reproduce.md explains what comes out.",
        ANALYSES,
        arguments,
    )


def context_use(
    checkpoints: Checkpoints,
    /,
    data: Path,
    split: str = "valid",
    lengths: tuple[int, ...] = (64, 512),
    tokens: int = 102400,
    mask_share: float | None = None,
    output: OutputFile = None,
) -> None:
    """How much of its context a trained model uses: perplexity after shorter texts.

        python -m fairseq_transnormer analyse context_use T2=checkpoint_best.pt \\
            --data DATA --lengths 64 512

    The same tokens are predicted each time, in a text that is cut into blocks of each
    length. A model whose perplexity does not rise with shorter blocks makes nothing of
    what lies farther away.

    Args:
        checkpoints: models, or their exports.
        data: folder of binarised text.
        split: that is predicted.
        lengths: of the blocks, in tokens.
        tokens: the first ones of the split are predicted.
        mask_share: of the tokens, for masked models; None: that of their training.
        output: JSON file for the figures.
    """
    from ..checkpoints.load import load
    from .context_use import perplexities
    from .trained_models import language_model, read_blocks, trained_mask_share

    logging.disable(logging.INFO)
    text = read_blocks(data, split, 1, tokens).flatten()
    paths = named_paths(checkpoints)
    if mask_share is None:
        mask_share = trained_mask_share(paths.values())
    record: dict[str, Any] = {"split": split, "tokens": tokens}
    record |= {"mask_share": mask_share, "perplexity": {}, "weights": {}}
    for name, path in paths.items():
        trained = load(path, data)
        mask = trained.manifest.special_tokens.get("mask")
        model = language_model(trained)
        found = perplexities(model, text, list(lengths), mask_share, mask)
        record["perplexity"][name] = found
        record["weights"][name] = trained.fingerprint()
        figures = "  ".join(f"{n}: {ppl:.2f}" for n, ppl in found.items())
        print(f"{name:24} {figures}", flush=True)
    if output is not None:
        write_json(output, record)


def update_line(
    before: Path,
    after: Path,
    /,
    data: Path,
    split: str = "train",
    blocks: int = 4,
    length: int = 512,
    mask_share: float | None = None,
    fractions: tuple[float, ...] = tuple(i / 8 for i in range(13)),
    output: OutputFile = None,
    plot: ImageFile = None,
) -> None:
    """The loss along one update, from the weights before it to those after and beyond.

        python -m fairseq_transnormer analyse update_line before.pt after.pt --data DATA

    An update that makes a model worse may have gone too far in a good direction, or in
    a bad one: see the loss at fractions of it. What each part of the model does alone
    shows where it went wrong. How alike the outputs of an attention are over the tokens
    is printed, too: 1 where all tokens get the same vector.

    Args:
        before: checkpoint before the update.
        after: checkpoint after it.
        data: folder of binarised text.
        split: that the loss is of.
        blocks: of its text.
        length: of a block, in tokens.
        mask_share: of the tokens, for masked models; None: that of their training.
        fractions: of the update; 0: before, 1: after.
        output: JSON file for the figures.
        plot: image of the losses, PNG or PDF.
    """
    from ..checkpoints.load import load
    from . import update_line as line
    from .context_use import perplexities
    from .trained_models import language_model, read_blocks, trained_mask_share

    logging.disable(logging.INFO)
    text = read_blocks(data, split, blocks, length)
    earlier, trained = load(before, data), load(after, data)
    model = language_model(trained)
    old = language_model(earlier).state_dict()
    new = {name: value.clone() for name, value in model.state_dict().items()}
    if {k: v.shape for k, v in old.items()} != {k: v.shape for k, v in new.items()}:
        raise ValueError(f"{before} and {after} must be checkpoints of one run")
    mask = trained.manifest.special_tokens.get("mask")
    if mask_share is None:
        mask_share = trained_mask_share([before, after])

    def loss(each: Any) -> float:
        found = perplexities(each, text.flatten(), [length], mask_share, mask)
        return math.log2(found[length])

    along = line.loss_along(model, old, new, fractions, loss)
    parts = line.loss_of_parts(model, old, new, loss)
    model.load_state_dict(old)
    alike, inputs = line.likeness(model, text), line.norm_inputs(model, text)
    for fraction, bits in along.items():
        print(f"{fraction:6.3f} of the update: {bits:7.3f} bits a token")
    for part, bits in parts.items():
        print(f"{part} alone: {bits:7.3f} bits a token")
    if alike:
        shown = (f"{x:.2f}" for x in alike)
        print("attentions' outputs, likeness over tokens:", *shown)
    if inputs:
        print("into NormAttention's norm, RMS:", *(f"{x:.4g}" for x in inputs))
    if output is not None:
        record = {
            "split": split,
            "blocks": blocks,
            "length": length,
            "mask_share": mask_share,
            "bits_a_token": along,
            "one_part_moved": parts,
            "likeness_before": alike,
            "norm_inputs_before": inputs,
            "weights": [each.fingerprint() for each in (earlier, trained)],
        }
        write_json(output, record)
    if plot is not None:
        panel = Panel(x="fraction of the update", y="loss, bits a token")
        panel.add(None, list(along), list(along.values()), marker="o")
        curves([panel], plot)


def attention_scores(
    checkpoints: Checkpoints,
    /,
    data: Path,
    output: OutputFolder,
    split: str = "valid",
    sequences: int = 8,
    length: int = 512,
    layers: tuple[int, ...] = (0, 1, 2),
    head: int | None = None,
) -> None:
    """Where models look (Figure 2): locally accumulated attention scores, maps.

        python -m fairseq_transnormer analyse attention_scores --data data-bin/stdlib \\
            T2=runs/alm_t2/checkpoints/checkpoint_best.pt --output results/attention

    writes curves.png, maps.png and curves.json into the folder. docs/reproduce.md has
    the definitions.

    Args:
        checkpoints: models, or their exports.
        data: folder of binarised text, with its dict.txt.
        output: folder.
        split: of the text.
        sequences: to average over.
        length: of a sequence, in tokens.
        layers: whose maps are drawn, from 0.
        head: of the maps; None: the mean over heads.
    """
    from ..checkpoints.load import load
    from .attention_scores import attention_scores, brightness, chosen_maps, panels_of
    from .trained_models import language_model, read_blocks

    paths = named_paths(checkpoints)
    tokens = read_blocks(data, split, sequences, length)
    models, maps, results = {}, {}, {}
    for name, path in paths.items():
        trained = load(path, data)
        models[name] = scores = attention_scores(language_model(trained), tokens)
        maps[name] = chosen_maps(scores.maps, layers, head)
        results[name] = scores.as_json() | {"weights": trained.fingerprint()}
    write_json(output / "curves.json", results, indent=None)
    curves(panels_of(models), output / "curves.png", columns=1 + len(models))
    bright = {
        name: [(title, brightness(weights)) for title, weights in own.items()]
        for name, own in maps.items()
    }
    pictures(bright, output / "maps.png")
    for name, result in results.items():
        mean, even = (result[key]["area"] for key in ("mean", "evenly_spread"))
        print(
            f"{name}: area below the mean curve {mean:.3f} (evenly spread {even:.3f})"
        )
        for layer, each in result["attentions"].items():
            print(f"  {each['area']:.3f}  {layer}")


def gradient_bounds(
    output: OutputFolder, length: int = 32, width: int = 16, eps: float = 1e-8
) -> None:
    """Bounded and unbounded gradients (section 3.1): equations 9, 11, 15 in numbers.

    Random scores of every magnitude go through softmax, scaled linear and NormAttention
    in float64; the largest gradient of automatic differentiation is compared with the
    paper's bound. Writes gradient_bounds.json and gradient_bounds.png into the folder.

    Args:
        output: folder.
        length: n.
        width: d.
        eps: of RMSNorm.
    """
    from .gradient_bounds import TITLES, measure_all, panels_of

    results = measure_all(length, width, eps)
    write_json(output / "gradient_bounds.json", results)
    curves(panels_of(results), output / "gradient_bounds.png")
    for name, rows in results["magnitudes"].items():
        print(f"{TITLES[name]}: largest |dL/ds| by magnitude of the scores, and bound")
        for row in rows[::4]:
            shown = f"{row['gradient']:.3g}  {row['bound']:.3g}"
            print(f"  {row['magnitude']:.0e}  {shown}")


def systems() -> None:
    """Every system with its names, parameters and operations, as Markdown tables.

    The first table has the language models at the paper's size (Table 13), and what a
    token of 512 and of 8,192 costs in a forward pass of their layers; the second has
    the Long-Range Arena's classifiers by task.
    """
    from .systems import arena, language_models

    print(language_models(), arena(), sep="\n\n")
