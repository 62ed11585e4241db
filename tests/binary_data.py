"""Lines of text as fairseq's binary data."""

from collections.abc import Iterable
from pathlib import Path

from fairseq.data import Dictionary, indexed_dataset

import fairseq_transnormer.plugin  # noqa: F401 (registers the models)


def dictionary_of(symbols: Iterable[str]) -> Dictionary:
    """A dictionary of these symbols in their order, after fairseq's special ones."""
    dictionary = Dictionary()
    for symbol in symbols:
        dictionary.add_symbol(symbol)
    return dictionary


def numbered_words(count: int) -> Dictionary:
    """The dictionary of w0, w1, ..."""
    return dictionary_of(f"w{i}" for i in range(count))


def write_binary_data(
    folder: Path, dictionary: Dictionary, splits: dict[str, list[str]]
) -> Path:
    """Write dict.txt and each split's lines of symbols; returns the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    dictionary.save(str(folder / "dict.txt"))
    for split, lines in splits.items():
        prefix = str(folder / split)
        builder = indexed_dataset.make_builder(
            prefix + ".bin", impl="mmap", vocab_size=len(dictionary)
        )
        for line in lines:
            builder.add_item(dictionary.encode_line(line, add_if_not_exist=False))
        builder.finalize(prefix + ".idx")
    return folder


def write_labelled_data(
    folder: Path,
    words: Dictionary,
    texts: dict[str, list[str]],
    labels: Iterable[str],
    classes: dict[str, list[str]],
) -> Path:
    """Write texts and their labels as sentence_prediction reads them.

    Args:
        folder: gets input0 and label; it is returned.
        words: the dictionary of the texts.
        texts: split -> lines of words.
        labels: of the classes, in the order of their numbers.
        classes: split -> a label for each line.
    """
    write_binary_data(folder / "input0", words, texts)
    write_binary_data(folder / "label", dictionary_of(labels), classes)
    return folder
