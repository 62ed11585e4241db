"""Prepares your own text as binary data for fairseq.

The text is given as --train, --valid and --test, or as --input, which is divided by
document: a document is a file, and none stands in two splits. Folders stand for the
*.txt files in them and below.

  --tokenizer word            whitespace-separated words, the same dictionary and
                              files as fairseq-preprocess --only-source
  --tokenizer sentencepiece   a unigram model with byte fallback, trained on the train
                              split alone, or the one given. Use it for generation by
                              --bpe sentencepiece --sentencepiece-model
                              DIR/sentencepiece.bpe.model

Each line becomes one sequence with an end of sentence. A blank line is kept, as a
lone end of sentence; it separates documents (--sample-break-mode complete_doc), and
one is put between each file and the next. The same files serve language_modeling and
masked_lm.

DIR gets dict.txt, train/valid/test .bin and .idx, and report.json with counts and
checksums.
"""

import argparse
import shutil
import sys
from pathlib import Path
from typing import Any

from data_prep.folders.arguments import add_destination, add_workers, command_parser
from data_prep.folders.binary_folder import Recipe, Split, prepare_folder
from data_prep.folders.encoders import (
    SPECIAL_COUNT,
    SentencepieceEncoder,
    WordEncoder,
    count_all_words,
)
from data_prep.folders.errors import InputError, run_command
from data_prep.folders.fairseq_format import word_dictionary
from data_prep.folders.sentencepiece_model import (
    load_model,
    model_dictionary,
    train_model,
)
from data_prep.folders.text_files import TextFile, read_lines
from data_prep.own_text.documents import (
    find_files,
    shared_documents,
    split_documents,
)
from fairseq_transnormer.argument_types import integer_between, number_between
from fairseq_transnormer.data import SPLITS
from fairseq_transnormer.data.fingerprints import file_sha256
from fairseq_transnormer.data.subword_files import SENTENCEPIECE_MODEL

DEFAULT_PIECES = 8000
DEFAULT_FRACTIONS = [0.9, 0.05, 0.05]
DEFAULT_SEED = 1
MAX_ENTRIES = 10**7


def _read_splits(options: argparse.Namespace) -> dict[str, list[TextFile]]:
    if options.input:
        files = find_files("--input", options.input)
        splits = split_documents(
            files, options.fractions or DEFAULT_FRACTIONS, _seed(options)
        )
    else:
        given = {split: getattr(options, split) for split in SPLITS}
        splits = {
            split: find_files(f"--{split}", paths)
            for split, paths in given.items()
            if paths
        }
        for sentence in shared_documents(splits):
            print(f"warning: the same text in two splits: {sentence}", file=sys.stderr)
    for split, files in splits.items():
        if not any(file.has_text for file in files):
            names = ", ".join(str(file.path) for file in files)
            raise InputError(f"{split}: empty split: no text in {names}")
    return splits


def _recipe(options: argparse.Namespace) -> Recipe:
    if options.sentencepiece_model:
        load_model(options.sentencepiece_model)
    files = _read_splits(options)
    splits = [
        Split(
            name,
            lambda name=name: read_lines(files[name]),
            sum(file.newline_count for file in files[name]),
        )
        for name in files
    ]
    settings: dict[str, Any] = {
        "command": "text",
        "tokenizer": options.tokenizer,
        "documents": {
            name: [file.fingerprint() for file in files[name]] for name in files
        },
    }
    if options.tokenizer == "word":
        return _word_recipe(options, settings, splits)
    return _sentencepiece_recipe(options, settings, splits)


def _word_recipe(
    options: argparse.Namespace, settings: dict[str, Any], splits: list[Split]
) -> Recipe:
    min_count, size = options.min_count or 0, options.vocab_size or -1
    train = splits[0]

    def prepare_tokenizer(folder: Path) -> None:
        _, words = count_all_words(train.lines(), options.workers, train.line_count)
        most = max(words.values())
        if min_count > most:
            raise InputError(
                f"--min-count {min_count}: no word of the train split is left; "
                f"allowed: up to {most}, the count of its most frequent word"
            )
        dictionary = word_dictionary(words, min_count, size)
        dictionary.save(str(folder / "dict.txt"))

    return Recipe(
        settings={**settings, "min_count": min_count, "vocab_size": size},
        splits=splits,
        tokenizer_files=[],
        prepare_tokenizer=prepare_tokenizer,
        encoder=lambda folder, dictionary: WordEncoder(dictionary.indices),
    )


