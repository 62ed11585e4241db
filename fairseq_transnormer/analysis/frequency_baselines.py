"""Perplexity of what needs no attention: the frequency of tokens, and of pairs.

    python -m fairseq_transnormer analyse frequency_baselines DATA --tokens 102400

A language model is at the unigram's perplexity as long as it looks at nothing, and a
causal one at the bigram's as long as it looks at the current token alone, which it can
do without any attention. Models that stand there have not begun to use their attention,
and their order says nothing about it. A masked model is shown some of the tokens that
it is asked for, right or wrong: "masked" looks at that one token.
"""

import argparse
import logging
from pathlib import Path

import numpy as np

from ..argument_types import positive_integer
from ..data.binary_data import read_binary_data
from ..data.whole_files import write_json
from ..subcommands import command_parser, output_file, run_command


def baselines(train: np.ndarray, text: np.ndarray, size: int) -> dict[str, float]:
    """Perplexities of ``text`` under frequencies counted in ``train``.

    The unigram is p(b) = (n(b) + 1/2) / (N + size/2); the bigram is drawn to it where
    a token is rare: p(b | a) = (n(a, b) + 5 p(b)) / (n(a) + 5).

    Args:
        train: token ids, (N,).
        text: token ids, (M,), M >= 2; the first one is predicted by neither.
        size: of the dictionary, above every id.

    Returns:
        "unigram" and "bigram", per token.

    Raises:
        ValueError: one of the two has fewer than 2 tokens.
    """
    for name, ids in (("train", train), ("text", text)):
        if len(ids) < 2:
            raise ValueError(f"{name} has {len(ids)} tokens; allowed: 2 or more")
    single = (np.bincount(train, minlength=size) + 0.5) / (len(train) + size / 2)
    pairs, counts = np.unique(train[:-1] * size + train[1:], return_counts=True)
    seen = np.bincount(train[:-1], minlength=size)
    before, after = text[:-1], text[1:]
    wanted = before * size + after
    place = np.searchsorted(pairs, wanted).clip(max=len(pairs) - 1)
    found = np.where(pairs[place] == wanted, counts[place], 0)
    pair = (found + 5 * single[after]) / (seen[before] + 5)
    return {
        "unigram": float(np.exp(-np.log(single[after]).mean())),
        "bigram": float(np.exp(-np.log(pair).mean())),
    }


def masked_baseline(
    train: np.ndarray,
    text: np.ndarray,
    size: int,
    leave_unmasked_prob: float = 0.1,
    random_token_prob: float = 0.1,
) -> float:
    """Perplexity of the best rule of a masked model that looks at no other place.

    Of what fairseq's ``masked_lm`` asks for, a share u is shown as it is and a share r
    as one of K symbols, drawn evenly; the rest as ``<mask>``. Where that is v,
    P(b | v) = (u p(v) [b = v] + r p(b) / K) / (u p(v) + r / K), and p(b) at ``<mask>``,
    with the unigram of ``baselines``; special symbols are never drawn.
    Which share is asked for makes no difference.

    Args:
        train: token ids, (N,).
        text: token ids, (M,); what is expected of all of them.
        size: of the dictionary, without ``<mask>``.
        leave_unmasked_prob: u.
        random_token_prob: r, above 0.

    Returns:
        per token.
    """
    special = 4  # <s>, <pad>, </s>, <unk> are never drawn
    drawn = size - special + 1  # <mask> is, too
    single = (np.bincount(train, minlength=size) + 0.5) / (len(train) + size / 2)
    chance = random_token_prob / drawn
    drawn_as = np.where(np.arange(size) < special, 0, chance)
    shown = leave_unmasked_prob * single + drawn_as
    of_itself = -np.log((leave_unmasked_prob + drawn_as) * single / shown)
    # the sum over all symbols that may be drawn, but for <mask>, in place of a token
    wrong = np.log(shown[special:]).sum() - (drawn - 1) * np.log(chance * single)
    wrong[special:] += of_itself[special:]
    wrong[special:] += np.log(chance * single[special:] / shown[special:])
    masked = 1 - leave_unmasked_prob - random_token_prob + chance
    nats = -masked * np.log(single) + leave_unmasked_prob * of_itself
    return float(np.exp((nats + chance * wrong)[text].mean()))


def token_ids(folder: Path, split: str) -> tuple[np.ndarray, int]:
    """All ids of a split of binarised text, int64 (N,), and the dictionary's size.

    Raises:
        ValueError: the folder lacks the split or its dictionary, or the split is
            damaged.
    """
    for name in ("dict.txt", f"{split}.bin", f"{split}.idx"):
        if not (folder / name).is_file():
            raise ValueError(
                f"{folder} has no {name}; allowed: binarised text with this split"
            )
    from .. import plugin  # noqa: F401 (imports fairseq first)

    # isort: split
    from fairseq.data import Dictionary

    ids = read_binary_data(folder / split).ids().astype(np.int64)
    return ids, len(Dictionary.load(str(folder / "dict.txt")))


def main(argv: list[str] | None = None) -> int:
    """Command line; returns the exit code."""
    parser = command_parser("fairseq_transnormer analyse frequency_baselines", __doc__)
    parser.add_argument("data", type=Path, help="folder of binarised text")
    parser.add_argument("--split", default="valid", help="that is predicted (valid)")
    parser.add_argument(
        "--tokens",
        type=positive_integer,
        help="only so many, the first ones",
    )
    parser.add_argument(
        "--train-tokens",
        type=positive_integer,
        help="only the first ones of train are counted",
    )
    parser.add_argument("--json", type=output_file, help="write the figures there, too")
    options = parser.parse_args(argv)
    logging.disable(logging.INFO)
    return run_command(parser.prog, lambda: _run(options))


def _run(options: argparse.Namespace) -> None:
    train, size = token_ids(options.data, "train")
    text, _ = token_ids(options.data, options.split)
    train, text = train[: options.train_tokens], text[: options.tokens]
    found = baselines(train, text, size)
    found["masked"] = masked_baseline(train, text, size)
    record = found | {
        "split": options.split,
        "tokens": len(text),
        "train_tokens": len(train),
        "dictionary": size,
    }
    if options.json is not None:
        write_json(options.json, record)
    for name, value in found.items():
        print(f"{name:8} {value:8.2f}")
