"""How much of its context a trained model uses: perplexity after shorter texts.

    python -m fairseq_transnormer analyse context_use T2=checkpoint_best.pt \\
        --data DATA --lengths 64 512

The same tokens are predicted each time, in a text that is cut into blocks of each
length. A model whose perplexity does not rise with shorter blocks makes nothing of what
lies farther away.
"""

import argparse
import logging
from pathlib import Path

import torch
from torch import Tensor

from ..argument_types import number_between, positive_integer
from ..checkpoints.load import load
from ..data.whole_files import write_json
from ..modules import CausalLanguageModel
from ..cli import command_parser, output_file, run_command
from .figures import named_paths
from .trained_models import (
    LanguageModel,
    after_begin,
    language_model,
    read_blocks,
    trained_mask_share,
)

TOKENS_AT_ONCE = 4096


def perplexities(
    model: LanguageModel,
    text: Tensor,
    lengths: list[int],
    mask_share: float | None = None,
    mask: int | None = None,
) -> dict[int, float]:
    """Perplexity of one set of tokens, by the length of the blocks they stand in.

    A causal model predicts each token from those before it, but for the first of each
    of the shortest blocks. A masked one predicts a random ``mask_share`` of them, which
    are all replaced by ``<mask>``, but for the last of each of the shortest blocks,
    whose place ``<s>`` takes.

    Args:
        model: in evaluation, causal or masked.
        text: token ids, int64 (N,).
        lengths: of the blocks; each divides N, and the shortest all others.
        mask_share: of a masked model's tokens; a causal one needs none.
        mask: the token ``<mask>``, likewise.

    Raises:
        ValueError: a length does not fit, or the model has no positions for it.
    """
    shortest = min(lengths)
    for length in lengths:
        if length < 2 or len(text) % length or length % shortest:
            raise ValueError(
                f"length {length}: allowed are divisors of {len(text)} from 2 that are "
                f"multiples of {shortest}"
            )
    causal = isinstance(model, CausalLanguageModel)
    place = torch.arange(len(text)) % shortest
    if causal:
        predicted = place > 0
    else:
        if mask_share is None or mask is None:
            raise ValueError("mask_share is needed for a masked model; allowed: 0 to 1")
        drawn = torch.rand(len(text), generator=torch.Generator().manual_seed(0))
        predicted = (drawn < mask_share) & (place < shortest - 1)
        if not predicted.any():
            raise ValueError(
                f"mask_share {mask_share}: none of {len(text)} tokens is masked; "
                "allowed: a larger one"
            )
    found = {}
    for length in lengths:
        total = torch.zeros((), dtype=torch.float64)
        at_once = max(1, TOKENS_AT_ONCE // length)
        blocks = text.view(-1, length).split(at_once)
        chosen = predicted.view(-1, length).split(at_once)
        for tokens, wanted in zip(blocks, chosen, strict=True):
            scores = _scores(model, tokens, wanted, mask)
            total += scores.gather(-1, tokens.unsqueeze(-1)).squeeze(-1)[wanted].sum()
        found[length] = float(torch.exp(-total / predicted.sum()))
    return found


@torch.no_grad()
def _scores(
    model: LanguageModel, tokens: Tensor, wanted: Tensor, mask: int | None
) -> Tensor:
    """Log-probabilities, float64 (B, N, vocab), at each token's own place."""
    if isinstance(model, CausalLanguageModel):
        logits = model(tokens[:, :-1])
        logits = torch.cat([torch.zeros_like(logits[:, :1]), logits], 1)
    else:
        logits = model(after_begin(tokens.masked_fill(wanted, mask)))
        logits = torch.cat([logits[:, 1:], torch.zeros_like(logits[:, :1])], 1)
    return logits.double().log_softmax(-1)


def main(argv: list[str] | None = None) -> int:
    """Command line; returns the exit code."""
    parser = command_parser("fairseq_transnormer analyse context_use", __doc__)
    parser.add_argument("checkpoints", nargs="+", metavar="[NAME=]PATH")
    parser.add_argument("--data", type=Path, required=True, help="binarised text")
    parser.add_argument("--split", default="valid", help="that is predicted (valid)")
    parser.add_argument(
        "--lengths", type=positive_integer, nargs="+", default=[64, 512]
    )
    parser.add_argument(
        "--tokens",
        type=positive_integer,
        default=102400,
        help="the first ones (102400)",
    )
    parser.add_argument(
        "--mask-share",
        type=number_between(0, 1),
        help="of the tokens, for masked models (that of their training)",
    )
    parser.add_argument("--json", type=output_file, help="write the figures there, too")
    options = parser.parse_args(argv)
    logging.disable(logging.INFO)
    return run_command(parser.prog, lambda: _run(options))


def _run(options: argparse.Namespace) -> None:
    record = {"split": options.split, "tokens": options.tokens}
    text = read_blocks(options.data, options.split, 1, options.tokens).flatten()
    paths = named_paths(options.checkpoints)
    share = options.mask_share
    if share is None:
        share = trained_mask_share(paths.values())
    record |= {"mask_share": share, "perplexity": {}, "weights": {}}
    for name, path in paths.items():
        trained = load(path, options.data)
        mask = trained.manifest.special_tokens.get("mask")
        model = language_model(trained)
        found = perplexities(model, text, options.lengths, share, mask)
        record["perplexity"][name] = found
        record["weights"][name] = trained.fingerprint()
        figures = "  ".join(f"{n}: {ppl:.2f}" for n, ppl in found.items())
        print(f"{name:24} {figures}", flush=True)
    if options.json is not None:
        write_json(options.json, record)
