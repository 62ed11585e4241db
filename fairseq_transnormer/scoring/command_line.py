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

from ..argument_types import integer_between
from ..checkpoints.identity import weights_fingerprint
from ..data.texts import argument_text, read_lines
from ..data.whole_files import json_text
from ..subcommands import command_parser, run_command
from .context import BATCH_TOKENS, LONGEST_WINDOW, Context
from .errors import ScoringError
from .text_score import TextScore

ALL = "all"
UNITS = ("line", "document", "file")
# units that are read before the first is printed
UNITS_AT_ONCE = 1024
COLUMNS = ("log-prob.", "tokens", "words", "bytes", "unknown", "ppl/token", "ppl/word")
COLUMNS += ("bits/byte",)
WIDTH = 11


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the exit status, 2 if what was given does not do."""
    parser = _parser()
    args = parser.parse_args(arguments)
    return run_command(parser.prog, lambda: _run(args), ScoringError)


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("fairseq_transnormer score", __doc__, allow_abbrev=False)
    add = parser.add_argument
    add("--path", required=True, help="checkpoint of fairseq-train")
    add("--data", help="folder with dict.txt (default: the training's, or --path's)")
    add(
        "--sentencepiece-model",
        metavar="FILE",
        help="(default: the subword files beside dict.txt or --path, if there are any)",
    )
    add("--device", help="(default: cuda if there is one, else cpu)")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "--text", type=argument_text, action="append", help="may be given several times"
    )
    source.add_argument(
        "--input",
        action="extend",
        nargs="+",
        metavar="FILE",
        help="text files in UTF-8; -: stdin",
    )
    add(
        "--by",
        choices=UNITS,
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
        raise ScoringError(f"--by {args.by}: allowed with --input only")
    # a wrong setting shall not wait for the checkpoint
    if args.window in (None, ALL) and args.overlap:
        raise ScoringError(f"--overlap {args.overlap}: allowed with --window N only")
    context = None
    if args.window is not None:
        context = Context(None if args.window == ALL else args.window, args.overlap)
    # fairseq: seconds that --help shall not cost
    from . import TextScorer
    from .scorer import check_known

    scorer = TextScorer.from_checkpoint(
        args.path,
        args.data,
        args.device,
        args.sentencepiece_model,
        context=context,
        batch_tokens=args.batch_tokens,
    )
    report = _Report(args, scorer)
    for name, score in _scores(args, scorer):
        report.add(name, score)
    given = " ".join(args.input or ["--text"])
    if not report.total.words:
        raise ScoringError(f"{given}: no text in it; allowed: a word or more")
    check_known([report.total], given)
    report.end()


def _scores(args: argparse.Namespace, scorer) -> Iterator[tuple[dict, TextScore]]:
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
) -> Iterator[tuple[dict, Iterable[str]]]:
    """What each unit is called, and its lines."""
    if args.text is not None:
        for number, text in enumerate(args.text, 1):
            yield {"text": number}, StringIO(text, newline=None)
        return
    by = args.by or "file"
    for name in args.input:
        given = read_lines(name, ScoringError, "--input")
        for line, lines in _units_of(given, by, is_masked):
            yield {"input": name} | ({} if by == "file" else {"line": line}), lines


def _units_of(
    lines: Iterable[str], by: str, is_masked: bool
) -> Iterator[tuple[int, Iterable[str]]]:
    """(number of its first line, lines) of each unit.

    Args:
        lines: of a file.
        by: "line"; "document": the lines up to a blank one, as fairseq's
            ``--sample-break-mode complete_doc`` has them; "file": all of them.
        is_masked: a blank line has no token to score; a causal model predicts its end.
    """
    numbered = enumerate(lines, 1)
    if by == "file":
        yield 1, (line for _, line in numbered)
    elif by == "line":
        for number, line in numbered:
            if line.strip() or not is_masked:
                yield number, [line]
    else:
        for has_text, group in groupby(numbered, lambda pair: bool(pair[1].strip())):
            if has_text:
                first = next(group)
                lines_of_it = chain([first], group)  # noqa: B031 (the rest of it)
                yield first[0], (line for _, line in lines_of_it)


def _shown(name: dict) -> str:
    if "text" in name:
        return f"text {name['text']}"
    line = f":{name['line']}" if "line" in name else ""
    return f"{name['input']}{line}"


class _Report:
    """Lines of JSON, or a table; nothing is printed before a word is known."""

    def __init__(self, args: argparse.Namespace, scorer):
        self.json, self.is_masked = args.json, scorer.is_masked
        self.total = TextScore(ends_scored=not scorer.is_masked)
        self.made_with = {"context": str(scorer.context), "path": args.path}
        if self.json:
            self.made_with["weights"] = weights_fingerprint(args.path)
        self.is_carried = scorer.context.window is None
        self.trained_length = scorer.trained_length if self.is_carried else None
        self.longest = 0
        self._waiting: list[tuple[dict, TextScore]] = []
        self._begun = False

    def add(self, name: dict, score: TextScore) -> None:
        self.total += score
        self.longest = max(self.longest, score.tokens)
        self._waiting.append((name, score))
        if self._begun or self.total.known:
            self._print_waiting()

    def end(self) -> None:
        """The sum, and what to know of it."""
        if self.json:
            _print_json({"total": True} | self.total.as_dict() | self.made_with)
        else:
            _print_row(self.total, "total")
        if self.total.unknown:
            print(
                f"{self.total.unknown:,} of {self.total.tokens:,} tokens are not in "
                "the dictionary and are scored as <unk>: the text itself is less "
                "probable",
                file=sys.stderr,
            )

        if self.is_carried and self.longest > self.trained_length:
            print(
                f"up to {self.longest:,} tokens were read with a carried state; the "
                f"training's sequences have {self.trained_length:,}, and what lies "
                "beyond may be scored worse than in windows (--window)",
                file=sys.stderr,
            )

    def _print_waiting(self) -> None:
        if not self._begun and not self.json:
            kind = "pseudo-log-likelihood" if self.is_masked else "log-probability"
            print(f"{kind} in nats; context: {self.made_with['context']}")
            print("".join(f" {name:>{WIDTH}}" for name in COLUMNS))
        self._begun = True
        for name, score in self._waiting:
            if self.json:
                _print_json(name | score.as_dict())
                continue
            _print_row(score, _shown(name))
            for symbol, value in score.token_log_probs or ():
                print(f"{value:12.4f}  {symbol}")
        sys.stdout.flush()
        self._waiting.clear()


def _print_json(content: dict) -> None:
    print(json_text(content, ensure_ascii=False), flush=True)


def _print_row(score: TextScore, name: str) -> None:
    counts = (score.tokens, score.words, score.bytes, score.unknown)
    ratios = (score.perplexity, score.word_perplexity, score.bits_per_byte)
    shown = [f"{score.log_prob:.3f}", *(f"{each:,}" for each in counts)]
    for ratio, digits in zip(ratios, (2, 2, 4), strict=True):
        value = "-" if ratio is None else f"{ratio:,.{digits}f}"
        shown.append(value if len(value) <= WIDTH else f"{ratio:.4e}")
    print("".join(f" {each:>{WIDTH}}" for each in shown), f" {name}")
