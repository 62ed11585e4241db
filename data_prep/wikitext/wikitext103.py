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
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from data_prep.folders.binary_folder import (
    Counts,
    Recipe,
    Split,
    prepare_folder,
    word_encoder,
)
from data_prep.folders.command import (
    add_destination,
    add_other_sizes,
    add_source,
    add_workers,
    command,
)
from data_prep.folders.downloads import fetched, require_sha256
from data_prep.folders.encoders import GPT2_SHA256, Gpt2Encoder, count_all_words
from data_prep.folders.fairseq_format import gpt2_dictionary, word_dictionary
from data_prep.folders.hub import HubData, load_hub, load_parquet
from data_prep.folders.staging import Work
from data_prep.folders.text_files import read_lines, scan

HUB_DATA = HubData("Salesforce/wikitext", "b08601e04326c79dfdd32d625aee71d232d685c3")
# fairseq's names of the splits and the hub's.
SPLITS = {"train": "train", "valid": "validation", "test": "test"}
GPT2_URL = "https://openaipublic.blob.core.windows.net/gpt-2/encodings/main"
LINES = {"train": 1_801_350, "valid": 3_760, "test": 4_358}
# With one end of sentence for each line.
ALM_TOKENS = {"train": 103_227_021, "valid": 217_646, "test": 245_569}
ALM_DICTIONARY = 267_744
CHECKED_LINES = 2000
MAX_UNKNOWN_LINES = 20


class Version(NamedTuple):
    """One of the corpus's two versions, with the names it has in each form."""

    config: str
    folder: str
    suffix: str


VERSIONS = {
    "alm": Version("wikitext-103-v1", "wikitext-103", "tokens"),
    "blm": Version("wikitext-103-raw-v1", "wikitext-103-raw", "raw"),
}


class Source(NamedTuple):
    """The corpus's lines by split, and what identifies it for the settings."""

    identity: dict[str, Any]
    lines: Callable[[str], Iterator[str]]


def find_source(folder: Path | None, version: Version) -> Source:
    """The corpus from the hub, or its copy in ``folder`` or one below of its name."""
    places = (".", version.folder, version.config)
    if folder is None:
        loaded = load_hub(HUB_DATA, version.config, places)
    else:
        for place in (folder / name for name in places):
            files = {s: place / f"wiki.{s}.{version.suffix}" for s in SPLITS}
            if any(path.exists() for path in files.values()):
                return _original_files(files)
        found = load_parquet(folder, places, SPLITS.values())
        if found is None:
            raise ValueError(
                f"--from-dir {folder}: holds no copy of {version.config}; accepted are "
                f"wiki.*.{version.suffix} or the hub's parquet files, in the folder or "
                f"in {' or '.join(places[1:])}"
            )
        loaded = found
    return Source(
        loaded.identity,
        lambda split: (line for (line,) in loaded.rows(SPLITS[split], "text")),
    )


def _original_files(files: dict[str, Path]) -> Source:
    scanned = {split: scan(path) for split, path in files.items()}
    identity = {split: file.fingerprint() for split, file in scanned.items()}
    return Source(identity, lambda split: read_lines([scanned[split]]))


def check_sizes(variant: str, split: str, counts: Counts) -> None:
    """Raises ValueError unless ``counts`` are those of the full corpus's split."""
    expected = {"lines": LINES[split]}
    if variant == "alm":
        expected["tokens"] = ALM_TOKENS[split]
    _require_equal(split, expected, counts)


def _require_equal(what: str, expected: Counts, found: Counts) -> None:
    for unit, number in expected.items():
        if found[unit] != number:
            raise ValueError(
                f"{what}: expected {number:,} {unit} for the full WikiText-103, found "
                f"{found[unit]:,}; the source is truncated or another corpus "
                "(--allow-other-sizes for a cut-down copy)"
            )


def _words(source: Source, work: Work, options: argparse.Namespace) -> None:
    line_count, words = count_all_words(
        source.lines("train"), options.workers, LINES["train"]
    )
    dictionary = word_dictionary(words)
    if not options.allow_other_sizes:
        counts = {"lines": line_count, "tokens": words.total() + line_count}
        check_sizes("alm", "train", counts)
        size = {"entries": len(dictionary)}
        _require_equal("dictionary", {"entries": ALM_DICTIONARY}, size)
    dictionary.save(str(work.file("dict.txt")))


def _gpt2_units(source: Source, work: Work, options: argparse.Namespace) -> None:
    for name, sha256 in GPT2_SHA256.items():
        if options.gpt2_bpe_dir:
            path = options.gpt2_bpe_dir / name
            require_sha256(path, sha256)
        else:
            instead = "give the folder that has it with --gpt2-bpe-dir"
            path = fetched(f"{GPT2_URL}/{name}", name, sha256, instead)
        shutil.copyfile(path, work.file(name))
    # The two versions have the same number of lines: only the words tell.
    lines = islice(source.lines("valid"), CHECKED_LINES)
    if sum("<unk>" in line for line in lines) > MAX_UNKNOWN_LINES:
        raise ValueError(
            "valid: many lines with <unk>: this is the tokenised "
            f"{VERSIONS['alm'].config}; blm needs {VERSIONS['blm'].config}"
        )
    gpt2_dictionary().save(str(work.file("dict.txt")))


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("variant", choices=list(VERSIONS), help="see above")
    add_destination(parser)
    add_source(
        parser,
        "the original wiki.*.tokens / wiki.*.raw files, or the hub's parquet files "
        "(default: the Hugging Face hub)",
    )
    parser.add_argument(
        "--gpt2-bpe-dir",
        type=Path,
        metavar="DIR",
        help="blm: folder with encoder.json and vocab.bpe (default: downloaded)",
    )
    add_other_sizes(parser, "the sizes of the full corpus")
    add_workers(parser)


def _prepare(options: argparse.Namespace) -> None:
    words = options.variant == "alm"
    if options.gpt2_bpe_dir and words:
        raise ValueError("--gpt2-bpe-dir: only for blm")
    source = find_source(options.from_dir, VERSIONS[options.variant])
    tokenizer = _words if words else _gpt2_units

    def check(split: str, counts: Counts) -> None:
        if not options.allow_other_sizes:
            check_sizes(options.variant, split, counts)

    recipe = Recipe(
        settings={
            "command": f"wikitext103 {options.variant}",
            "source": source.identity,
        },
        splits=[
            Split(split, lambda split=split: source.lines(split), LINES[split])
            for split in SPLITS
        ],
        prepare_tokenizer=lambda work: tokenizer(source, work, options),
        encoder=word_encoder if words else lambda folder, _: Gpt2Encoder(folder),
        check=check,
    )
    prepare_folder(options.dest, recipe, options.workers, options.overwrite)


main = command("wikitext103", __doc__, _add_options, _prepare)
