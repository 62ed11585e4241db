"""From texts to the tokens that the model was fine-tuned on.

A single text is ``<s> text </s>``, a pair ``<s> text </s> </s> pair </s>``. What does
not fit is cut, longest first: tokens are taken from the end of the longer text, of the
second if both are equally long.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fairseq.data import Dictionary
from fairseq.data.encoders.gpt2_bpe import GPT2BPE, GPT2BPEConfig
from fairseq.data.encoders.sentencepiece_bpe import (
    SentencepieceBPE,
    SentencepieceConfig,
)
from fairseq.tokenizer import tokenize_line

from ..data.labelled_texts import kept_lengths
from ..data.subword_files import (
    RESERVED,
    find_subword_files,
    missing_units,
    unknown_symbols,
)
from ..data.texts import one_line_text
from .errors import ClassificationError


class TextEncoder:
    """Texts to ids of a dictionary.

    Args:
        folders: where the subword files may be, in this order; without any, words are
            the units.
        dictionary: of the model.
        max_positions: tokens of an input at most, special ones counted.

    Raises:
        ClassificationError: a file cannot be read, or the dictionary has subword units
            whose files are in no folder.
    """

    def __init__(self, folders: list[Path], dictionary: Dictionary, max_positions: int):
        self.dictionary, self.max_positions = dictionary, max_positions
        self._units = _subword_units(folders, dictionary)

    def __call__(self, text: str, pair: str | None = None) -> list[int]:
        """Ids of a text or a pair, special ones included."""
        first = self._ids(text)
        bos, eos = self.dictionary.bos(), self.dictionary.eos()
        if pair is None:
            return [bos, *first[: self.max_positions - 2], eos]
        second = self._ids(pair)
        kept = kept_lengths(len(first), len(second), self.max_positions - 4)
        return [bos, *first[: kept[0]], eos, eos, *second[: kept[1]], eos]

    def left_out(self, text: str, pair: str | None = None) -> int:
        """How many tokens of a text or a pair do not fit and are not read."""
        parts = [self._ids(part) for part in (text, pair) if part is not None]
        room = self.max_positions - 2 * len(parts)
        return max(0, sum(map(len, parts)) - room)

    def unknown_words(self, text: str) -> list[str]:
        """The words, or subword units, of a text that the dictionary lacks."""
        return unknown_symbols(self._split(text), self.dictionary)

    def _ids(self, text: str) -> list[int]:
        units = self._split(text)
        for unit in units:
            if unit in RESERVED and unit in self.dictionary:
                raise ClassificationError(
                    f"{text[:80]!r} contains {unit!r}, which stands for no text"
                )
        return [self.dictionary.index(unit) for unit in units]

    def _split(self, text: str) -> list[str]:
        # as the texts of the fine-tuning were read
        return tokenize_line(self._units(one_line_text(text)))


def _subword_units(folders: list[Path], dictionary: Dictionary) -> Callable[[str], str]:
    try:
        files = list(map(str, find_subword_files(folders)))
    except ValueError as error:
        raise ClassificationError(str(error)) from error
    if not files:
        missing = missing_units(dictionary.symbols)
        if missing is not None:
            raise ClassificationError(
                f"the dictionary has subword units, and there is no {missing} in "
                f"{' or '.join(map(str, folders))}"
            )
        return lambda text: text
    if len(files) == 2:
        encoder, merges = files
        config = GPT2BPEConfig(gpt2_encoder_json=encoder, gpt2_vocab_bpe=merges)
        return GPT2BPE(config).encode
    try:
        config = SentencepieceConfig(sentencepiece_model=files[0])
        return SentencepieceBPE(config).encode
    # also where sentencepiece is not installed
    except (RuntimeError, OSError, TypeError, ImportError) as error:
        reason = " ".join(str(error).split())[:300]
        raise ClassificationError(
            f"{files[0]}: no sentencepiece model that can be read ({reason})"
        ) from error
