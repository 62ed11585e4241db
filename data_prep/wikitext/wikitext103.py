"""``data_prep wikitext103``: WikiText-103 as the paper's models read it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from ..folders.binary_folder import (
    Counts,
    Split,
    gpt2_dictionary,
    prepare_folder,
    word_dictionary,
)
from ..folders.downloads import fetched, require_sha256
from ..folders.encoders import GPT2_SHA256, Gpt2Encoder, WordEncoder, count_all_words
from ..folders.hub import WAY_OUT, HubData, load
from ..folders.options import CORES, MaybeDirectory, Place, Source, Workers
from ..folders.staging import Work
from ..folders.text_files import scan

HUB_DATA = HubData("Salesforce/wikitext", "b08601e04326c79dfdd32d625aee71d232d685c3")
# fairseq's names of the splits and the hub's.
SPLITS = {"train": "train", "valid": "validation", "test": "test"}
GPT2_URL = "https://openaipublic.blob.core.windows.net/gpt-2/encodings/main"
LINES = {"train": 1_801_350, "valid": 3_760, "test": 4_358}
# With one end of sentence for each line.
ALM_TOKENS = {"train": 103_227_021, "valid": 217_646, "test": 245_569}
ALM_DICTIONARY = 267_744
# the hub's name, and how names of the original files end
VERSIONS = {"alm": ("wikitext-103-v1", "tokens"), "blm": ("wikitext-103-raw-v1", "raw")}
CHECKED_LINES = 2000
MAX_UNKNOWN_LINES = 20

# what identifies a corpus for the settings, and its lines by split
Corpus = tuple[dict[str, Any], Callable[[str], Iterator[str]]]


def wikitext103(
    variant: Annotated[Literal["alm", "blm"], tyro.conf.arg(metavar="{alm,blm}")],
    /,
    place: Place,
    copy: Source,
    gpt2_bpe_dir: MaybeDirectory = None,
    workers: Workers = CORES,
) -> None:
    """Prepare WikiText-103 as binary data for fairseq.

    The corpus comes from the Hugging Face hub, or from --from-dir: the original
    wiki.*.tokens / wiki.*.raw files, or the hub's parquet files. Its sizes are checked.
    Empty lines are kept, as ends of sentences.

    Args:
        variant: alm: words, for autoregressive models (267,744 entries); blm: GPT-2's
            byte-pair encoding, for masked ones (50,265 entries with <mask>).
        gpt2_bpe_dir: blm: folder with encoder.json and vocab.bpe; None: downloaded.
    """
    if gpt2_bpe_dir and variant == "alm":
        raise ValueError("--gpt2-bpe-dir: only for blm")
    identity, lines_of = find_corpus(copy.from_dir, *VERSIONS[variant])

    def check(split: str, counts: Counts) -> None:
        if not copy.allow_other_sizes:
            check_sizes(variant, split, counts)

    def words(work: Work) -> tuple[Any, type[WordEncoder]]:
        found = count_all_words(lines_of("train"), workers, LINES["train"])
        dictionary = word_dictionary(found)
        if not copy.allow_other_sizes:
            _require_equal("entries of the dictionary", ALM_DICTIONARY, len(dictionary))
        return dictionary, WordEncoder

    def gpt2(work: Work) -> tuple[Any, Callable[..., Gpt2Encoder]]:
        _copy_gpt2_units(work, gpt2_bpe_dir)
        # The two versions have the same number of lines: only the words tell.
        lines = islice(lines_of("valid"), CHECKED_LINES)
        if sum("<unk>" in line for line in lines) > MAX_UNKNOWN_LINES:
            raise ValueError("valid: many lines with <unk>; blm needs the raw version")
        return gpt2_dictionary(), partial(Gpt2Encoder, work.folder)

    def split(name: str) -> Split:
        return Split(name, lambda: lines_of(name), LINES[name])

    prepare_folder(
        place,
        {"command": f"wikitext103 {variant}", "source": identity},
        [*map(split, SPLITS)],
        words if variant == "alm" else gpt2,
        workers,
        check,
    )


def find_corpus(folder: Path | None, config: str, suffix: str) -> Corpus:
    """The corpus from the hub, or its copy in ``folder`` or one below of its name."""
    places = (".", config.removesuffix("-v1"), config)
    for place in places if folder else ():
        files = {s: folder / place / f"wiki.{s}.{suffix}" for s in SPLITS}
        if files["train"].exists():
            found = {split: scan(path) for split, path in files.items()}
            identity = {split: file.fingerprint() for split, file in found.items()}
            return identity, lambda split, found=found: found[split].lines()
    original = f"wiki.*.{suffix} or "
    loaded = load(HUB_DATA, folder, places, SPLITS.values(), config, original)
    return loaded.identity, lambda split: (
        line for (line,) in loaded.rows(SPLITS[split], "text")
    )


def check_sizes(variant: str, split: str, counts: Counts) -> None:
    """Raise ValueError unless ``counts`` are those of the full corpus's split."""
    _require_equal(f"lines of {split}", LINES[split], counts["lines"])
    if variant == "alm":
        _require_equal(f"tokens of {split}", ALM_TOKENS[split], counts["tokens"])


def _require_equal(what: str, expected: int, found: int) -> None:
    if found != expected:
        raise ValueError(
            f"{found:,} {what}; the full WikiText-103 has {expected:,} ({WAY_OUT})"
        )


def _copy_gpt2_units(work: Work, folder: Path | None) -> None:
    for name, sha256 in GPT2_SHA256.items():
        if folder:
            path = folder / name
            require_sha256(path, sha256)
        else:
            instead = "give the folder that has it with --gpt2-bpe-dir"
            path = fetched(f"{GPT2_URL}/{name}", name, sha256, instead)
        shutil.copyfile(path, work.file(name))
