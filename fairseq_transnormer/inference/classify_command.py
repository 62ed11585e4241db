"""``python -m fairseq_transnormer classify``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from ..data.texts import argument_text, read_given_lines, tell_unknown_words
from ..data.whole_files import json_text

if TYPE_CHECKING:
    from .classify import Text, TextClassifier

WORK = tyro.conf.create_mutex_group(required=True, title="what to do")
# texts that are read before the first label is printed
TEXTS_AT_ONCE = 1024


def classify(
    path: str,
    text: Annotated[tyro.conf.UseAppendAction[tuple[tuple[str, ...], ...]], WORK] = (),
    input: Annotated[str | None, WORK] = None,
    evaluate: Annotated[str | None, WORK] = None,
    submission: Annotated[Path | None, WORK] = None,
    data: str | None = None,
    device: str | None = None,
    batch_size: int = 32,
    dump_predictions: Path | None = None,
    positive_class: int | None = None,
    json: bool = False,
) -> None:
    """Label texts with a fine-tuned model, evaluate it, or write GLUE submission files.

    Args:
        path: fine-tuned checkpoint, or its export.
        text: a text, or the two texts of a pair.
        input: file with a text per line, with a tab between those of a pair; -: stdin.
        evaluate: split whose metrics are printed.
        submission: folder for GLUE's test predictions.
        data: folder of the problem; None: that of the fine-tuning.
        device: cpu, cuda, cuda:1, ...; None: cuda if there is one, else cpu.
        batch_size: texts that run together.
        dump_predictions: with --evaluate, file for a table of every label, prediction
            and probability.
        positive_class: with --evaluate, number of the class for F1; None: that of the
            fine-tuning.
        json: print an object per text, with the fingerprint of the weights.
    """
    if dump_predictions is not None and evaluate is None:
        raise ValueError("--dump-predictions: allowed with --evaluate only")
    # imported late: torch would slow down --help
    from .classify import TextClassifier
    from .glue_submission import write_submission

    classifier = TextClassifier.from_checkpoint(path, data, device)
    for note in classifier.trained.notes:
        print(f"note: {note}", file=sys.stderr)
    if submission is not None:
        for file in write_submission(classifier, submission, batch_size):
            print(file)
    elif evaluate is not None:
        made_with = {
            "split": evaluate,
            "data": classifier.data.fingerprint(),
            "checkpoint": path,
            "weights": classifier.trained.fingerprint(),
        }
        found = classifier.evaluate(
            evaluate, dump_predictions, batch_size, positive_class
        )
        print(json_text(found | made_with))
    else:
        texts = _given(text) if text else _read(input or "-", classifier.texts)
        _label(classifier, texts, batch_size, json)


def _label(
    classifier: TextClassifier, texts: Iterator[Text], batch_size: int, json: bool
) -> None:
    made_with = {"weights": classifier.trained.fingerprint()} if json else {}
    first = 1
    while group := list(islice(texts, TEXTS_AT_ONCE)):
        predictions = classifier.classify(group, batch_size, first)
        for number, text in enumerate(group, first):
            tell_unknown_words(f"text {number}", classifier.unknown_words(text))
            if cut := classifier.tokens_cut(text):
                print(
                    f"text {number}: {cut} tokens beyond max_positions="
                    f"{classifier.manifest.sequence_length} are not read",
                    file=sys.stderr,
                )
        for found in predictions:
            if json:
                print(json_text(asdict(found) | made_with, ensure_ascii=False))
            elif found.label is None:
                print(f"{found.score:.4f}")
            else:
                print(f"{found.label}\t{found.probabilities[found.label]:.4f}")
        sys.stdout.flush()
        first += len(group)


def _given(texts: tuple[tuple[str, ...], ...]) -> Iterator[Text]:
    for each in texts:
        parts = tuple(map(argument_text, each))
        yield parts[0] if len(parts) == 1 else parts


def _read(name: str, parts: int | None) -> Iterator[Text]:
    """The lines of a file; parts: texts per example, 1 or 2; None if unknown."""
    lines = read_given_lines(name)
    for number, line in enumerate(lines, 1):
        line = line.rstrip("\r\n")
        if parts is None and "\t" in line:
            raise ValueError(
                f"text {number} has a tab, which is a space or separates the texts of "
                "a pair; name the folder of the problem (--data)"
            )
        yield tuple(line.split("\t")) if parts == 2 else line
