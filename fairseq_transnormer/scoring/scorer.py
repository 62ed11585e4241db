"""Scoring texts with a checkpoint."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from io import StringIO
from itertools import count
from pathlib import Path

import torch
from fairseq.data.encoders.gpt2_bpe import GPT2BPE
from fairseq.hub_utils import GeneratorHubInterface
from fairseq.tokenizer import tokenize_line

from ..data.subword_files import control_ids
from ..data.texts import check_text, read_lines
from ..devices import usable_device
from .causal import CausalScorer
from .checkpoint import load_for_scoring
from .context import BATCH_TOKENS, LONGEST_WINDOW, Context
from .errors import ScoringError
from .masked import MaskedScorer
from .text_score import TextScore

# a text as it is given: all of it, or its lines, such as an open file
Text = str | Iterable[str]


class TextScorer:
    """Log-probabilities of texts by a causal model, pseudo-log-likelihoods by a masked.

    Each line of a text ends in a token of its own, </s>, as in fairseq's data; a blank
    line is that token alone. The first token of a text follows </s>.

    Args:
        hub: a model with its task and its units.
        scorer: of this model.
        context: what a token is predicted from; by default windows as long as the
            training's sequences.

    Raises:
        ScoringError: the model cannot have this context.
    """

    def __init__(
        self,
        hub: GeneratorHubInterface,
        scorer: CausalScorer | MaskedScorer,
        context: Context | None = None,
    ):
        self.hub, self.scorer = hub, scorer
        self.dictionary = hub.task.source_dictionary
        self.context = context or Context(self.trained_length)
        self._check_context()
        self._strips = isinstance(hub.bpe, GPT2BPE)  # as its data's preparation

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
        """Load a checkpoint of fairseq-train, of a causal or a masked language model.

        Args:
            path: the checkpoint file.
            data: folder with dict.txt; by default that of the training, or else that of
                the checkpoint.
            device: where to run; by default "cuda" if there is one, else "cpu".
            sentencepiece_model: by default the subword files in the folder of the
                dictionary or of the checkpoint; without any, words are the symbols.
            context: see the class.
            batch_tokens: that run together, about; it changes no score but by rounding.

        Raises:
            ScoringError: a file is missing or not what it should be, they do not belong
                together, or there is no such device.
        """
        if type(batch_tokens) is not int or batch_tokens < 1:
            raise ScoringError(f"batch_tokens={batch_tokens!r}; allowed: 1 or more")
        try:
            device = usable_device(device)
        except ValueError as error:
            raise ScoringError(str(error)) from error
        hub, scorer = load_for_scoring(
            path, data, sentencepiece_model, device, batch_tokens
        )
        return cls(hub, scorer, context)

    @property
    def is_masked(self) -> bool:
        """Whether scores are pseudo-log-likelihoods."""
        return isinstance(self.scorer, MaskedScorer)

    def score(
        self, texts: str | Sequence[str], tokens: bool = False
    ) -> TextScore | list[TextScore]:
        """Score texts; those of like length run together.

        Args:
            texts: any number of them; of one string, the result is one score.
            tokens: whether ``token_log_probs`` are wanted.

        Returns:
            a score for each text, in their order.

        Raises:
            ScoringError: a text is not allowed, or nothing in all of them is known.
        """
        if isinstance(texts, str):
            return self.score([texts], tokens)[0]
        scores = self.score_each(texts, tokens)
        check_known(scores)
        return scores

    def score_each(
        self,
        texts: Sequence[str],
        tokens: bool = False,
        names: Iterable[str] | None = None,
    ) -> list[TextScore]:
        """``score`` of texts in which there need be nothing that is known.

        names: of the texts, for messages; "text 1" and so on by default.
        """
        tallies = list(self._tallies(texts, tokens, names))
        # read as a whole, so that texts of like length can run side by side
        encoded = [list(tally.tokens()) for tally in tallies]
        for chosen, context in self._contexts([len(each) for each in encoded]):
            rows = [encoded[i] for i in chosen]
            for number, known, found in self.scorer.log_probs(rows, context):
                tallies[chosen[number]].add(known, found)
        return [tally.score() for tally in tallies]

    def stream(
        self,
        texts: Iterable[Text],
        tokens: bool = False,
        names: Iterable[str] | None = None,
    ) -> Iterator[TextScore]:
        """Score one text after the other, each as soon as it has been read.

        The memory that this takes depends on no text's length, but for ``tokens``, and
        for its longest line.

        Args:
            texts: each a string, or an iterable of lines; taken as they are needed.
            tokens: as in ``score``.
            names: as in ``score_each``.

        Raises:
            ScoringError: a text is not allowed.
        """
        for tally in self._tallies(texts, tokens, names):
            for _, known, found in self.scorer.log_probs(
                [tally.tokens()], self.context
            ):
                tally.add(known, found)
            yield tally.score()

    def score_file(self, path: str | Path, tokens: bool = False) -> TextScore:
        """Score a file as one text, in memory that does not depend on its length.

        Raises:
            ScoringError: it cannot be read as UTF-8, or nothing in it is known.
        """
        lines = read_lines(path, ScoringError)
        (found,) = self.stream([lines], tokens, [str(path)])
        check_known([found], str(path))
        return found

    def encode(self, line: str, name: str = "text") -> list[int]:
        """The tokens of a line, and the one that ends it.

        Raises:
            ScoringError: it holds a symbol that stands for no text.
        """
        check_text(line, ScoringError, name)
        dictionary = self.dictionary
        line = line.strip() if self._strips else line
        symbols = tokenize_line(self.hub.apply_bpe(self.hub.tokenize(line)))
        tokens = [dictionary.index(symbol) for symbol in symbols]
        wrong = set(control_ids(dictionary)).intersection(tokens)
        if wrong:
            raise ScoringError(
                f"{name} contains {dictionary[min(wrong)]!r}, which stands for no text"
            )
        return [*tokens, dictionary.eos()]

    def _tallies(
        self, texts: Iterable[Text], tokens: bool, names: Iterable[str] | None
    ) -> Iterator[_Tally]:
        names = names or (f"text {number}" for number in count(1))
        for text, name in zip(texts, names, strict=False):
            yield _Tally(self, text, name, tokens)

    def _contexts(self, lengths: list[int]) -> Iterator[tuple[list[int], Context]]:
        """Texts by number, and the context that they are scored in together.

        What fits into a batch as a whole is a window of its own, with all before it.
        """
        texts = range(len(lengths))
        if self.context.window is not None:
            yield [*texts], self.context
            return
        most = min(self.scorer.batch_tokens, LONGEST_WINDOW)
        whole = [i for i in texts if lengths[i] <= most]
        if whole:
            yield whole, Context(max(2, *(lengths[i] for i in whole)))
        yield [i for i in texts if lengths[i] > most], self.context

    @property
    def trained_length(self) -> int:
        """Tokens of the training's sequences.

        Raises:
            ScoringError: the checkpoint does not say.
        """
        length = self.hub.cfg.task.get("tokens_per_sample")
        if length is None:
            raise ScoringError(
                "the checkpoint's task has no tokens_per_sample, the training's length "
                "of sequences; allowed: a window of N tokens (--window N)"
            )
        return min(self.scorer.longest, length)

    def _check_context(self) -> None:
        window, scorer = self.context.window, self.scorer
        if window is None and not scorer.carries_state:
            kind = "a masked model" if self.is_masked else "this model"
            raise ScoringError(
                f"window=None: {kind} has no state of one size that could be carried; "
                f"allowed: 2 to {scorer.longest}"
            )
        if window is not None and window > scorer.longest:
            raise ScoringError(
                f"window={window}; allowed: 2 to {scorer.longest}, the model's longest "
                "input"
            )


def check_known(scores: Iterable[TextScore], name: str = "the text") -> None:
    """Refuse texts of which the dictionary has nothing.

    Raises:
        ScoringError: there are symbols, and all of them are unknown.
    """
    unknown, known = 0, 0
    for score in scores:
        unknown, known = unknown + score.unknown, known + score.known
    if unknown and not known:
        raise ScoringError(
            f"{name}: none of its {unknown:,} symbols is in the dictionary; allowed: "
            "text like that of the training, and the units that it was cut into "
            "(--data, --sentencepiece-model)"
        )


class _Tally:
    """What is counted while a text passes."""

    def __init__(self, scorer: TextScorer, text: Text, name: str, keep: bool):
        self.scorer, self.name = scorer, name
        self.lines = StringIO(text, newline=None) if isinstance(text, str) else text
        self.is_empty_text = text == ""
        self.ends_scored = not scorer.is_masked
        self.counts = {"lines": 0, "words": 0, "bytes": 0, "unknown": 0}
        self.log_prob, self.scored = 0.0, 0
        self.kept: list[tuple[str, float]] | None = [] if keep else None

    def tokens(self) -> Iterator[int]:
        """The text's tokens, line by line."""
        unknown = self.scorer.dictionary.unk()
        lines = [""] if self.is_empty_text else self.lines
        for line in lines:
            line = line.rstrip("\n")
            counts = self.counts
            before = counts["lines"]
            place = f"{self.name}, line {before + 1}" if before else self.name
            tokens = self.scorer.encode(line, place)
            counts["lines"] += 1
            counts["words"] += len(line.split())
            counts["bytes"] += len(line.encode()) + self.ends_scored
            counts["unknown"] += tokens.count(unknown)
            yield from tokens

    def add(self, tokens: list[int], log_probs: list[float]) -> None:
        self.log_prob += sum(log_probs)
        self.scored += len(tokens)
        if self.kept is not None:
            symbols = self.scorer.dictionary
            self.kept += zip((symbols[t] for t in tokens), log_probs, strict=True)

    def score(self) -> TextScore:
        return TextScore(
            self.log_prob,
            self.scored,
            **self.counts,
            ends_scored=self.ends_scored,
            token_log_probs=self.kept,
        )
