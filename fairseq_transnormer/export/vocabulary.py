"""fairseq's dict.txt and subword units without fairseq."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..data.subword_files import (
    RESERVED,
    SPACE,
    SPECIAL,
    decode_byte_pieces,
    missing_units,
    read_dictionary,
)
from ..data.texts import check_text, joined_lines
from ..missing_packages import explanation
from .errors import ExportError

UNK = SPECIAL.index("<unk>")


@dataclass
class Vocabulary:
    """Symbols and their numbers.

    Attributes:
        symbols: of tokens 0, 1, ...
        sentencepiece_model: makes pieces of text.
        gpt2_units: GPT-2's encoder.json and vocab.bpe, whose numbers are symbols; with
            neither of both, words are.
        missing_units: files that are not there, without which no text becomes these
            symbols; None if that is not so.
    """

    symbols: list[str]
    sentencepiece_model: Path | None = None
    gpt2_units: tuple[Path, Path] | None = None

    def __post_init__(self) -> None:
        # special ones stay, whatever else has their names
        ordered = [*enumerate(self.symbols), *enumerate(SPECIAL)]
        self.numbers = {symbol: i for i, symbol in ordered}
        self._processor: Any = None
        self.missing_units = None if self.has_units else missing_units(self.symbols)

    @property
    def has_units(self) -> bool:
        """Whether texts are cut into subword units, not into words."""
        return bool(self.sentencepiece_model or self.gpt2_units)

    @classmethod
    def read(
        cls,
        dictionary: Path,
        sentencepiece_model: Path | None = None,
        gpt2_units: tuple[Path, Path] | None = None,
    ) -> Vocabulary:
        """Read dict.txt, and put fairseq's special symbols in front.

        Raises:
            ExportError: see ``read_dictionary``.
        """
        try:
            symbols = [*SPECIAL, *read_dictionary(dictionary)]
        except ValueError as error:
            raise ExportError(str(error)) from error
        return cls(symbols, sentencepiece_model, gpt2_units)

    def split(self, text: str) -> list[str]:
        """The symbols of a line, also such as the dictionary lacks.

        Raises:
            ExportError: of a file, or of the text, that cannot be read; the symbols are
                subword units, whose files are not there.
        """
        check_text(text, ExportError)
        if self.missing_units is not None:
            raise ExportError(
                f"the dictionary has subword units, and there is no "
                f"{self.missing_units} to cut a text into them"
            )
        text = joined_lines(text)
        if self.sentencepiece_model is not None:
            # fairseq joins the pieces with spaces and splits them again
            return " ".join(self._sentencepiece().encode(text, out_type=str)).split()
        if self.gpt2_units is not None:
            return [str(unit) for unit in self._gpt2().encode(text).ids]
        return text.split()

    def join(self, symbols: Sequence[str], *, continues: bool = False) -> str:
        """The text that symbols spell.

        continues: a text stands before it: the space between both is kept.
        """
        if self.gpt2_units is not None:
            return self._join_gpt2(symbols)
        if self.sentencepiece_model is None:
            return " " * (continues and len(symbols) > 0) + " ".join(symbols)
        text = "".join(symbols).replace(SPACE, " ")
        return decode_byte_pieces(text.rstrip() if continues else text.strip())

    def encode(self, text: str) -> list[int]:
        """The tokens of a line; unknown symbols are <unk>.

        Raises:
            ExportError: as ``split``; the line holds a symbol that stands for no text.
        """
        symbols = self.split(text)
        for symbol in symbols:
            if symbol in RESERVED and symbol in self.numbers:
                raise ExportError(f"text contains {symbol!r}, which stands for no text")
        return [self.numbers.get(symbol, UNK) for symbol in symbols]

    def decode(self, tokens: Iterable[int]) -> str:
        """The text of tokens, without special ones but for <unk>.

        Raises:
            ExportError: a token is none of the dictionary.
        """
        return self.join(
            [self.symbol(each) for each in tokens if each not in range(UNK)]
        )

    def symbol(self, token: int) -> str:
        """The symbol of a token.

        Raises:
            ExportError: it is none of the dictionary.
        """
        if not 0 <= token < len(self.symbols):
            most = len(self.symbols) - 1
            raise ExportError(f"token {token}; allowed: 0 to {most}, the dictionary's")
        return self.symbols[token]

    def _join_gpt2(self, symbols: Sequence[str]) -> str:
        """Numbers as text; what is no number (<unk>, <mask>) as it is."""
        text, numbers = "", []
        for symbol in [*symbols, ""]:
            if symbol.isdecimal():
                numbers.append(int(symbol))
            else:
                text += self._gpt2().decode(numbers, skip_special_tokens=False) + symbol
                numbers = []
        return text

    def _sentencepiece(self) -> Any:
        if self._processor is None:
            try:
                from sentencepiece import SentencePieceProcessor
            except ImportError as error:
                raise ExportError(explanation(error)) from error
            try:
                self._processor = SentencePieceProcessor(
                    model_file=str(self.sentencepiece_model)
                )
            except (RuntimeError, OSError, TypeError) as error:
                raise ExportError(
                    f"{self.sentencepiece_model}: no sentencepiece model ({error})"
                ) from error
        return self._processor

    def _gpt2(self) -> Any:
        if self._processor is None:
            try:
                from tokenizers import Tokenizer, decoders, models, pre_tokenizers
            except ImportError as error:
                raise ExportError(explanation(error)) from error
            assert self.gpt2_units is not None
            encoder, merges = map(str, self.gpt2_units)
            try:
                units = models.BPE.from_file(encoder, merges)
            # tokenizers raises no class of its own
            except Exception as error:
                raise ExportError(
                    f"{encoder}, {merges}: not GPT-2's units ({str(error)[:200]})"
                ) from error
            self._processor = Tokenizer(units)
            self._processor.pre_tokenizer = pre_tokenizers.ByteLevel(
                add_prefix_space=False
            )
            self._processor.decoder = decoders.ByteLevel()
        return self._processor
