"""The loss along one update, from the weights before it to those after it and beyond.

    python -m fairseq_transnormer analyse update_line before.pt after.pt --data DATA

An update that makes a model worse may have gone too far in a good direction, or in a
bad one; the loss at fractions of it tells which. What each part of the model does alone
shows where it went wrong. How alike the outputs of an attention are over the tokens is
said, too: 1 where all tokens get the same vector.
"""

from __future__ import annotations

import argparse
import logging
import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..argument_types import finite_number, number_between, positive_integer
from ..checkpoints.load import load
from ..data.whole_files import write_json
from ..modules.norm_attention import NormAttention
from ..modules.registry import ATTENTIONS
from ..cli import command_parser, output_file, run_command
from .context_use import perplexities
from .figures import image_file, pyplot, save
from .trained_models import (
    LanguageModel,
    language_model,
    read_blocks,
    run_on,
    trained_mask_share,
)

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


def loss_along(
    model: nn.Module,
    before: Weights,
    after: Weights,
    fractions: list[float],
    loss: Loss,
) -> dict[float, float]:
    """Fraction of the update -> the loss with the weights there.

    Args:
        model: takes the weights; has others afterwards.
        before, after: its ``state_dict`` on both sides of the update.
        fractions: 0 is before, 1 after.
        loss: of the model.
    """
    found = {}
    for fraction in fractions:
        model.load_state_dict(
            {
                name: old.lerp(after[name], fraction)
                if old.is_floating_point()
                else old
                for name, old in before.items()
            }
        )
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
    kinds = tuple(ATTENTIONS.values())
    attentions = [each for each in model.modules() if isinstance(each, kinds)]

    def of_outputs(_: tuple, output: Tensor | tuple) -> float:
        x = output[0] if isinstance(output, tuple) else output
        return (x.mean(1).norm(dim=-1) / x.norm(dim=-1).mean(1)).mean().item()

    return _seen(model, tokens, attentions, of_outputs)


def norm_inputs(model: LanguageModel, tokens: Tensor) -> list[float]:
    """Of each NormAttention: the median root mean square of what its norm gets.

    Its norm's eps, which stands beside the square, matters where that is small.
    Arguments as for ``likeness``.
    """
    norms = [each.norm for each in model.modules() if isinstance(each, NormAttention)]
    return _seen(
        model,
        tokens,
        norms,
        lambda given, _: given[0].square().mean(-1).sqrt().median().item(),
    )


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


def main(argv: list[str] | None = None) -> int:
    """Command line; returns the exit code."""
    parser = command_parser("fairseq_transnormer analyse update_line", __doc__)
    add = parser.add_argument
    add("before", type=Path, metavar="BEFORE", help="checkpoint before the update")
    add("after", type=Path, metavar="AFTER", help="checkpoint after it")
    add("--data", type=Path, required=True, help="binarised text")
    add("--split", default="train", help="that the loss is of (train)")
    add("--blocks", type=positive_integer, default=4, help="of its text (4)")
    add("--length", type=positive_integer, default=512, help="tokens of one (512)")
    help_text = "of the tokens, for masked models (that of their training)"
    add("--mask-share", type=number_between(0, 1), help=help_text)
    add(
        "--fractions",
        type=finite_number,
        nargs="+",
        default=[i / 8 for i in range(13)],
        metavar="X",
        help="of the update; 0: before, 1: after (0 to 1.5 by eighths)",
    )
    add("--json", type=output_file, help="write the figures there, too")
    add("--plot", type=image_file, metavar="FILE.png", help="draw the losses")
    options = parser.parse_args(argv)
    logging.disable(logging.INFO)
    return run_command(parser.prog, lambda: _run(options))


def _run(options: argparse.Namespace) -> None:
    text = read_blocks(options.data, options.split, options.blocks, options.length)
    trained = load(options.after, options.data)
    earlier = load(options.before, options.data)
    model = language_model(trained)
    after = {k: v.clone() for k, v in model.state_dict().items()}
    before = language_model(earlier).state_dict()
    _check_same(options, before, after)

    length, share = options.length, options.mask_share
    mask = trained.manifest.special_tokens.get("mask")
    if share is None:
        share = trained_mask_share([options.before, options.after])

    def loss(each: LanguageModel) -> float:
        found = perplexities(each, text.flatten(), [length], share, mask)
        return math.log2(found[length])

    along = loss_along(model, before, after, options.fractions, loss)
    parts = loss_of_parts(model, before, after, loss)
    model.load_state_dict(before)
    alike, inputs = likeness(model, text), norm_inputs(model, text)
    record = {
        "split": options.split,
        "blocks": options.blocks,
        "length": options.length,
        "mask_share": share,
        "bits_a_token": along,
        "one_part_moved": parts,
        "likeness_before": alike,
        "norm_inputs_before": inputs,
        "weights": [each.fingerprint() for each in (earlier, trained)],
    }
    for fraction, bits in along.items():
        print(f"{fraction:6.3f} of the update: {bits:7.3f} bits a token")
    for part, bits in parts.items():
        print(f"{part} alone: {bits:7.3f} bits a token")
    if alike:
        shown = (f"{x:.2f}" for x in alike)
        print("attentions' outputs, likeness over tokens:", *shown)
    if inputs:
        print("into NormAttention's norm, RMS:", *(f"{x:.4g}" for x in inputs))
    if options.json is not None:
        write_json(options.json, record)
    if options.plot is not None:
        _draw(along, options.plot)


def _check_same(options: argparse.Namespace, before: Weights, after: Weights) -> None:
    if {k: v.shape for k, v in before.items()} != {
        k: v.shape for k, v in after.items()
    }:
        raise ValueError(
            f"{options.before}: of another model than {options.after}; allowed: "
            "checkpoints of one run"
        )


def _draw(along: Mapping[float, float], target: Path) -> None:
    figure, axes = pyplot().subplots(figsize=(5, 3.5), layout="constrained")
    axes.plot(list(along), list(along.values()), marker="o")
    axes.axvline(1, color="grey", linewidth=1)
    axes.set_xlabel("fraction of the update")
    axes.set_ylabel("loss, bits a token")
    save(figure, target)
