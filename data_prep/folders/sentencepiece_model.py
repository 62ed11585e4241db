"""Training a sentencepiece model, and its pieces as a fairseq dictionary."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from fairseq_transnormer.data.subword_files import SPECIAL, pieces_of

from .binary_folder import symbol_dictionary

# <unk>, <s> and </s> of sentencepiece: fairseq's dictionary brings its own.
OWN_SPECIALS = 3
# More sentences than these are sampled: training holds them all in memory.
MAX_SENTENCES = 5_000_000
MAX_LINE_BYTES = 1 << 20  # sentencepiece leaves longer lines out, by default at 4192
PART_CHARACTERS = 1 << 12  # its time grows with the square of a line


def train_model(
    lines: Iterable[str],
    path: Path,
    dictionary_size: int,
    coverage: float,
    at_most: bool = False,
) -> None:
    """Train a unigram model with which fairseq's dictionary has ``dictionary_size``.

    Bytes stand in for characters that are no piece, so that nothing is unknown. With
    ``at_most`` the dictionary is smaller where the lines have no more pieces.
    """
    import sentencepiece

    size = dictionary_size - len(SPECIAL) + OWN_SPECIALS
    try:
        with open(path, "wb") as file:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=_sentences(lines),
                model_writer=file,
                model_type="unigram",
                vocab_size=size,
                hard_vocab_limit=not at_most,
                byte_fallback=True,
                character_coverage=coverage,
                input_sentence_size=MAX_SENTENCES,
                shuffle_input_sentence=True,
                max_sentence_length=MAX_LINE_BYTES,
                # Sums are grouped by thread: a fixed number gives one result.
                num_threads=4,
                minloglevel=2,
            )
    except RuntimeError as error:
        # "INTERNAL: file.cc(1) [condition] reason", where the reason may be empty.
        reason = str(error).split("] ")[-1].strip() or str(error)
        raise ValueError(
            f"--vocab-size {dictionary_size}: sentencepiece cannot train such a model "
            f"on the train split with --character-coverage {coverage} ({reason}); "
            f"its own vocabulary is {size} here"
        ) from error


def model_dictionary(path: Path) -> Any:
    """A Dictionary of the model's pieces; ValueError if it is no model."""
    return symbol_dictionary(pieces_of(path))


def _sentences(lines: Iterable[str]) -> Iterator[str]:
    """The lines with text; one that would be left out is cut at spaces."""
    for line in map(str.strip, lines):
        first, size = 0, len(line)
        if len(line.encode()) > MAX_LINE_BYTES:
            size = PART_CHARACTERS
        while first < len(line):
            end = first + size
            if end < len(line):
                space = line.rfind(" ", first + 1, end)
                end = space if space > 0 else end
            yield line[first:end]
            first = end