def _sentencepiece_recipe(
    options: argparse.Namespace, settings: dict[str, Any], splits: list[Split]
) -> Recipe:
    given = options.sentencepiece_model
    size = options.vocab_size or DEFAULT_PIECES
    coverage = options.character_coverage or 1.0

    def prepare_tokenizer(folder: Path) -> None:
        model = folder / SENTENCEPIECE_MODEL
        if given:
            shutil.copyfile(given, model)
        else:
            print(f"training a sentencepiece model of {size} entries")
            train_model(splits[0].lines(), model, size, coverage)
        model_dictionary(model).save(str(folder / "dict.txt"))

    if given:
        settings = {**settings, "sentencepiece_model": file_sha256(given)}
    else:
        settings = {**settings, "vocab_size": size, "character_coverage": coverage}
    return Recipe(
        settings=settings,
        splits=splits,
        tokenizer_files=[SENTENCEPIECE_MODEL],
        prepare_tokenizer=prepare_tokenizer,
        encoder=lambda folder, dictionary: SentencepieceEncoder(
            folder / SENTENCEPIECE_MODEL, dictionary.indices
        ),
    )


def _seed(options: argparse.Namespace) -> int:
    return DEFAULT_SEED if options.seed is None else options.seed


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("text", __doc__)
    add_destination(parser)
    add = parser.add_argument
    add("--tokenizer", choices=["word", "sentencepiece"], required=True)
    for split in SPLITS:
        help_text = f"files or folders of the {split} split"
        add(f"--{split}", nargs="+", type=Path, metavar="PATH", help=help_text)
    help_text = "files or folders to divide into splits"
    add("--input", nargs="+", type=Path, metavar="PATH", help=help_text)
    add(
        "--fractions",
        nargs=3,
        type=number_between(0, 1),
        metavar=("TRAIN", "VALID", "TEST"),
        help="with --input: parts of the documents, with the sum 1 "
        "(default: 0.9 0.05 0.05); a test part of 0 makes no test split",
    )
    help_text = f"with --input: another seed, another split (default: {DEFAULT_SEED})"
    add("--seed", type=integer_between(0, 2**63 - 1), metavar="N", help=help_text)
    add(
        "--vocab-size",
        type=integer_between(SPECIAL_COUNT + 1, MAX_ENTRIES),
        metavar="N",
        help="dictionary entries, the 4 special ones included; padded to a multiple "
        f"of 8 (default: word: no limit, sentencepiece: {DEFAULT_PIECES})",
    )
    help_text = "word: leave out words that are rarer in the train split"
    at_least = integer_between(1, 10**12)
    add("--min-count", type=at_least, metavar="N", help=help_text)
    add(
        "--character-coverage",
        type=number_between(0.98, 1),  # what sentencepiece accepts
        metavar="F",
        help="sentencepiece: share of the train split's characters that become pieces "
        "(default: 1.0). Others are spelt in bytes, which fairseq's decoding shows "
        "as <0xNN>; take 0.9995 for scripts of thousands of characters",
    )
    help_text = "sentencepiece: use this model instead of training one"
    add("--sentencepiece-model", type=Path, metavar="FILE", help=help_text)
    add_workers(parser)
    return parser


def _check_combination(parser: argparse.ArgumentParser, given: argparse.Namespace):
    def only(names: list[str], allowed: bool, condition: str) -> None:
        for name in names:
            if getattr(given, name) is not None and not allowed:
                option = "--" + name.replace("_", "-")
                parser.error(f"argument {option}: only {condition}")

    if bool(given.input) == bool(given.train):
        parser.error("give either --train and --valid (and --test), or --input")
    if given.train and not given.valid:
        parser.error("argument --valid: needed with --train")
    pieces = given.tokenizer == "sentencepiece"
    only(["valid", "test"], bool(given.train), "with --train")
    only(["fractions", "seed"], bool(given.input), "with --input")
    only(["min_count"], not pieces, "with --tokenizer word")
    only(
        ["sentencepiece_model", "character_coverage"],
        pieces,
        "with --tokenizer sentencepiece",
    )
    only(
        ["vocab_size", "character_coverage"],
        not given.sentencepiece_model,
        "without --sentencepiece-model, which has its own",
    )
    if given.fractions and (
        abs(sum(given.fractions) - 1) > 1e-6 or 0 in given.fractions[:2]
    ):
        parts = " ".join(map(str, given.fractions))
        parser.error(
            f"argument --fractions: {parts}: allowed are three numbers with the sum 1, "
            "of which only the last may be 0"
        )


def main(arguments: list[str] | None = None) -> int:
    """The command line; returns the exit code."""
    parser = _parser()
    options = parser.parse_args(arguments)
    _check_combination(parser, options)
    return run_command(parser.prog, lambda: _prepare(options))


def _prepare(options: argparse.Namespace) -> None:
    prepare_folder(options.dest, _recipe(options), options.workers, options.overwrite)
