"""fairseq's file formats, written by fairseq's own classes.

fairseq is imported inside the functions: it costs seconds, which neither ``--help``
nor a wrong option nor a worker process should have to pay.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from data_prep.folders.encoders import UNKNOWN_ID
from data_prep.folders.parallel import map_batches
from data_prep.folders.staging import Work
from data_prep.folders.text_files import TextFile, place_of
from fairseq_transnormer.data.subword_files import GPT2_SIZE, RESERVED, control_ids

# A multiple of 8 suits matrix units; it is fairseq-preprocess's default.
PADDING_FACTOR = 8


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


def symbol_dictionary(symbols: Iterable[str]) -> Any:
    """A Dictionary of ``symbols`` in the given order, padded to a multiple of 8."""
    dictionary = fairseq_data().Dictionary()
    for symbol in symbols:
        dictionary.add_symbol(symbol)
    dictionary.pad_to_multiple_(PADDING_FACTOR)
    return dictionary


def gpt2_dictionary() -> Any:
    """GPT-2's ids as symbols, in order: 50,260 lines, 50,265 entries with <mask>."""
    return symbol_dictionary(str(token) for token in range(GPT2_SIZE))


def load_dictionary(path: Path) -> Any:
    """Reads a dict.txt; raises ValueError with fairseq's reason if it is broken."""
    data = fairseq_data()
    try:
        return data.Dictionary.load(str(path))
    except FileNotFoundError:
        raise
    except Exception as error:  # fairseq raises bare Exception for a bad encoding
        reason = " ".join(str(error).split())
        raise ValueError(f"{path}: not a fairseq dictionary: {reason}") from error


def reserved_words(
    batch: list[np.ndarray], dictionary: Any
) -> Iterator[tuple[int, str]]:
    """The lines of a batch with a word of RESERVED, and a sentence on each."""
    control = control_ids(dictionary)
    texts = [ids[:-1] for ids in batch]
    # one call for all lines: it takes as long for a line alone
    if not np.isin(np.concatenate(texts), control).any():
        return
    for place, ids in enumerate(texts):
        for token in ids[np.isin(ids, control)][:1]:
            yield (
                place,
                f"{dictionary[token]!r} would become a control token; allowed: text "
                f"without {', '.join(RESERVED)}",
            )


def ids_builder(work: Work, name: str, vocabulary: int) -> Any:
    """fairseq's builder of NAME.bin; ``finalize`` takes the path of NAME.idx."""
    return fairseq_data().indexed_dataset.make_builder(
        str(work.file(f"{name}.bin")), impl="mmap", vocab_size=vocabulary
    )


def write_split(
    work: Work,
    split: str,
    lines: Callable[[], Iterable[str]],
    encoder: Callable[[list[str]], list[np.ndarray]],
    dictionary: Any,
    workers: int,
    total: int | None = None,
    files: Iterable[TextFile] = (),
) -> dict[str, int]:
    """Writes ``split``.bin and .idx; returns the counts of lines, tokens, unknown.

    Raises ValueError, with the line's place in ``files``, for a word of RESERVED.
    """
    import torch
    from tqdm import tqdm

    builder = ids_builder(work, split, len(dictionary))
    counts = {"lines": 0, "tokens": 0, "unknown": 0}
    bar = tqdm(total=total, unit=" lines", desc=f"encode {split}", disable=None)
    with bar:
        for batch in map_batches(encoder, lines(), workers):
            for place, sentence in reserved_words(batch, dictionary):
                number = counts["lines"] + place
                line = next(islice(lines(), number, None))
                where = place_of(line, files) or f"{split}, line {number + 1}"
                raise ValueError(f"{where}: {sentence}")
            for ids in batch:
                builder.add_item(torch.from_numpy(ids))
            counts["lines"] += len(batch)
            counts["tokens"] += sum(map(len, batch))
            counts["unknown"] += sum(int((ids == UNKNOWN_ID).sum()) for ids in batch)
            bar.update(len(batch))
    if counts["tokens"] == counts["lines"]:
        raise ValueError(f"{split}: empty split: no token in {counts['lines']} lines")
    builder.finalize(str(work.file(f"{split}.idx")))
    return counts
