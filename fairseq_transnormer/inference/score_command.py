"""Score texts: log-probability, perplexity and bits a byte.

A causal model gives the log-probability of each token after those before it, the first
one after </s>, as fairseq does; a masked model the pseudo-log-likelihood: each token is
masked in turn. Log-probabilities are in nats, ends of lines count as tokens of a causal
model.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence
from io import StringIO
from itertools import chain, groupby, islice
from typing import Any

from ..argument_types import integer_between
from ..data.texts import argument_text, read_lines
from ..data.whole_files import json_text
from ..subcommands import command_parser, run_command
from .score import (
    BATCH_TOKENS,
    LONGEST_WINDOW,
    RATIOS,
    Context,
    TextScore,
    TextScorer,
    check_known,
)

ALL = "all"
# units that are read before the first is printed
UNITS_AT_ONCE = 1024
COLUMNS = "log-prob. tokens words bytes unknown ppl/token ppl/word bits/byte".split()
WIDTH = 11
# what a unit is called: "text", or "input" with or without "line", or "total"
Name = dict[str, Any]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the exit status, 2 if what was given does not do."""
    parser = _parser()
    args = parser.parse_args(arguments)
    return run_command(parser.prog, lambda: _run(args))


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("fairseq_transnormer score", __doc__, allow_abbrev=False)
    add = parser.add_argument
    add("--path", required=True, help="checkpoint of fairseq-train, or its export")
    add("--data", help="folder with dict.txt (default: the training's, or --path's)")
    add(
        "--sentencepiece-model",
        metavar="FILE",
        help="(default: those next to dict.txt or --path, if there are any)",
    )
    add("--device", help="(default: cuda if there is one, else cpu)")
    add = parser.add_mutually_exclusive_group(required=True).add_argument
    add(
        "--text", type=argument_text, action="append", help="may be given several times"
    )
    add(
        "--input",
        action="extend",
        nargs="+",
        metavar="FILE",
        help="text files in UTF-8; -: stdin",
    )
    add = parser.add_argument
    add(
        "--by",
        choices=("line", "document", "file"),
        help="with --input: what is scored on its own; a document is what stands "
        "between blank lines (default: file)",
    )
    add(
        "--window",
        type=_window,
        metavar="N",
        help="tokens that the model reads at once, as fairseq-eval-lm's "
        "--tokens-per-sample (default: the training's); all: all of the text before a "
        "token, by a carried state, where the model has one of constant size",
    )
    add(
        "--overlap",
        type=integer_between(0, LONGEST_WINDOW),
        default=0,
        metavar="N",
        help="of a window's tokens those that were scored before and are read again, "
        "as fairseq-eval-lm's --context-window (default: 0)",
    )
    add(
        "--batch-tokens",
        type=integer_between(1, 10**8),
        default=BATCH_TOKENS,
        metavar="N",
        help="tokens that run together, about (default: %(default)s)",
    )
    add("--tokens", action="store_true", help="also each token's log-probability")
    add("--json", action="store_true", help="an object a line, the sum as the last")
    add(
        "--stream",
        action="store_true",
        help="one line, document or file at a time, printed as soon as it is read",
    )
    return parser


def _window(text: str) -> int | str:
    return ALL if text == ALL else integer_between(2, LONGEST_WINDOW)(text)


def _run(args: argparse.Namespace) -> None:
    if args.by and not args.input:
        raise ValueError(f"--by {args.by}: allowed with --input only")
    context = None
    if args.window is not None or args.overlap:
        context = Context(None if args.window == ALL else args.window, args.overlap)
    scorer = TextScorer.from_checkpoint(
        args.path,
        args.data,
        args.device,
        args.sentencepiece_model,
        context=context,
        batch_tokens=args.batch_tokens,
    )
    total, longest = TextScore(ends_scored=not scorer.is_masked), 0
    waiting: list[tuple[Name, TextScore]] = []
    kind = "pseudo-log-likelihood" if scorer.is_masked else "log-probability"
    columns = "".join(f" {name:>{WIDTH}}" for name in COLUMNS)
    heading = f"{kind} in nats; context: {scorer.context}\n{columns}\n"
    heading = "" if args.json else heading
    for name, score in _scores(args, scorer):
        total, longest = total + score, max(longest, score.tokens)
        waiting.append((name, score))
        if total.known:  # nothing is printed before a word is
            print(end=heading)
            heading = ""
            while waiting:
                _print(args.json, *waiting.pop(0))
    given = " ".join(args.input or ["--text"])
    if not total.words:
        raise ValueError(f"{given}: no text in it; allowed: a word or more")
    check_known(total, given)
    made_with = {"context": str(scorer.context), "path": args.path}
    if args.json:
        made_with["weights"] = scorer.trained.fingerprint()
    _print(args.json, {"total": True}, total, made_with)
    _tell(total, longest, scorer)


