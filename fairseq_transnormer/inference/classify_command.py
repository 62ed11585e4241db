"""Label texts with a fine-tuned model, evaluate it, or write GLUE submission files."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from ..data.texts import argument_text, read_given_lines, tell_unknown_words
from ..data.whole_files import json_text
from ..subcommands import command_parser, run_command

if TYPE_CHECKING:
    from .classify import Text, TextClassifier

# texts that are read before the first label is printed
TEXTS_AT_ONCE = 1024


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the exit status, 2 if what was given does not do."""
    parser = _parser()
    args = parser.parse_args(arguments)
    return run_command(parser.prog, lambda: _run(args))


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("fairseq_transnormer classify", __doc__, allow_abbrev=False)
    add = parser.add_argument
    add("--path", required=True, help="fine-tuned checkpoint, or its export")
    problem = "folder of the problem (default: that of the fine-tuning)"
    add("--data", metavar="DIR", help=problem)
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
        raise ValueError("--dump-predictions: allowed with --evaluate only")
    # torch: a second that --help shall not cost
    from .classify import TextClassifier
    from .glue_submission import write_submission

    classifier = TextClassifier.from_checkpoint(args.path, args.data, args.device)
    if args.submission is not None:
        for path in write_submission(classifier, args.submission, args.batch_size):
            print(path)
    elif args.evaluate is not None:
        table, chosen = args.dump_predictions, args.positive_class
        found = classifier.evaluate(args.evaluate, table, args.batch_size, chosen)
        made_with = {
            "split": args.evaluate,
            "data": classifier.data.fingerprint(),
            "checkpoint": args.path,
            "weights": classifier.trained.fingerprint(),
        }
        print(json_text(found | made_with))
    else:
        _label(classifier, args)


def _label(classifier: TextClassifier, args: argparse.Namespace) -> None:
    made_with = {"weights": classifier.trained.fingerprint()} if args.json else {}
    texts = _texts(args, classifier.texts)
    first = 1
    while group := list(islice(texts, TEXTS_AT_ONCE)):
        predictions = classifier.classify(group, args.batch_size, first)
        for number, text in enumerate(group, first):
            unknown = classifier.unknown_words(text)
            tell_unknown_words(f"text {number}", unknown, "<unk>")
            if left_out := classifier.tokens_left_out(text):
                print(
                    f"text {number}: {left_out} tokens beyond max_positions="
                    f"{classifier.manifest.sequence_length} are not read",
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


def _texts(args: argparse.Namespace, parts: int | None) -> Iterator[Text]:
    """parts: of an example, 1 or 2; None if unknown."""
    if args.text is not None:
        yield from (each[0] if len(each) == 1 else tuple(each) for each in args.text)
        return
    lines = read_given_lines(args.input, "text")
    for number, line in enumerate(lines, 1):
        line = line.rstrip("\r\n")
        if parts is None and "\t" in line:
            raise ValueError(
                f"text {number} has a tab, which is a space or stands between the "
                "texts of a pair; name the folder of the problem (--data)"
            )
        yield tuple(line.split("\t")) if parts == 2 else line
