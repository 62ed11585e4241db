"""Log-probability, perplexity and bits per byte of texts, by a trained model.

    scorer = TextScorer.from_checkpoint("checkpoints/checkpoint_best.pt")
    for found in scorer.score(["The river is long.", "Long the is river."]):
        print(found.log_prob, found.perplexity, found.bits_per_byte)

On the command line: ``python -m fairseq_transnormer score --help``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from io import StringIO
from itertools import chain, count, islice
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from ..checkpoints.load import TrainedModel, load
from ..checkpoints.manifest import BIDIRECTIONAL, CLASSIFIER
from ..checkpoints.safe_loading import CheckpointError
from ..data.texts import read_lines
from ..devices import usable_device

# a text: a string, or its lines, such as an open file
Text = str | Iterable[str]
LONGEST_WINDOW = 10**6
# tokens that run together, and batches that are sorted by length together
BATCH_TOKENS, SORTED_TOGETHER = 8192, 32
# exp of more is not a float
MOST_NATS = 700.0
SUMS = ("log_prob", "tokens", "lines", "words", "bytes", "unknown")
RATIOS = ("perplexity", "word_perplexity", "bits_per_byte")


@dataclass(frozen=True)
class Context:
    """The context that a token is predicted from.

    Attributes:
        window: tokens per window, fairseq-eval-lm's ``--tokens-per-sample``; None: the
            whole earlier text, by a carried state.
        overlap: tokens of a window that earlier windows have scored and that are read
            again; fairseq-eval-lm's ``--context-window``.

    Raises:
        ValueError: a value is not allowed; the message names the field.
    """

    window: int | None = None
    overlap: int = 0

    def __post_init__(self) -> None:
        if self.window is None and self.overlap:
            raise ValueError(
                f"overlap={self.overlap} without a window; allowed: 0, or --window N"
            )
        window = 2 if self.window is None else self.window
        # a window of a masked model begins with <s>, and scores at least one token
        limits = {"window": (window, 2, LONGEST_WINDOW)}
        limits["overlap"] = (self.overlap, 0, window - 2)
        for name, (value, low, high) in limits.items():
            if type(value) is not int or not low <= value <= high:
                raise ValueError(f"{name}={value!r}; allowed: {low} to {high}")

    def __str__(self) -> str:
        if self.window is None:
            return "all tokens before, by a carried state"
        again = f", {self.overlap} of them read again" if self.overlap else ""
        return f"windows of {self.window} tokens{again}"


def check_overflow(path: Path, outputs: Tensor) -> None:
    """Raise CheckpointError if outputs of a model are NaN or infinite."""
    if not outputs.isfinite().all():
        raise CheckpointError(
            f"{path}: outputs are NaN or infinite, since its layers overflow"
        )


@dataclass
class TextScore:
    """The score of a text by a model.

    Attributes:
        log_prob: sum of the natural logarithms of its tokens' probabilities, in nats;
            of a masked model the pseudo-log-likelihood.
        tokens: number of terms in ``log_prob``. A causal model also scores the end of
            each line, as in fairseq; a masked model only reads it.
        lines: of the text.
        words: separated by white space.
        bytes: of the text in UTF-8; a scored end of a line counts as one.
        unknown: tokens that the dictionary lacks, scored as <unk>. If there are any,
            the other figures treat all of them as one word.
        ends_scored: whether ends of lines are scored; True for causal models.
        token_log_probs: (symbol of the dictionary, nats) of each token, on request.
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
        sums = {name: getattr(self, name) + getattr(other, name) for name in SUMS}
        return TextScore(**sums, ends_scored=self.ends_scored)

    @property
    def known(self) -> int:
        """Tokens that are in the dictionary, without the ends of lines."""
        return self.tokens - self.lines * self.ends_scored - self.unknown

    @property
    def perplexity(self) -> float | None:
        """exp of the mean nats per token; None without tokens."""
        return self._exp_of_mean(self.tokens)

    @property
    def word_perplexity(self) -> float | None:
        """exp of the mean nats per word.

        A scored end of a line counts as a word, as in published perplexities of
        WikiText-103.
        """
        return self._exp_of_mean(self.words + self.lines * self.ends_scored)

    @property
    def bits_per_byte(self) -> float | None:
        """Bits that the model needs per byte of the text; None without bytes."""
        return -self.log_prob / math.log(2) / self.bytes if self.bytes else None

    def as_dict(self) -> dict[str, object]:
        """All figures by name, for JSON."""
        name = "log_prob" if self.ends_scored else "pseudo_log_likelihood"
        found: dict[str, object] = {name: self.log_prob}
        found |= {each: getattr(self, each) for each in (*SUMS[1:], *RATIOS)}
        if self.token_log_probs is not None:
            found["token_log_probs"] = self.token_log_probs
        return found

    def _exp_of_mean(self, count: int) -> float | None:
        if not count:
            return None
        mean = -self.log_prob / count
        return math.exp(mean) if mean < MOST_NATS else math.inf


