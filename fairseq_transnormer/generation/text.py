"""From tokens to text, at once or piece by piece."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

from fairseq.data.encoders.gpt2_bpe import GPT2BPE
from fairseq.hub_utils import GeneratorHubInterface

from ..data.subword_files import decode_byte_pieces

UNFINISHED = "\N{REPLACEMENT CHARACTER}"
# of fairseq's entries that stand for no text
FILLING = "madeupword"


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
        if isinstance(self.hub.bpe, GPT2BPE):
            line = self._of_gpt2(symbols)
        else:
            line = self.hub.remove_bpe(" ".join(symbols))
        text = self.hub.detokenize(line)
        return decode_byte_pieces(text) if self.has_bytes else text

    def _of_gpt2(self, symbols: list[str]) -> str:
        """fairseq reads all units as numbers, also what fills up its dictionary."""
        return "".join(
            " ".join(group) if made_up else self.hub.remove_bpe(" ".join(group))
            for made_up, group in groupby(symbols, lambda s: s.startswith(FILLING))
        )


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
