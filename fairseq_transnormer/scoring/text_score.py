"""The figures of a text, and their sums."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

# exp of more is no float
MOST_NATS = 700.0


@dataclass(frozen=True)
class TextScore:
    """What a model gives a text.

    Attributes:
        log_prob: sum of the natural logarithms of its tokens' probabilities, in nats;
            of a masked model the pseudo-log-likelihood.
        tokens: that ``log_prob`` sums over. Of a causal model the end of each line is
            one of them, as in fairseq; a masked model reads it, and scores the others.
        lines: of the text.
        words: separated by white space.
        bytes: of the text in UTF-8; where ends of lines are scored, each counts one.
        unknown: tokens that the dictionary lacks, scored as <unk>: with any, the other
            figures are of a text in which they all are one word.
        ends_scored: whether ends of lines are scored: a causal model's are.
        token_log_probs: (symbol of the dictionary, nats) of each token, where asked
            for.
    """

    log_prob: float = 0.0
    tokens: int = 0
    lines: int = 0
    words: int = 0
    bytes: int = 0
    unknown: int = 0
    ends_scored: bool = True
    token_log_probs: list[tuple[str, float]] | None = None

    def __add__(self, other: TextScore) -> TextScore:
        """The figures of both texts together, without their single tokens."""
        if self.ends_scored != other.ends_scored:
            raise ValueError("scores of a causal and of a masked model have no sum")
        sums = {
            each.name: getattr(self, each.name) + getattr(other, each.name)
            for each in fields(self)
            if each.name not in ("ends_scored", "token_log_probs")
        }
        return TextScore(**sums, ends_scored=self.ends_scored)

    @property
    def known(self) -> int:
        """Tokens that are in the dictionary, without the ends of lines."""
        return self.tokens - self.lines * self.ends_scored - self.unknown

    @property
    def perplexity(self) -> float | None:
        """exp of the mean nats a token; None without tokens."""
        return self._exp_of_mean(self.tokens)

    @property
    def word_perplexity(self) -> float | None:
        """exp of the mean nats a word. Where ends of lines are scored, each counts as a
        word, as in the perplexities that are published of WikiText-103."""
        return self._exp_of_mean(self.words + self.lines * self.ends_scored)

    @property
    def bits_per_byte(self) -> float | None:
        """Bits that the model needs for a byte of the text; None without bytes."""
        return -self.log_prob / math.log(2) / self.bytes if self.bytes else None

    def as_dict(self) -> dict[str, object]:
        """All figures by name, for JSON."""
        name = "log_prob" if self.ends_scored else "pseudo_log_likelihood"
        found = {
            name: self.log_prob,
            "tokens": self.tokens,
            "lines": self.lines,
            "words": self.words,
            "bytes": self.bytes,
            "unknown": self.unknown,
            "perplexity": self.perplexity,
            "word_perplexity": self.word_perplexity,
            "bits_per_byte": self.bits_per_byte,
        }
        if self.token_log_probs is not None:
            found["token_log_probs"] = self.token_log_probs
        return found

    def _exp_of_mean(self, count: int) -> float | None:
        if not count:
            return None
        mean = -self.log_prob / count
        return math.exp(mean) if mean < MOST_NATS else math.inf
