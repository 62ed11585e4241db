"""Binary data in fairseq's format, from lines of text to DEST.

fairseq is imported inside the functions: it costs seconds, which neither ``--help``
nor a wrong option nor a worker process should have to pay.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from fairseq_transnormer.data import REPORT
from fairseq_transnormer.data.subword_files import GPT2_SIZE, RESERVED, UNK, control_ids

from .encoders import Encoder, WordEncoder
from .options import Place
from .parallel import map_batches, shown
from .staging import Record, Work, publish
from .text_files import TextFile, check_unchanged

# A multiple of 8 suits matrix units; it is fairseq-preprocess's default.
PADDING_FACTOR = 8

Counts = dict[str, int]
# writes what else encodes text; gives the dictionary, and the encoder of its ids
Tokenizer = Callable[[Work], tuple[Any, Callable[[dict[str, int]], Encoder]]]


@dataclass(frozen=True)
class Split:
    """One split's lines, which can be read again and again.

    ``line_count`` is for progress bars; ``counts`` are those of what is divided: the
    documents that it has text of and, where these are divided, paragraphs.
    """

    name: str
    lines: Callable[[], Iterator[str]]
    line_count: int | None = None
    counts: Counts = field(default_factory=dict)


def prepare_folder(
    place: Place,
    settings: Record,
    splits: Sequence[Split],
    tokenizer: Tokenizer,
    workers: int = 1,
    check: Callable[[str, Counts], None] = lambda split, counts: None,
    files: Sequence[TextFile] = (),
) -> None:
    """Make dict.txt, the splits' .bin and .idx, and report.json.

    Args:
        check: raises ValueError if a split's counts are not what they should be.
        files: the user's that the lines stand in, if any.
    """

    def make(work: Work) -> Record:
        made, encoder_of = tokenizer(work)
        made.save(str(work.file("dict.txt")))
        dictionary = load_dictionary(work.folder / "dict.txt")
        encoder = encoder_of(dictionary.indices)
        counts = {}
        # The small splits first: a wrong corpus shows before hours are spent.
        for split in sorted(splits, key=lambda split: split.name == "train"):
            counts[split.name] = write_split(work, split, encoder, dictionary, workers)
            check(split.name, counts[split.name])
        check_unchanged(files)
        return {
            "dictionary_size": len(dictionary),
            "splits": {split.name: counts[split.name] for split in splits},
        }

    publish(place, settings, REPORT, make)


def symbol_tokenizer(symbols: Iterable[str]) -> Tokenizer:
    """Of lines of known symbols between blanks; the dictionary has them in order."""
    return lambda work: (symbol_dictionary(symbols), WordEncoder)


def fairseq_data() -> Any:
    """The package ``fairseq.data``, imported without its chatter."""
    import fairseq_transnormer.plugin  # noqa: F401 (imports fairseq first)

    # isort: split
    import fairseq.data
    import fairseq.data.indexed_dataset

    return fairseq.data


def word_dictionary(words: Counter[str], min_count: int = 0, size: int = -1) -> Any:
    """The Dictionary that fairseq-preprocess makes of these words.

    ``min_count`` and ``size`` are its --thresholdsrc and --nwordssrc: words that are
    rarer are left out, and all beyond ``size`` entries (special symbols included).
    """
    dictionary = fairseq_data().Dictionary()
    for word, count in sorted(words.items()):
        dictionary.add_symbol(word, count)
    dictionary.finalize(threshold=min_count, nwords=size, padding_factor=PADDING_FACTOR)
    return dictionary


def symbol_dictionary(symbols: Iterable[str], multiple: int = PADDING_FACTOR) -> Any:
    """A Dictionary of ``symbols`` in the given order, padded to a multiple."""
    dictionary = fairseq_data().Dictionary()
    for symbol in symbols:
        dictionary.add_symbol(symbol)
    dictionary.pad_to_multiple_(multiple)
    return dictionary


def gpt2_dictionary() -> Any:
    """GPT-2's ids as symbols, in order: 50,260 lines, 50,265 entries with <mask>."""
    return symbol_dictionary(str(token) for token in range(GPT2_SIZE))


def load_dictionary(path: Path) -> Any:
    """Read a dict.txt."""
    return fairseq_data().Dictionary.load(str(path))


def write_split(
    work: Work, split: Split, encoder: Encoder, dictionary: Any, workers: int = 1
) -> Counts:
    """Write a split's .bin and .idx; the counts of lines, tokens, unknown.

    Raises ValueError for a word of RESERVED, with its line.
    """

    def where(number: int) -> str:
        line = next(islice(split.lines(), number, None))
        return f"{split.name}, line {line.strip()[:80]!r}"

    lines = shown(split.lines(), f"encode {split.name}", split.line_count)
    batches = map_batches(encoder, lines, workers)
    counts = write_ids(work, split.name, batches, dictionary, where)
    if counts["tokens"] == counts["lines"]:
        raise ValueError(f"{split.name}: empty split")
    return counts


def write_ids(
    work: Work,
    name: str,
    batches: Iterable[Sequence[np.ndarray]],
    dictionary: Any,
    where: Callable[[int], str] = str,
) -> Counts:
    """Write NAME.bin and NAME.idx of ids by line; the counts of lines, tokens, unknown.

    Raises ValueError for a word of RESERVED; ``where`` names the line of a number from
    0.
    """
    import torch

    builder = fairseq_data().indexed_dataset.make_builder(
        str(work.file(f"{name}.bin")), impl="mmap", vocab_size=len(dictionary)
    )
    counts = {"lines": 0, "tokens": 0, "unknown": 0}
    control = control_ids(dictionary)
    for batch in batches:
        # one call for all lines: it takes as long for a line alone
        words = np.concatenate([ids[:-1] for ids in batch])
        for at in np.flatnonzero(np.isin(words, control))[:1]:
            ends = np.cumsum([len(ids) - 1 for ids in batch])
            number = counts["lines"] + int(np.searchsorted(ends, at, side="right"))
            raise ValueError(
                f"{where(number)}: {dictionary[words[at]]!r} would become a control "
                f"token; allowed: text without {', '.join(RESERVED)}"
            )
        for ids in batch:
            builder.add_item(torch.from_numpy(ids))
        counts["lines"] += len(batch)
        counts["tokens"] += len(words) + len(batch)
        counts["unknown"] += int((words == UNK).sum())
    builder.finalize(str(work.file(f"{name}.idx")))
    return counts
