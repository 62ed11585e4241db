"""fairseq's dict.txt and subword units without fairseq."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..data.fingerprints import file_sha256
from ..data.subword_files import (
    DICTIONARY,
    MASK,
    RESERVED,
    SPACE,
    SPECIAL,
    UNK,
    decode_byte_pieces,
    missing_units,
    named_units,
    read_dictionary,
)
from ..data.texts import check_text, joined_lines
from .safe_loading import CheckpointError, error_line


@dataclass
class Vocabulary:
    """Symbols and their numbers.

    Attributes:
        symbols: of tokens 0, 1, ...
        units: a sentencepiece model, or GPT-2's encoder.json and vocab.bpe, whose
            numbers are the symbols. Empty: the symbols are words.
        missing_units: names of subword files that are needed but missing, or None.
    """

    symbols: list[str]
    units: tuple[Path, ...] = ()

    def __post_init__(self) -> None:
        # special symbols keep their numbers, even if other entries have their names
        ordered = [*enumerate(self.symbols), *enumerate(SPECIAL)]
        self.numbers = {symbol: i for i, symbol in ordered}
        self.missing_units = None if self.units else missing_units(self.symbols)
        self._processor: Any = None

    @classmethod
    def read(
        cls,
        dictionary: Path,
        units: Sequence[Path] = (),
        rows: int | None = None,
        has_mask: bool = False,
    ) -> Vocabulary:
        """Read dict.txt, after fairseq's special symbols.

        Args:
            dictionary: dict.txt.
            units: see the class; the result of ``find_subword_files``.
            rows: of the model's embedding.
            has_mask: the model is masked: fairseq's masked_lm and sentence_prediction
                append ``<mask>`` to a dictionary that lacks it.

        Raises:
            CheckpointError: see ``read_dictionary``; it has another number of entries.
        """
        try:
            symbols = [*SPECIAL, *read_dictionary(dictionary)]
        except (OSError, ValueError) as error:
            raise CheckpointError(str(error)) from error
        if has_mask and rows == len(symbols) + 1 and MASK not in symbols:
            symbols.append(MASK)
        if rows not in (None, len(symbols)):
            raise CheckpointError(
                f"{dictionary}: {len(symbols)} entries with the special ones; allowed "
                f"for this model: {rows}, the {DICTIONARY} of its training (--data)"
            )
        return cls(symbols, tuple(units))

    def units_sha256(self) -> dict[str, str]:
        """SHA-256 of each subword file, by name."""
        files = named_units(self.units)
        return {name: file_sha256(file) for name, file in files.items()}

    @property
    def has_gpt2_units(self) -> bool:
        """Whether the symbols are numbers of GPT-2's subword units."""
        return len(self.units) > 1

    def split(self, text: str, name: str = "text") -> list[str]:
        """The symbols of a line, including those that the dictionary lacks.

        name: of the text, for messages.

        Raises:
            ValueError: the text is not a str, or the subword files are missing or
                cannot be read.
        """
        check_text(text, name)
        if self.missing_units is not None:
            raise CheckpointError(
                f"the dictionary has subword units, and there is no "
                f"{self.missing_units} to divide a text into them"
            )
        text = joined_lines(text)
        if self.has_gpt2_units:
            return [str(unit) for unit in self._gpt2().encode(text).ids]
        if self.units:
            # fairseq joins the subwords with spaces and splits them again
            return " ".join(self._sentencepiece().encode(text, out_type=str)).split()
        return text.split()

    def join(self, symbols: Sequence[str], *, continues: bool = False) -> str:
        """The text of symbols.

        continues: the text follows another one: keep the space between both.
        """
        if self.has_gpt2_units:
            return self._join_gpt2(symbols)
        if not self.units:
            return " " * (continues and len(symbols) > 0) + " ".join(symbols)
        text = "".join(symbols).replace(SPACE, " ")
        return decode_byte_pieces(text.rstrip() if continues else text.strip())

    def encode(self, text: str, name: str = "text") -> list[int]:
        """The tokens of a line; unknown symbols are <unk>.

        Raises:
            ValueError: as ``split``; the line has a special symbol.
        """
        symbols = self.split(text, name)
        for symbol in symbols:
            if symbol in RESERVED and symbol in self.numbers:
                raise ValueError(
                    f"{name} contains {symbol!r}, which stands for no text"
                )
        return [self.numbers.get(symbol, UNK) for symbol in symbols]

    def unknown(self, text: str, name: str = "text") -> list[str]:
        """The symbols of a line that the dictionary lacks; raises as ``split``."""
        return [each for each in self.split(text, name) if each not in self.numbers]

    def decode(self, tokens: Iterable[int], *, continues: bool = False) -> str:
        """The text of tokens, without special ones except <unk>; see ``join``.

        Raises:
            ValueError: a token is not in the dictionary.
        """
        return self.join(
            [self.symbol(each) for each in tokens if each not in range(UNK)],
            continues=continues,
        )

    def symbol(self, token: int) -> str:
        """The symbol of a token.

        Raises:
            ValueError: it is not in the dictionary.
        """
        if not 0 <= token < len(self.symbols):
            most = len(self.symbols) - 1
            raise ValueError(f"token {token}; allowed: 0 to {most}, the dictionary's")
        return self.symbols[token]

    def _join_gpt2(self, symbols: Sequence[str]) -> str:
        """Numbers as text; other symbols (<unk>, <mask>) unchanged."""
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
            from sentencepiece import SentencePieceProcessor

            (model,) = self.units
            try:
                self._processor = SentencePieceProcessor(model_file=str(model))
            except (RuntimeError, OSError, TypeError) as error:
                raise CheckpointError(
                    f"{model}: not a sentencepiece model ({error_line(error)})"
                ) from error
        return self._processor

    def _gpt2(self) -> Any:
        if self._processor is None:
            from tokenizers import Tokenizer, decoders, models, pre_tokenizers

            encoder, merges = map(str, self.units)
            try:
                units = models.BPE.from_file(encoder, merges)
            # tokenizers has no exception class of its own
            except Exception as error:
                raise CheckpointError(
                    f"{encoder}, {merges}: not GPT-2's units ({error_line(error)})"
                ) from error
            self._processor = Tokenizer(units)
            self._processor.pre_tokenizer = pre_tokenizers.ByteLevel(
                add_prefix_space=False
            )
            self._processor.decoder = decoders.ByteLevel()
        return self._processor