class Row(NamedTuple):
    """Tokens that a model reads, and those that it predicts from place ``first``.

    Log-probabilities are filled in when they are known.
    """

    score: TextScore
    read: list[int]
    first: int
    targets: list[int]
    found: list[float]


class TextScorer:
    """Scores texts: log-probabilities (causal) or pseudo-log-likelihoods (masked).

    Each line of a text ends in the token </s>, as in fairseq's data. A blank line is
    only this token. The first token of a text follows </s>.

    Args:
        trained: a causal or a masked language model.
        context: of predictions; by default windows of the length of the training's
            sequences.
        batch_tokens: approximate number that run together; it changes scores only by
            rounding.

    Raises:
        ValueError: the model cannot score texts, or not with this context.
    """

    def __init__(
        self,
        trained: TrainedModel,
        context: Context | None = None,
        batch_tokens: int = BATCH_TOKENS,
    ):
        if type(batch_tokens) is not int or batch_tokens < 1:
            raise ValueError(f"batch_tokens={batch_tokens!r}; allowed: 1 or more")
        manifest = trained.manifest
        self.special, self.start = manifest.special_tokens, manifest.start_token
        self.is_masked = manifest.kind == BIDIRECTIONAL
        wrong = ""
        if manifest.kind == CLASSIFIER:
            wrong = "a classifier; allowed: causal and masked language models"
        elif self.is_masked and "mask" not in self.special:
            wrong = "its dictionary has no <mask>; allowed: one that has it"
        elif not self.is_masked and self.start != self.special["eos"]:
            wrong = "trained with add_bos_token=True; allowed: without it"
        if wrong:
            raise CheckpointError(f"{trained.path}: {wrong}")
        self.trained, self.words = trained, trained.words
        self.batch_tokens = batch_tokens
        # either has features and output_loss
        self.model = cast(Any, trained.model)
        stack = self.model.stack
        longest = getattr(manifest.config, "max_positions", LONGEST_WINDOW)
        longest = min(longest, stack.longest_input or LONGEST_WINDOW)
        if context is None and manifest.sequence_length is None:
            raise CheckpointError(
                f"{trained.path}: it has no tokens_per_sample, the training's length "
                "of sequences; allowed: a window of N tokens (--window N)"
            )
        self.context = context or Context(min(longest, manifest.sequence_length or 0))
        sizes = [getattr(each, "constant_state", True) for each in stack.modules()]
        carries = all(sizes) and stack.longest_input is None and not self.is_masked
        window = self.context.window
        if window is None and not carries:
            raise ValueError(
                f"window=None: {'a masked' if self.is_masked else 'this'} model has no "
                f"state of constant size to carry; allowed: 2 to {longest}"
            )
        if window is not None and window > longest:
            raise ValueError(
                f"window={window}; allowed: 2 to {longest}, the model's longest input"
            )

    @classmethod
    def from_checkpoint(
        cls,
        path: str | Path,
        data: str | Path | None = None,
        device: str | torch.device | None = None,
        sentencepiece_model: str | Path | None = None,
        *,
        context: Context | None = None,
        batch_tokens: int = BATCH_TOKENS,
    ) -> TextScorer:
        """The scorer of a checkpoint, or of the folder of its export.

        Args:
            path, data, sentencepiece_model: see ``checkpoints.load``.
            device: where to run; by default "cuda" if there is one, else "cpu".
            context, batch_tokens: see the class.

        Raises:
            ValueError: see ``checkpoints.load`` and the class; no such device.
        """
        trained = load(path, data, sentencepiece_model, usable_device(device))
        return cls(trained, context, batch_tokens)

    def score(
        self, texts: str | Sequence[str], tokens: bool = False
    ) -> TextScore | list[TextScore]:
        """Score texts; those of similar length run together.

        Args:
            texts: any number of them; a single string gives a single score.
            tokens: whether to return ``token_log_probs``.

        Returns:
            a score for each text, in their order.

        Raises:
            ValueError: a text is not allowed, or no token of any text is known.
        """
        scores = self.score_each([texts] if isinstance(texts, str) else texts, tokens)
        check_known(sum(scores, TextScore(ends_scored=not self.is_masked)))
        return scores[0] if isinstance(texts, str) else scores

    def score_each(
        self,
        texts: Sequence[str],
        tokens: bool = False,
        names: Iterable[str] | None = None,
    ) -> list[TextScore]:
        """``score``, also of texts without a known token.

        names: of the texts, for messages; "text 1" and so on by default.
        """
        # all texts are read first, so that texts of similar length can run together
        read = [(score, [*each]) for score, each in self._begun(texts, tokens, names)]
        self._run(row for score, each in read for row in self._rows(score, each))
        return [score for score, _ in read]

    def stream(
        self,
        texts: Iterable[Text],
        tokens: bool = False,
        names: Iterable[str] | None = None,
    ) -> Iterator[TextScore]:
        """Score one text after the other, each as soon as it has been read.

        The memory depends on the longest line, but not on the length of a text, except
        with ``tokens``.

        Args:
            texts: each a string, or an iterable of lines; read on demand.
            tokens, names: as in ``score_each``; it raises the same errors.
        """
        for score, each in self._begun(texts, tokens, names):
            self._run(self._rows(score, each))
            yield score

    def score_file(self, path: str | Path, tokens: bool = False) -> TextScore:
        """Score a file as one text, in memory that does not depend on its length.

        Raises:
            ValueError: it cannot be read as UTF-8, or no token in it is known.
        """
        (found,) = self.stream([read_lines(path)], tokens, [str(path)])
        check_known(found, str(path))
        return found

    def encode(self, line: str, name: str = "text") -> list[int]:
        """The tokens of a line, and the one that ends it.

        Raises:
            ValueError: it has a special symbol.
        """
        # data preparation strips a line before it divides it into GPT-2's units
        line = line.strip() if self.words.has_gpt2_units else line
        return [*self.words.encode(line, name), self.special["eos"]]

    def _begun(
        self, texts: Iterable[Text], tokens: bool, names: Iterable[str] | None
    ) -> Iterator[tuple[TextScore, Iterator[int]]]:
        """For each text a score of zeros, and its tokens, which update the counts."""
        names = names or (f"text {number}" for number in count(1))
        for text, name in zip(texts, names, strict=False):
            score = TextScore(ends_scored=not self.is_masked)
            score.token_log_probs = [] if tokens else None
            yield score, self._tokens(score, text, name)

    def _tokens(self, score: TextScore, text: Text, name: str) -> Iterator[int]:
        if isinstance(text, str):
            text = StringIO(text, newline=None) if text else [""]
        for line in text:
            line = line.rstrip("\n")
            place = f"{name}, line {score.lines + 1}" if score.lines else name
            tokens = self.encode(line, place)
            score.lines += 1
            score.words += len(line.split())
            score.bytes += len(line.encode()) + score.ends_scored
            score.unknown += tokens.count(self.special["unk"])
            yield from tokens

    def _rows(self, score: TextScore, tokens: Iterable[int]) -> Iterator[Row]:
        """The rows to run for a text.

        Without a window, a text that fits into a batch is one window. A longer text is
        scored here.
        """
        tokens, window, overlap = (
            iter(tokens),
            self.context.window,
            self.context.overlap,
        )
        if window is None:
            begin = list(islice(tokens, self.batch_tokens + 1))
            tokens, window = chain(begin, tokens), len(begin)
            if window > self.batch_tokens:
                self._carry_state(score, tokens)
                return
        # each window of a masked model begins with <s>, of a causal one the text
        seen = [] if self.is_masked else [self.start]
        again = overlap + len(seen)
        while new := list(islice(tokens, window - overlap - self.is_masked)):
            if not self.is_masked:
                yield Row(score, [*seen, *new[:-1]], len(seen) - 1, new, [])
            for i, token in enumerate(new if self.is_masked else ()):
                if token != self.special["eos"]:
                    masked = [*new[:i], self.special["mask"], *new[i + 1 :]]
                    place = 1 + len(seen) + i
                    yield Row(score, [self.start, *seen, *masked], place, [token], [])
            seen = [*seen, *new][-again:] if again else []

    def _run(self, rows: Iterable[Row]) -> None:
        """Add to the scores, several batches at a time."""
        group, tokens = [], 0
        for row in rows:
            group.append(row)
            tokens += len(row.read)
            if tokens >= SORTED_TOGETHER * self.batch_tokens:
                self._run_sorted(group)
                group, tokens = [], 0
        self._run_sorted(group)

    @torch.no_grad()
    def _run_sorted(self, rows: list[Row]) -> None:
        """Run rows of similar length together, the longest first."""
        waiting = sorted(rows, key=lambda row: -len(row.read))
        while waiting:
            width, pad = len(waiting[0].read), self.special["pad"]
            size = max(1, self.batch_tokens // width)
            batch, waiting = waiting[:size], waiting[size:]
            read = [[*row.read, *[pad] * (width - len(row.read))] for row in batch]
            x = self.model.features(self._tensor(read))
            if not self.is_masked:
                x, _ = x
            places = [
                i * width + row.first + j
                for i, row in enumerate(batch)
                for j in range(len(row.targets))
            ]
            targets = [token for row in batch for token in row.targets]
            x = x.flatten(0, 1)[self._tensor(places)]
            log_probs = iter(self._log_probs(x, targets))
            for row in batch:
                row.found.extend(islice(log_probs, len(row.targets)))
        for row in rows:
            self._add(row.score, row.targets, row.found)

    @torch.no_grad()
    def _carry_state(self, score: TextScore, tokens: Iterator[int]) -> None:
        """Score a text of any length in segments."""
        before, states = self.start, None
        while new := list(islice(tokens, self.batch_tokens)):
            inputs = self._tensor([[before, *new[:-1]]])
            x, states = self.model.features(inputs, states, return_states=True)
            self._add(score, new, self._log_probs(x[0], new))
            before = new[-1]

    def _log_probs(self, features: Tensor, targets: list[int]) -> list[float]:
        """Log-probabilities of R targets, given features (R, embed_dim)."""
        _, losses = self.model.output_loss(features, self._tensor(targets))
        check_overflow(self.trained.path, losses)
        return (-losses).tolist()

    def _tensor(self, tokens: list[Any]) -> Tensor:
        return torch.tensor(tokens, device=self.trained.device)

    def _add(self, score: TextScore, tokens: list[int], found: list[float]) -> None:
        score.log_prob += sum(found)
        score.tokens += len(tokens)
        if score.token_log_probs is not None:
            symbols = map(self.words.symbol, tokens)
            score.token_log_probs += zip(symbols, found, strict=True)


def check_known(score: TextScore, name: str = "the text") -> None:
    """Raise ValueError if the dictionary has none of the symbols."""
    if score.unknown and not score.known:
        raise ValueError(
            f"{name}: none of its {score.unknown:,} symbols is in the dictionary; "
            "allowed: text like that of the training, and its subword files (--data, "
            "--sentencepiece-model)"
        )
