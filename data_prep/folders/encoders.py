"""Lines of text to the ids of a fairseq dictionary.

An encoder is a callable on a batch of lines that can be sent to another process. It
imports nothing of fairseq, whose import would cost every process seconds. Each line
ends in the id of the end of sentence; an empty line is that id alone.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from fairseq_transnormer.data.subword_files import EOS, GPT2_SIZE, UNK

from .parallel import map_batches, shown

GPT2_PATTERN = (
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
)
# Of OpenAI's originals; tiktoken's source has the same two.
GPT2_SHA256 = {
    "encoder.json": "196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783",
    "vocab.bpe": "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5",
}


def count_words(lines: list[str]) -> Counter[str]:
    """The count of each whitespace-separated word."""
    return Counter(word for line in lines for word in line.split())


def count_all_words(
    lines: Iterable[str], workers: int, total: int | None = None
) -> Counter[str]:
    """The count of each word of any number of lines."""
    words: Counter[str] = Counter()
    lines = shown(lines, "count words", total)
    for counted in map_batches(count_words, lines, workers):
        words.update(counted)
    return words


class Encoder:
    """``indices`` has the ids of the dictionary's symbols."""

    indices: dict[str, int]

    def symbols(self, lines: list[str]) -> Iterable[list[str]]:
        """The symbols of each line."""
        raise NotImplementedError

    def __call__(self, lines: list[str]) -> list[np.ndarray]:
        """Ids of each line, int32."""
        index = self.indices.get
        return [
            np.array([index(x, UNK) for x in line] + [EOS], np.int32)
            for line in self.symbols(lines)
        ]


@dataclass(frozen=True)
class WordEncoder(Encoder):
    """Whitespace-separated words, as fairseq's ``tokenize_line`` splits them."""

    indices: dict[str, int]

    def symbols(self, lines: list[str]) -> Iterable[list[str]]:
        """The words of each line."""
        return map(str.split, lines)


@dataclass(frozen=True)
class Gpt2Encoder(Encoder):
    """GPT-2's byte-pair encoding, equal to fairseq's ``--bpe gpt2`` but faster.

    ``indices``: of GPT-2's ids as symbols, which RoBERTa has in another order. Lines
    are stripped, as in fairseq's recipe for RoBERTa.
    """

    folder: Path
    indices: dict[str, int]

    @cached_property
    def _encoding(self) -> Any:
        import tiktoken
        from tiktoken.load import data_gym_to_mergeable_bpe_ranks

        ranks = data_gym_to_mergeable_bpe_ranks(
            vocab_bpe_file=str(self.folder / "vocab.bpe"),
            encoder_json_file=str(self.folder / "encoder.json"),
            vocab_bpe_hash=GPT2_SHA256["vocab.bpe"],
            encoder_json_hash=GPT2_SHA256["encoder.json"],
        )
        return tiktoken.Encoding(
            "gpt2",
            pat_str=GPT2_PATTERN,
            mergeable_ranks=ranks,
            special_tokens={"<|endoftext|>": GPT2_SIZE - 1},
            explicit_n_vocab=GPT2_SIZE,
        )

    def symbols(self, lines: list[str]) -> Iterable[list[str]]:
        """GPT-2's ids of each line."""
        encode = self._encoding.encode_ordinary
        return ([str(token) for token in encode(line.strip())] for line in lines)


@dataclass(frozen=True)
class SentencepieceEncoder(Encoder):
    """Pieces of a sentencepiece model, taken the way that fairseq takes them.

    fairseq joins pieces with spaces and splits the result into dictionary words
    again (``--bpe sentencepiece``). That is repeated here, not shortened, so that a
    prompt at generation time gets the ids the model was trained on, odd whitespace
    characters included.
    """

    model: Path
    indices: dict[str, int]

    @cached_property
    def _processor(self) -> Any:
        import sentencepiece

        return sentencepiece.SentencePieceProcessor(model_file=str(self.model))

    def symbols(self, lines: list[str]) -> Iterable[list[str]]:
        """The pieces of each line."""
        # some models would spell the end of a line
        texts = [line.rstrip("\n") for line in lines]
        encoded = self._processor.encode(texts, out_type=str)
        return (" ".join(pieces).split() for pieces in encoded)
