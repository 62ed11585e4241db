"""Label texts with a fine-tuned model, evaluate it, or write GLUE submission files."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from ..checkpoints.identity import weights_fingerprint
from ..data.texts import argument_text, read_given_lines, tell_unknown_words
from ..data.whole_files import json_text
from ..subcommands import run_command
from .errors import ClassificationError

if TYPE_CHECKING:
    from .classifier import Text, TextClassifier

# texts that are read before the first label is printed
TEXTS_AT_ONCE = 1024


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the exit status, 2 if what was given does not do."""
    parser = _parser()
    args = parser.parse_args(arguments)
    return run_command(parser.prog, lambda: _run(args), ClassificationError)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m fairseq_transnormer classify",
        description=__doc__,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--path", required=True, help="fine-tuned checkpoint")
    add(
        "--data",
        metavar="DIR",
        help="folder of the problem (default: that of the fine-tuning)",
    )
    add("--device", help="(default: cuda if there is one, else cpu)")
    add("--batch-size", type=int, default=32, help="texts at once (default: 32)")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument(
        "--text",
        type=argument_text,
        nargs="+",
        action="append",
        metavar="TEXT",
        help="a text, or the two of a pair; may be given several times",
    )
    what.add_argument(
        "--input",
        metavar="FILE",
        help="a text a line, with a tab between those of a pair; -: stdin",
    )
    what.add_argument(
        "--evaluate", metavar="SPLIT", help="print the metrics of a labelled split"
    )
    what.add_argument(
        "--submission", type=Path, metavar="DIR", help="write GLUE's test predictions"
    )
    add(
        "--dump-predictions",
        type=Path,
        metavar="FILE",
        help="with --evaluate: every label, prediction and probability as a table",
    )
    add(
        "--positive-class",
        type=int,
        help="with --evaluate: number of the class that F1 is about (default: that of "
        "the fine-tuning)",
    )
    add(
        "--json",
        action="store_true",
        help="print an object a text, with the fingerprint of the weights",
    )
    return parser


def _run(args: argparse.Namespace) -> None:
    if args.dump_predictions is not None and args.evaluate is None:
        raise ClassificationError("--dump-predictions: allowed with --evaluate only")
    # fairseq: seconds that --help shall not cost
    from . import TextClassifier
    from .evaluation import evaluate
    from .submission import write_submission

    classifier = TextClassifier.from_checkpoint(args.path, args.data, args.device)
    if args.submission is not None:
        for path in write_submission(classifier, args.submission, args.batch_size):
            print(path)
    elif args.evaluate is not None:
        found = evaluate(
            classifier,
            args.evaluate,
            args.dump_predictions,
            args.batch_size,
            args.positive_class,
        )
        made_with = {
            "split": args.evaluate,
            "data": classifier.data.fingerprint(),
            "checkpoint": args.path,
            "weights": weights_fingerprint(args.path),
        }
        print(json_text(found | made_with))
    else:
        _label(classifier, args)


def _label(classifier: TextClassifier, args: argparse.Namespace) -> None:
    made_with = {"weights": weights_fingerprint(args.path)} if args.json else {}
    texts = _texts(args, classifier.data.is_pairs)
    first = 1
    while group := list(islice(texts, TEXTS_AT_ONCE)):
        predictions = classifier.classify(group, args.batch_size, first)
        for number, text in enumerate(group, first):
            unknown = classifier.unknown_words(text)
            tell_unknown_words(
                f"text {number}", unknown, classifier.dictionary.unk_word
            )
            if left_out := classifier.tokens_left_out(text):
                print(
                    f"text {number}: {left_out} tokens beyond max_positions="
                    f"{classifier.data.max_positions} are not read",
                    file=sys.stderr,
                )
        for found in predictions:
            if args.json:
                print(json_text(asdict(found) | made_with, ensure_ascii=False))
            elif found.label is None:
                print(f"{found.score:.4f}")
            else:
                print(f"{found.label}\t{found.probabilities[found.label]:.4f}")
        sys.stdout.flush()
        first += len(group)


def _texts(args: argparse.Namespace, is_pairs: bool) -> Iterator[Text]:
    if args.text is not None:
        yield from (each[0] if len(each) == 1 else tuple(each) for each in args.text)
        return
    for line in read_given_lines(args.input, ClassificationError, "text"):
        line = line.rstrip("\r\n")
        yield tuple(line.split("\t")) if is_pairs else line
