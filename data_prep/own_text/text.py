"""Prepares your own text as binary data for fairseq.

The text is given as --train, --valid and --test, or as --input, which is divided: by
document, where a document is a file and none stands in two splits, or by paragraph
where there are too few documents for that (--split-by). Folders stand for the *.txt
files in them and below (--suffixes).

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
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from data_prep.folders.binary_folder import (
    Recipe,
    Split,
    prepare_folder,
    word_encoder,
)
from data_prep.folders.command import (
    add_destination,
    add_integer,
    add_workers,
    command,
    refuse_given,
)
from data_prep.folders.encoders import (
    SPECIAL_COUNT,
    SentencepieceEncoder,
    count_all_words,
)
from data_prep.folders.fairseq_format import word_dictionary
from data_prep.folders.sentencepiece_model import (
    load_model,
    model_dictionary,
    train_model,
)
from data_prep.folders.staging import Work
from data_prep.folders.text_files import TextFile
from data_prep.own_text.division import (
    add_division,
    add_suffixes,
    divided_as_asked,
    whole_documents,
)
from data_prep.own_text.documents import SUFFIXES, find_files, shared_documents
from fairseq_transnormer.argument_types import number_between
from fairseq_transnormer.data import SPLITS
from fairseq_transnormer.data.fingerprints import file_sha256
from fairseq_transnormer.data.subword_files import SENTENCEPIECE_MODEL

DEFAULT_PIECES = 8000
MAX_ENTRIES = 10**7


def _recipe(options: argparse.Namespace) -> Recipe:
    settings: dict[str, Any] = {"command": "text", "tokenizer": options.tokenizer}
    if options.input:
        files = find_files("--input", options.input, options.suffixes, options.dest)
        division = divided_as_asked(files, options)
        division.show()
    else:
        given = _given_splits(options)
        files = [file for paths in given.values() for file in paths]
        division = whole_documents(given)
    make = _word_recipe if options.tokenizer == "word" else _sentencepiece_recipe
    recipe = make(options, settings | division.settings, division.splits)
    return replace(recipe, files=files)


def _given_splits(options: argparse.Namespace) -> dict[str, list[TextFile]]:
    """The files of --train, --valid and --test."""
    splits = {
        split: find_files(f"--{split}", paths, options.suffixes, options.dest)
        for split in SPLITS
        if (paths := getattr(options, split))
    }
    for sentence in shared_documents(splits):
        print(f"warning: the same text in two splits: {sentence}", file=sys.stderr)
    for split, files in splits.items():
        places = Counter(file.path.resolve() for file in files)
        for file in files:
            if places[file.path.resolve()] > 1:
                raise ValueError(
                    f"--{split} {file.path}: given more than once; allowed: each file "
                    "once"
                )
    return splits


def _word_recipe(
    options: argparse.Namespace, settings: dict[str, Any], splits: list[Split]
) -> Recipe:
    min_count, size = options.min_count or 0, options.vocab_size or -1
    train = splits[0]

    def prepare_tokenizer(work: Work) -> None:
        _, words = count_all_words(train.lines(), options.workers, train.line_count)
        most = max(words.values())
        if min_count > most:
            raise ValueError(
                f"--min-count {min_count}: no word of the train split is left; "
                f"allowed: up to {most}, the count of its most frequent word"
            )
        dictionary = word_dictionary(words, min_count, size)
        dictionary.save(str(work.file("dict.txt")))

    return Recipe(
        settings={**settings, "min_count": min_count, "vocab_size": size},
        splits=splits,
        prepare_tokenizer=prepare_tokenizer,
        encoder=word_encoder,
    )


def _sentencepiece_recipe(
    options: argparse.Namespace, settings: dict[str, Any], splits: list[Split]
) -> Recipe:
    given = options.sentencepiece_model
    size = options.vocab_size or DEFAULT_PIECES
    at_most = options.vocab_at_most
    coverage = options.character_coverage or 1.0

    def prepare_tokenizer(work: Work) -> None:
        model = work.file(SENTENCEPIECE_MODEL)
        if given:
            shutil.copyfile(given, model)
        else:
            train_model(splits[0].lines(), model, size, coverage, at_most)
        model_dictionary(model).save(str(work.file("dict.txt")))

    if given:
        load_model(given)
        settings = {**settings, "sentencepiece_model": file_sha256(given)}
    else:
        settings = {**settings, "vocab_size": size, "character_coverage": coverage}
        settings |= {"vocab_at_most": True} if at_most else {}
    return Recipe(
        settings=settings,
        splits=splits,
        prepare_tokenizer=prepare_tokenizer,
        encoder=lambda folder, dictionary: SentencepieceEncoder(
            folder / SENTENCEPIECE_MODEL, dictionary.indices
        ),
    )


def _add_options(parser: argparse.ArgumentParser) -> None:
    add_destination(parser)
    add = parser.add_argument
    add("--tokenizer", choices=["word", "sentencepiece"], required=True)
    files = {"action": "extend", "nargs": "+", "type": Path, "metavar": "PATH"}
    for split in SPLITS:
        add(f"--{split}", help=f"files or folders of the {split} split", **files)
    add("--input", help="files or folders to divide into splits", **files)
    add_suffixes(parser, SUFFIXES)
    add_division(parser, "with --input: ")
    add_integer(
        parser,
        "--vocab-size",
        (SPECIAL_COUNT + 1, MAX_ENTRIES),
        "dictionary entries, the 4 special ones included; padded to a multiple of 8 "
        f"(default: word: no limit, sentencepiece: {DEFAULT_PIECES})",
    )
    add(
        "--vocab-at-most",
        action="store_const",
        const=True,
        help="sentencepiece: fewer entries where the train split has no more pieces, "
        "instead of an error",
    )
    text = "word: leave out words that are rarer in the train split"
    add_integer(parser, "--min-count", (1, 10**12), text)
    add(
        "--character-coverage",
        type=number_between(0.98, 1),  # what sentencepiece accepts
        metavar="F",
        help="sentencepiece: share of the train split's characters that become pieces "
        "(default: 1.0). Others are spelt in bytes, which fairseq's decoding shows "
        "as <0xNN>; take 0.9995 for scripts of thousands of characters",
    )
    text = "sentencepiece: use this model instead of training one"
    add("--sentencepiece-model", type=Path, metavar="FILE", help=text)
    add_workers(parser)


def _check_combination(given: argparse.Namespace) -> None:
    if bool(given.input) == bool(given.train):
        raise ValueError("give either --train and --valid (and --test), or --input")
    if given.train and not given.valid:
        raise ValueError("--valid: needed with --train")
    training = ["vocab_at_most", "character_coverage"]
    if given.input:
        refuse_given(given, ["valid", "test"], "with --train")
    else:
        refuse_given(given, ["split_by", "fractions", "seed"], "with --input")
    if given.tokenizer == "word":
        pieces = ["sentencepiece_model", *training]
        refuse_given(given, pieces, "with --tokenizer sentencepiece")
    else:
        refuse_given(given, ["min_count"], "with --tokenizer word")
    if given.sentencepiece_model:
        own = ["vocab_size", *training]
        refuse_given(given, own, "without --sentencepiece-model, which has its own")


def _prepare(options: argparse.Namespace) -> None:
    _check_combination(options)
    prepare_folder(options.dest, _recipe(options), options.workers, options.overwrite)


main = command("text", __doc__, _add_options, _prepare)
