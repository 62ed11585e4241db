"""fairseq's dict.txt and subword units without fairseq."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..data.subword_files import OVERWRITE, SPECIAL, check_text, decode_byte_pieces
from .errors import ExportError

UNK = SPECIAL.index("<unk>")


@dataclass
class Vocabulary:
    """Symbols and their numbers.

    Attributes:
        symbols: of tokens 0, 1, ...
        sentencepiece_model: makes pieces of text; None: words are symbols.
        has_gpt2_units: symbols are numbers of GPT-2's units, which need fairseq.
    """

    symbols: list[str]
    sentencepiece_model: Path | None = None
    has_gpt2_units: bool = False

    def __post_init__(self) -> None:
        self.numbers = {symbol: i for i, symbol in enumerate(self.symbols)}
        self._processor: Any = None

    @classmethod
    def read(
        cls,
        dictionary: Path,
        sentencepiece_model: Path | None = None,
        has_gpt2_units: bool = False,
    ) -> Vocabulary:
        """Read dict.txt: "SYMBOL COUNT" a line, and what fairseq appends to it.

        Raises:
            ExportError: it is not UTF-8, a line is none of these, or has a symbol that
                stands in an earlier one.
        """
        # as fairseq: str.splitlines would also cut at U+0085 and U+2028 in symbols
        try:
            with dictionary.open(encoding="utf-8") as file:
                lines = [line.rstrip() for line in file]
        except UnicodeDecodeError as error:
            raise ExportError(f"{dictionary}: {error}; allowed: UTF-8") from error
        symbols = list(SPECIAL)
        known = set(symbols)
        for line in lines:
            entry = line.removesuffix(OVERWRITE)
            symbol, _, count = entry.rpartition(" ")
            if not symbol or not count.isdecimal():
                raise ExportError(f"{dictionary}: {line[:80]!r}; allowed: SYMBOL COUNT")
            if symbol in known and entry == line:
                raise ExportError(
                    f"{dictionary}: {symbol[:80]!r} twice; allowed: once, or with "
                    f"{OVERWRITE.strip()} at the end of the line"
                )
            known.add(symbol)
            symbols.append(symbol)
        return cls(symbols, sentencepiece_model, has_gpt2_units)

    def encode(self, text: str) -> list[int]:
        """The tokens of a line; unknown symbols are <unk>.

        Raises:
            ExportError: of a file, or of the text, that cannot be read.
        """
        if self.has_gpt2_units:
            raise ExportError(
                "GPT-2's units are encoded by fairseq or tiktoken only; here: tokens"
            )
        check_text(text, ExportError)
        words = text.split()
        if self.sentencepiece_model is not None:
            words = self._sentencepiece().encode(text, out_type=str)
        return [self.numbers.get(word, UNK) for word in words]

    def decode(self, tokens: Iterable[int]) -> str:
        """The text of tokens, without special ones but for <unk>."""
        hidden = set(range(UNK))
        names = [self.symbols[token] for token in tokens if token not in hidden]
        if self.sentencepiece_model is None:
            return " ".join(names)
        text = "".join(names).replace("\N{LOWER ONE EIGHTH BLOCK}", " ").strip()
        return decode_byte_pieces(text)

    def _sentencepiece(self) -> Any:
        if self._processor is None:
            try:
                from sentencepiece import SentencePieceProcessor
            except ImportError as error:
                raise ExportError(
                    "sentencepiece is not installed: pip install sentencepiece"
                ) from error
            try:
                self._processor = SentencePieceProcessor(
                    model_file=str(self.sentencepiece_model)
                )
            except (RuntimeError, OSError, TypeError) as error:
                raise ExportError(
                    f"{self.sentencepiece_model}: no sentencepiece model ({error})"
                ) from error
        return self._processor