def _tell(total: TextScore, longest: int, scorer: TextScorer) -> None:
    """What to know of the figures, on stderr."""
    if total.unknown:
        print(
            f"{total.unknown:,} of {total.tokens:,} tokens are not in the dictionary "
            "and are scored as <unk>: the text itself is less probable",
            file=sys.stderr,
        )
    length = scorer.trained.manifest.sequence_length
    if scorer.context.window is None and length is not None and longest > length:
        print(
            f"up to {longest:,} tokens were read with a carried state; the training's "
            f"sequences have {length:,}, and what lies beyond may be scored worse than "
            "in windows (--window)",
            file=sys.stderr,
        )


def _scores(
    args: argparse.Namespace, scorer: TextScorer
) -> Iterator[tuple[Name, TextScore]]:
    """The score of each unit, with what it is called."""
    units = _units(args, scorer.is_masked)
    if args.stream or (args.input and args.by in (None, "file")):
        for name, lines in units:
            yield name, next(scorer.stream([lines], args.tokens, [_shown(name)]))
        return
    whole = ((name, "".join(lines)) for name, lines in units)
    while group := list(islice(whole, UNITS_AT_ONCE)):
        names, texts = zip(*group, strict=True)
        scores = scorer.score_each(texts, args.tokens, map(_shown, names))
        yield from zip(names, scores, strict=True)


def _units(
    args: argparse.Namespace, is_masked: bool
) -> Iterator[tuple[Name, Iterable[str]]]:
    """What each unit is called, and its lines.

    A document has the lines up to a blank one, as fairseq's ``--sample-break-mode
    complete_doc`` has them.
    """
    for number, text in enumerate(args.text or (), 1):
        yield {"text": number}, StringIO(text, newline=None)
    for name in args.input or ():
        lines = enumerate(read_lines(name, "--input"), 1)
        if args.by == "line":
            for number, line in lines:
                # a masked model has no token of a blank line to score
                if line.strip() or not is_masked:
                    yield {"input": name, "line": number}, [line]
        elif args.by == "document":
            for has_text, group in groupby(lines, lambda pair: bool(pair[1].strip())):
                if has_text:
                    number, line = next(group)
                    rest = (each for _, each in group)
                    yield {"input": name, "line": number}, chain([line], rest)
        else:
            yield {"input": name}, (line for _, line in lines)


def _shown(name: Name) -> str:
    if "input" in name:
        return f"{name['input']}:{name['line']}" if "line" in name else name["input"]
    return f"text {name['text']}" if "text" in name else "total"


def _print(
    as_json: bool, name: Name, score: TextScore, made_with: Name | None = None
) -> None:
    """A line of JSON, or one of the table and one for each token that is wanted."""
    if as_json:
        content = name | score.as_dict() | (made_with or {})
        print(json_text(content, ensure_ascii=False), flush=True)
        return
    counts = (score.tokens, score.words, score.bytes, score.unknown)
    shown = [f"{score.log_prob:.3f}", *(f"{each:,}" for each in counts)]
    for ratio, digits in zip(RATIOS, (2, 2, 4), strict=True):
        value = getattr(score, ratio)
        text = "-" if value is None else f"{value:,.{digits}f}"
        shown.append(text if len(text) <= WIDTH else f"{value:.4e}")
    print("".join(f" {each:>{WIDTH}}" for each in shown), f" {_shown(name)}")
    for symbol, nats in score.token_log_probs or ():
        print(f"{nats:12.4f}  {symbol}")
    sys.stdout.flush()
