"""``python -m fairseq_transnormer analyse NAME``: the analyses of runs and models.

Those that need torch have their signatures here, so that their help does not load it.
"""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

from ..cli import Subcommand, run
from ..data.whole_files import write_json
from ..outputs import NamedPaths, OutputFile, OutputFolder
from .figures import curves, pictures

# name -> file, if it is not this one, and summary
_TABLE = {
    "run_curves": ("run_curves", "loss curves and last values of runs"),
    "gradient_statistics": ("gradient_statistics", "Table 2: how far gradients vary"),
    "update_line": ("commands", "the loss along one update of the weights"),
    "gradient_bounds": ("commands", "section 3.1: bounds of the gradients"),
    "attention_scores": ("commands", "Figure 2: where attention goes"),
    "context_use": ("commands", "perplexity over the length of the context"),
    "frequency_baselines": ("frequency_baselines", "perplexity of unigram and bigram"),
    "trivial_rules": ("trivial_rules", "accuracy of what needs no model"),
    "images": ("images", "draw and complete images"),
    "precision_curves": ("precision_curves", "half precision compared with float32"),
    "systems": ("commands", "names, parameters and operations of every system"),
}
ANALYSES = {
    name: Subcommand(f"{__package__}.{file}:{name}", summary)
    for name, (file, summary) in _TABLE.items()
}


def main(arguments: list[str] | None = None) -> int:
    """Run an analysis; returns its exit code."""
    return run(
        "python -m fairseq_transnormer analyse",
        "Reads logs, checkpoints and data; docs/reproduce.md explains what comes out.",
        ANALYSES,
        arguments,
    )


def context_use(
    checkpoints: NamedPaths,
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
    length. Where shorter blocks raise the perplexity, the model uses what lies farther.

    Args:
        checkpoints: models, or their exports.
        data: folder of binarised text.
        split: that is predicted.
        lengths: of the blocks, in tokens.
        tokens: the first ones of the split are predicted.
        mask_share: of the tokens, which masked models predict.
        output: JSON file for the figures.
    """
    from .language_models import language_model, perplexities, read_blocks

    text = read_blocks(data, split, 1, tokens).flatten()
    record: dict[str, Any] = {"split": split, "tokens": tokens}
    record |= {"mask_share": mask_share, "perplexity": {}, "weights": {}}
    for name, path in checkpoints.items():
        trained = language_model(path, data)
        record["weights"][name] = trained.fingerprint()
        found = perplexities(trained, text, lengths, mask_share)
        record["perplexity"][name] = found
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
) -> None:
    """The loss along one update, from the weights before it to those after and beyond.

        python -m fairseq_transnormer analyse update_line before.pt after.pt --data DATA

    Args:
        before: checkpoint before the update.
        after: checkpoint after it.
        data: folder of binarised text.
        split: that the loss is of.
        blocks: of its text.
        length: of a block, in tokens.
        mask_share: of the tokens, which masked models predict.
        fractions: of the update; 0: before, 1: after.
        output: JSON file for the figures.
    """
    from .language_models import language_model, perplexities, read_blocks

    text = read_blocks(data, split, blocks, length).flatten()
    models = [language_model(path, data) for path in (before, after)]
    weights = [each.fingerprint() for each in models]
    old, new = (each.model.state_dict() for each in models)
    new = copy.deepcopy(new)  # this model gets the weights between
    shapes = ({k: v.shape for k, v in each.items()} for each in (old, new))
    first, second = zip((each.manifest.config for each in models), shapes, strict=True)
    if first != second:
        raise ValueError("the checkpoints must be of one run: their models differ")
    along = {}
    for fraction in fractions:
        moved = {
            name: each.lerp(new[name], fraction) if each.is_floating_point() else each
            for name, each in old.items()
        }
        models[1].model.load_state_dict(moved)
        perplexity = perplexities(models[1], text, [length], mask_share)[length]
        along[fraction] = math.log2(perplexity)
        print(f"{fraction:6.3f} of the update: {along[fraction]:7.3f} bits a token")
    if output is not None:
        record = {"split": split, "blocks": blocks, "length": length}
        record |= {"mask_share": mask_share, "bits_a_token": along}
        write_json(output, record | {"weights": weights})


def attention_scores(
    checkpoints: NamedPaths,
    /,
    data: Path,
    output: OutputFolder,
    split: str = "valid",
    sequences: int = 8,
    length: int = 512,
    layers: tuple[int, ...] = (0, 1, 2),
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
    """
    from .attention_scores import attention_scores, chosen_maps, panels_of
    from .language_models import language_model, read_blocks

    tokens = read_blocks(data, split, sequences, length)
    results, maps = {}, {}
    for name, path in checkpoints.items():
        trained = language_model(path, data)
        weights = trained.fingerprint()
        found, matrices = attention_scores(trained.model, tokens)
        maps[name] = chosen_maps(matrices, layers)
        results[name] = found | {"weights": weights}
        mean, even = (found[key]["area"] for key in ("mean", "evenly_spread"))
        said = f"area below the mean curve {mean:.3f} (evenly spread {even:.3f})"
        print(f"{name}: {said}", flush=True)
        for layer, each in found["attentions"].items():
            print(f"  {each['area']:.3f}  {layer}")
    write_json(output / "curves.json", results, indent=None)
    curves(panels_of(results), output / "curves.png")
    scale = "square root of a weight over the map's largest"
    pictures(maps, output / "maps.png", scale=scale)


def gradient_bounds(output: OutputFolder) -> None:
    """Bounded and unbounded gradients (section 3.1): equations 9, 11, 15 in numbers.

    Random scores of every magnitude go through softmax, scaled linear and NormAttention
    in float64. The largest gradient of automatic differentiation is compared with the
    paper's bound. It writes gradient_bounds.json and gradient_bounds.png.

    Args:
        output: folder.
    """
    from .gradient_bounds import TITLES, measure_all, panels_of

    results = measure_all()
    write_json(output / "gradient_bounds.json", results)
    curves(panels_of(results), output / "gradient_bounds.png")
    for name, rows in results["magnitudes"].items():
        print(f"{TITLES[name]}: largest |dL/ds| by magnitude of the scores, and bound")
        for row in rows[::4]:
            shown = f"{row['gradient']:.3g}  {row['bound']:.3g}"
            print(f"  {row['magnitude']:.0e}  {shown}")


def systems() -> None:
    """Every system with its names, parameters and operations, as Markdown tables.

    The first table has the language models at the paper's size (Table 13). It gives the
    operations a token, forward in the layers, for texts of 512 and 8,192 tokens. The
    second has the Long-Range Arena's classifiers by task.
    """
    from .systems import arena, language_models

    print(language_models(), arena(), sep="\n\n")
