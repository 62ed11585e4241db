"""Prepares WikiText-103 as binary data for fairseq.

  alm   word level, for the autoregressive language model: the published tokenised
        text with the dictionary that fairseq-preprocess gives (267,744 entries)
  blm   GPT-2 byte-pair encoding of the raw text, for the bidirectional language
        model: 50,260 dictionary lines, 50,265 entries with <mask>

DIR gets dict.txt, train/valid/test .bin and .idx, and report.json with counts and
checksums; for blm also encoder.json and vocab.bpe, which generation needs
(--bpe gpt2 --gpt2-encoder-json DIR/encoder.json --gpt2-vocab-bpe DIR/vocab.bpe).
Empty lines are kept, as ends of sentences. The sizes are checked against those of
the full corpus.
"""

import argparse
import shutil
from itertools import islice
from pathlib import Path
from typing import Any

from data_prep.folders.arguments import (
    add_destination,
    add_other_sizes,
    add_workers,
    command_parser,
)
from data_prep.folders.binary_folder import Counts, Recipe, Split, prepare_folder
from data_prep.folders.checksum import fetched, require_sha256
from data_prep.folders.encoders import (
    GPT2_SHA256,
    Gpt2Encoder,
    WordEncoder,
    count_all_words,
)
from data_prep.folders.errors import InputError, run_command
from data_prep.folders.fairseq_format import gpt2_dictionary, word_dictionary
from data_prep.wikitext.wikitext_source import (
    RAW,
    SPLITS,
    TOKENS,
    Source,
    hub_source,
    local_source,
)

GPT2_URL = "https://openaipublic.blob.core.windows.net/gpt-2/encodings/main"
LINES = {"train": 1_801_350, "valid": 3_760, "test": 4_358}
# With one end of sentence for each line.
ALM_TOKENS = {"train": 103_227_021, "valid": 217_646, "test": 245_569}
ALM_DICTIONARY = 267_744
CHECKED_LINES = 2000
MAX_UNKNOWN_LINES = 20


def check_sizes(variant: str, split: str, counts: Counts) -> None:
    """Raises InputError unless ``counts`` are those of the full corpus's split."""
    expected = {"lines": LINES[split]}
    if variant == "alm":
        expected["tokens"] = ALM_TOKENS[split]
    _require_equal(split, expected, counts)


def _require_equal(what: str, expected: Counts, found: Counts) -> None:
    for unit, number in expected.items():
        if found[unit] != number:
            raise InputError(
                f"{what}: expected {number:,} {unit} for the full WikiText-103, found "
                f"{found[unit]:,}; the source is truncated or another corpus "
                "(--allow-other-sizes for a cut-down copy)"
            )


def _alm(source: Source, options: argparse.Namespace) -> Recipe:
    def prepare_tokenizer(folder: Path) -> None:
        line_count, words = count_all_words(
            source.lines("train"), options.workers, LINES["train"]
        )
        dictionary = word_dictionary(words)
        if not options.allow_other_sizes:
            counts = {"lines": line_count, "tokens": words.total() + line_count}
            check_sizes("alm", "train", counts)
            size = {"entries": len(dictionary)}
            _require_equal("dictionary", {"entries": ALM_DICTIONARY}, size)
        dictionary.save(str(folder / "dict.txt"))

    return _recipe(
        source,
        options,
        tokenizer_files=[],
        prepare_tokenizer=prepare_tokenizer,
        encoder=lambda folder, dictionary: WordEncoder(dictionary.indices),
    )


def _blm(source: Source, options: argparse.Namespace) -> Recipe:
    def prepare_tokenizer(folder: Path) -> None:
        for name, sha256 in GPT2_SHA256.items():
            if options.gpt2_bpe_dir:
                path = options.gpt2_bpe_dir / name
                require_sha256(path, sha256)
            else:
                instead = "give the folder that has it with --gpt2-bpe-dir"
                path = fetched(f"{GPT2_URL}/{name}", name, sha256, instead)
            shutil.copyfile(path, folder / name)
        _require_raw(source)
        gpt2_dictionary().save(str(folder / "dict.txt"))

    return _recipe(
        source,
        options,
        tokenizer_files=list(GPT2_SHA256),
        prepare_tokenizer=prepare_tokenizer,
        encoder=lambda folder, dictionary: Gpt2Encoder(folder),
    )


def _recipe(source: Source, options: argparse.Namespace, **parts: Any) -> Recipe:
    def check(split: str, counts: Counts) -> None:
        if not options.allow_other_sizes:
            check_sizes(options.variant, split, counts)

    return Recipe(
        settings={
            "command": f"wikitext103 {options.variant}",
            "source": source.identity,
        },
        splits=[
            Split(split, lambda split=split: source.lines(split), LINES[split])
            for split in SPLITS
        ],
        check=check,
        **parts,
    )


def _require_raw(source: Source) -> None:
    """The two versions have the same number of lines: only the words tell."""
    lines = islice(source.lines("valid"), CHECKED_LINES)
    if sum("<unk>" in line for line in lines) > MAX_UNKNOWN_LINES:
        raise InputError(
            f"valid: many lines with <unk>: this is the tokenised {TOKENS.config}; "
            f"blm needs {RAW.config}"
        )


def main(arguments: list[str] | None = None) -> int:
    """The command line; returns the exit code."""
    parser = command_parser("wikitext103", __doc__)
    parser.add_argument("variant", choices=["alm", "blm"], help="see above")
    add_destination(parser)
    parser.add_argument(
        "--from-dir",
        type=Path,
        metavar="DIR",
        help="local copy: the original wiki.*.tokens / wiki.*.raw files, a dataset "
        "saved with save_to_disk, or the hub's parquet files (default: the "
        "Hugging Face hub)",
    )
    parser.add_argument(
        "--gpt2-bpe-dir",
        type=Path,
        metavar="DIR",
        help="blm: folder with encoder.json and vocab.bpe (default: downloaded)",
    )
    add_other_sizes(parser, "the sizes of the full corpus")
    add_workers(parser)
    options = parser.parse_args(arguments)
    if options.gpt2_bpe_dir and options.variant != "blm":
        parser.error("argument --gpt2-bpe-dir: only for blm")
    return run_command(parser.prog, lambda: _prepare(options))


def _prepare(options: argparse.Namespace) -> None:
    version = TOKENS if options.variant == "alm" else RAW
    if options.from_dir:
        source = local_source(options.from_dir, version)
    else:
        source = hub_source(version)
    recipe = (_alm if options.variant == "alm" else _blm)(source, options)
    prepare_folder(options.dest, recipe, options.workers, options.overwrite)
