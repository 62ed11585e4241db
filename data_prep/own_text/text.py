"""``data_prep text``: the user's own text as binary data for fairseq."""

from __future__ import annotations

import shutil
import sys
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from fairseq_transnormer.data.fingerprints import file_sha256
from fairseq_transnormer.data.subword_files import SENTENCEPIECE_MODEL, SPECIAL

from ..folders.binary_folder import Split, Tokenizer, prepare_folder, word_dictionary
from ..folders.encoders import SentencepieceEncoder, WordEncoder, count_all_words
from ..folders.options import CORES, Paths, Place, Workers, at_least, refuse_given
from ..folders.sentencepiece_model import model_dictionary, train_model
from ..folders.staging import Record, Work
from .division import Wanted, divide, whole_documents
from .documents import find_files, shared_documents

DEFAULT_PIECES = 8000


def text(
    place: Place,
    division: Wanted,
    tokenizer: Literal["word", "sentencepiece"],
    train: Paths = (),
    valid: Paths = (),
    test: Paths = (),
    input: Paths = (),
    suffixes: tuple[str, ...] = (".txt",),
    vocab_size: int | None = None,
    vocab_at_most: bool = False,
    min_count: int | None = None,
    character_coverage: float | None = None,
    sentencepiece_model: Path | None = None,
    workers: Workers = CORES,
) -> None:
    """Prepare your own text as binary data for fairseq.

    The text is given as --train, --valid and --test, or as --input, which is divided as
    data_prep split_text does. Each line becomes one sequence with an end of sentence. A
    blank line becomes a lone end of sentence, which separates documents
    (--sample-break-mode complete_doc). One is put between two files.

    Args:
        tokenizer: word: whitespace-separated words, as fairseq-preprocess
            --only-source; sentencepiece: a unigram model with byte fallback, trained on
            the train split alone, or the one given.
        train: files or folders of the train split.
        valid: files or folders of the valid split.
        test: files or folders of the test split.
        input: files or folders to divide into splits, by --split-by, --fractions and
            --seed.
        suffixes: of the files that are read in folders, as in data_prep split_text.
        vocab_size: dictionary entries, the 4 special ones included; padded to a
            multiple of 8; None: word: no limit, sentencepiece: 8000.
        vocab_at_most: sentencepiece: fewer entries where the train split has no more
            pieces, instead of an error.
        min_count: word: leave out words that are rarer in the train split.
        character_coverage: sentencepiece: share of the train split's characters that
            become pieces; None: 1.0. Others are spelt in bytes, which fairseq's
            decoding shows as <0xNN>; take 0.9995 for scripts of thousands of
            characters.
        sentencepiece_model: sentencepiece: use this model instead of training one.
    """
    at_least(len(SPECIAL) + 1, vocab_size=vocab_size)
    at_least(1, min_count=min_count)
    # of the training of a model
    own: Record = {
        "vocab_at_most": vocab_at_most,
        "character_coverage": character_coverage,
    }
    settings: Record = {"command": "text", "tokenizer": tokenizer}
    if tokenizer == "word":
        own["sentencepiece_model"] = sentencepiece_model
        refuse_given("with --tokenizer sentencepiece", **own)
        settings |= {"min_count": min_count or 0, "vocab_size": vocab_size or -1}
    else:
        refuse_given("with --tokenizer word", min_count=min_count)
    if sentencepiece_model:
        own["vocab_size"] = vocab_size
        refuse_given("without --sentencepiece-model, which has its own", **own)
        settings["sentencepiece_model"] = file_sha256(sentencepiece_model)
    elif tokenizer == "sentencepiece":
        coverage = 1.0 if character_coverage is None else character_coverage
        settings["vocab_size"] = vocab_size or DEFAULT_PIECES
        settings["character_coverage"] = coverage
        settings |= {"vocab_at_most": True} if vocab_at_most else {}
    if bool(input) == bool(train):
        raise ValueError("give either --train and --valid (and --test), or --input")
    if input:
        refuse_given("with --train", valid=valid, test=test)
        files, _ = find_files("--input", chain(*input), suffixes, place.dest)
        divided = divide(files, division)
        divided.show()
    else:
        if not valid:
            raise ValueError("--valid: needed with --train")
        changed = vars(division).items() - vars(Wanted()).items()
        refuse_given("with --input", **dict(changed))
        splits = {
            split: find_files(f"--{split}", chain(*paths), suffixes, place.dest)[0]
            for split, paths in (("train", train), ("valid", valid), ("test", test))
            if paths
        }
        for sentence in shared_documents(splits):
            print(f"warning: the same text in two splits: {sentence}", file=sys.stderr)
        files = [*chain(*splits.values())]
        divided = whole_documents(splits)
    settings |= divided.settings
    make: Tokenizer = partial(_words, divided.splits[0], settings, workers)
    if tokenizer == "sentencepiece":
        make = partial(_pieces, divided.splits[0], settings, sentencepiece_model)
    prepare_folder(place, settings, divided.splits, make, workers, files=files)


def _words(
    train: Split, settings: Record, workers: int, work: Work
) -> tuple[Any, type[WordEncoder]]:
    words = count_all_words(train.lines(), workers, train.line_count)
    min_count, most = settings["min_count"], max(words.values())
    if min_count > most:
        raise ValueError(
            f"--min-count {min_count}: no word of the train split is left; "
            f"allowed: up to {most}, the count of its most frequent word"
        )
    return word_dictionary(words, min_count, settings["vocab_size"]), WordEncoder


def _pieces(
    train: Split, settings: Record, given: Path | None, work: Work
) -> tuple[Any, partial[SentencepieceEncoder]]:
    model = work.file(SENTENCEPIECE_MODEL)
    if given:
        shutil.copyfile(given, model)
    else:
        size, coverage = settings["vocab_size"], settings["character_coverage"]
        at_most = "vocab_at_most" in settings
        train_model(train.lines(), model, size, coverage, at_most)
    dictionary = model_dictionary(given or model)
    return dictionary, partial(SentencepieceEncoder, model)
