"""From tokens to text, at once or piece by piece."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

from fairseq.hub_utils import GeneratorHubInterface

from ..data.subword_files import decode_byte_pieces

UNFINISHED = "\N{REPLACEMENT CHARACTER}"


class Detokenizer:
    """What fairseq's hub interface makes of tokens, with sentencepiece's bytes decoded.

    A sentencepiece model with byte fallback spells unknown characters in pieces such as
    <0xE2>; fairseq would print them so.

    Args:
        hub: has the dictionary, the subword units and the tokenizer.
    """

    def __init__(self, hub: GeneratorHubInterface):
        self.hub, self.dictionary = hub, hub.tgt_dict
        self.has_bytes = self.dictionary.index("<0x00>") != self.dictionary.unk()

    def symbols(self, tokens: Iterable[int]) -> list[str]:
        """The tokens' names, without those that print as nothing."""
        names = (self.dictionary.string([token]) for token in tokens)
        return [name for name in names if name]

    def text(self, symbols: list[str]) -> str:
        """The text of a line's symbols."""
        lines = [list(group) for _, group in groupby(symbols, _is_made_up)]
        if self.hub.bpe is None:
            lines = [symbols]
        text = self.hub.detokenize("".join(map(self._without_units, lines)))
        return decode_byte_pieces(text) if self.has_bytes else text

    def _without_units(self, symbols: list[str]) -> str:
        line = " ".join(symbols)
        # GPT-2's units are numbers, which fairseq reads as such
        made_up = symbols and self.hub.bpe is not None and _is_made_up(symbols[0])
        return line if made_up else self.hub.remove_bpe(line)


def _is_made_up(symbol: str) -> bool:
    """Whether fairseq's dictionary has it to fill up its size: no text has it."""
    return symbol.startswith("madeupword")


class TextPieces:
    """The text of a line in pieces, as its tokens come.

    Text that the next token may still change is held back: space that an end of line
    would strip, the first bytes of a character, and with a tokenizer (fairseq's
    ``--tokenizer``) all.
    """

    def __init__(self, detokenizer: Detokenizer):
        self.detokenizer = detokenizer
        self.symbols: list[str] = []
        self.printed = 0

    def add(self, tokens: Iterable[int]) -> str:
        """What can be printed now."""
        self.symbols += self.detokenizer.symbols(tokens)
        if self.detokenizer.hub.tokenizer is not None:
            return ""
        text = self.detokenizer.text(self.symbols)
        return self._not_yet_printed(text.rstrip().rstrip(UNFINISHED).rstrip())

    def rest(self) -> str:
        """What has been held back, at the end of the line."""
        return self._not_yet_printed(self.detokenizer.text(self.symbols))

    def _not_yet_printed(self, text: str) -> str:
        piece = text[self.printed :]
        self.printed += len(piece)
        return piece
