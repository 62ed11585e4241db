"""Continue prompts with a trained causal model; transformers' ``generate`` decodes.

    generator = TextGenerator.from_checkpoint("checkpoints/checkpoint_best.pt")
    for found in generator.generate(["The river", "In 1902"], top_p=0.9, seed=1):
        print(found.text)

On the command line: ``python -m fairseq_transnormer generate --help``.
"""

from __future__ import annotations

import math
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any, overload

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import (
    GenerationConfig,
    LogitsProcessor,
    LogitsProcessorList,
    TopKLogitsWarper,
    TopPLogitsWarper,
)
from transformers.generation.streamers import BaseStreamer

from ..checkpoints.load import TrainedModel, load
from ..checkpoints.manifest import CAUSAL
from ..checkpoints.safe_loading import CheckpointError
from ..checkpoints.vocabulary import Vocabulary
from ..data.subword_files import SPACE
from ..devices import usable_device
from ..hf import TransNormerCache, TransNormerForCausalLM
from ..hf.cache import join_rows, split_rows
from .generation_settings import GenerationSettings
from .score import check_overflow

# maximum number of logits in memory while a prompt is scored: 128 MiB
LOGITS_AT_ONCE = 1 << 25
UNFINISHED = "\N{REPLACEMENT CHARACTER}"


@dataclass(frozen=True)
class GeneratedText:
    """A prompt and its continuation.

    Attributes:
        text: both, decoded by the dictionary; lines are separated by "\\n".
        tokens: both, each line with the token that ends it.
        positional_scores: log-probability of each token in nats, at the temperature.
        score: their sum over (number of tokens) ** length_penalty.
    """

    text: str
    tokens: list[int]
    positional_scores: list[float]
    score: float


@dataclass
class _Passage:
    """An unfinished text.

    ``unread`` tokens follow ``states``. The next line begins with ``forced``, which are
    among them.
    """

    unread: list[int]
    forced: list[int]
    random: torch.Generator | None
    states: Any = None
    lines: list[list[int]] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)

    def read_with(self) -> tuple[int, bool]:
        """A key that passages which are read together must share."""
        return len(self.unread), self.states is None


class TextGenerator:
    """Continues prompts with a causal model of this package.

    A prompt is read in one parallel pass; then the model decodes with its states. In a
    model of linear time they have constant size.

    Args:
        trained: on a CPU its weights are rearranged for decoding; use it only for that.

    Raises:
        CheckpointError: it is not a causal model, or has no dictionary.
    """

    def __init__(self, trained: TrainedModel):
        if trained.manifest.kind != CAUSAL:
            raise CheckpointError(
                f"{trained.path}: a model of the kind {trained.manifest.kind!r}; "
                f"allowed: {CAUSAL!r}, a language model that continues texts"
            )
        self.trained, self.words = trained, trained.words
        self.model = TransNormerForCausalLM.of(trained, for_decoding=True)
        special = trained.manifest.special_tokens
        self.pad, self.end = special["pad"], special["eos"]
        # finished rows continue with their end token: after pads a step would no longer
        # have one token per row
        settings = GenerationConfig(eos_token_id=self.end, pad_token_id=self.end)
        self.model.generation_config = settings

    @classmethod
    def from_checkpoint(
        cls,
        path: str | Path,
        data: str | Path | None = None,
        device: str | torch.device | None = None,
        sentencepiece_model: str | Path | None = None,
    ) -> TextGenerator:
        """The generator of a checkpoint, or of the folder of its export.

        Args:
            path, data, sentencepiece_model: see ``checkpoints.load``.
            device: where to run; by default "cuda" if there is one, else "cpu".

        Raises:
            ValueError: see ``checkpoints.load`` and the class; no such device.
        """
        return cls(load(path, data, sentencepiece_model, usable_device(device)))

    # a string is a sequence of strings, too; the overloads separate the cases
    @overload
    def generate(self, prompts: str, **settings: Any) -> GeneratedText: ...

    @overload
    def generate(
        self, prompts: Sequence[str], **settings: Any
    ) -> list[GeneratedText]: ...

    def generate(
        self, prompts: str | Sequence[str], **settings: Any
    ) -> GeneratedText | list[GeneratedText]:
        """Continue prompts of any lengths together.

        Args:
            prompts: any number of them; a single string gives a single text. White
                space, including newlines, separates words. The empty prompt begins a
                line.
            settings: see ``GenerationSettings``.

        Returns:
            a text for each prompt, in their order.

        Raises:
            ValueError: a setting or a prompt is not allowed.
        """
        chosen = GenerationSettings(**settings)
        given = [prompts] if isinstance(prompts, str) else prompts
        passages = [self._passage(i, each, chosen) for i, each in enumerate(given)]
        for _ in range(chosen.lines):
            in_order = sorted(passages, key=_Passage.read_with)
            # an empty prompt has no states to join
            for _, some in groupby(in_order, key=lambda each: len(each.unread) == 1):
                group = list(some)
                for i in range(0, len(group), chosen.batch_size):
                    self._add_line(group[i : i + chosen.batch_size], chosen)
        found = [self._result(each, chosen) for each in passages]
        return found[0] if isinstance(prompts, str) else found

    def stream(self, prompt: str, number: int = 0, **settings: Any) -> Iterator[str]:
        """Yield the text of ``generate(prompt, **settings)`` as it is generated.

        The first string is the prompt. ``close()`` of the iterator ends the generation.

        Args:
            prompt: as in ``generate``.
            number: of the prompt among several: it draws as if all ran together.
            settings: see ``GenerationSettings``.

        Raises:
            ValueError: as in ``generate``, or ``beam`` is not 1: the best text is known
                only at the end.
        """
        chosen = GenerationSettings(**settings)
        if chosen.beam != 1:
            raise ValueError(f"beam={chosen.beam}; allowed in a stream: 1")
        passage = self._passage(number, prompt, chosen)

        def add_lines(emit: Callable[[str], None]) -> None:
            for line in range(chosen.lines):
                emit("\n" * (line > 0))
                # transformers passes the last token before the new ones
                streamer = _TextStreamer(self.words, passage.forced[:-1], emit)
                self._add_line([passage], chosen, streamer)

        return _iterate(add_lines)

    def _passage(
        self, number: int, prompt: str, settings: GenerationSettings
    ) -> _Passage:
        name = f"prompt {number + 1}"
        tokens = self.words.encode(prompt, name)
        longest = self.model.model.stack.longest_input
        # each line begins with the token that ended the one before it
        needed = len(tokens) + settings.lines * (1 + settings.max_new_tokens)
        if longest is not None and needed > longest:
            raise ValueError(
                f"{name} has {len(tokens)} tokens, lines={settings.lines} of "
                f"max_new_tokens={settings.max_new_tokens}: {needed} in all; allowed: "
                f"up to {longest}, the model's longest input"
            )
        random = None
        if settings.seed is not None:
            random = torch.Generator(self.trained.device)
            random.manual_seed(settings.seed + number)
        start = self.trained.manifest.start_token
        return _Passage([start, *tokens], tokens, random)

    @torch.no_grad()
    def _add_line(
        self,
        passages: list[_Passage],
        settings: GenerationSettings,
        streamer: BaseStreamer | None = None,
    ) -> None:
        """Add a line to texts, in the order of ``read_with``."""
        known: list[list[float]] = []
        for _, equal in groupby(passages, key=_Passage.read_with):
            known += self._read_prompts(list(equal), settings.temperature)
        rows = [each for each in passages for _ in range(settings.beam)]
        texts, scores = self._decode(rows, settings, streamer)
        for i, passage in enumerate(passages):
            own = range(i * settings.beam, (i + 1) * settings.beam)
            values = [known[i] + scores[row] for row in own]
            check_overflow(self.trained.path, torch.tensor(sum(values, [])))
            ranks = [sum(v) / len(v) ** settings.length_penalty for v in values]
            best = ranks.index(max(ranks))
            text = texts[own[best]]
            passage.lines.append(passage.forced + text)
            passage.scores += values[best]
            # the chosen tokens are read in one pass if another line follows
            passage.unread, passage.forced = passage.unread[-1:] + text, []

    def _read_prompts(
        self, passages: list[_Passage], temperature: float
    ) -> list[list[float]]:
        """Read all but the last token; returns log-probabilities of forced tokens.

        passages: all with equal ``read_with``.
        """
        if len(passages[0].unread) == 1:
            return [[] for _ in passages]
        tokens = self._tensor([each.unread[:-1] for each in passages])
        before = [each.states for each in passages if each.states is not None]
        states = join_rows(before) if before else None
        x, states = self.model.model.features(tokens, states, return_states=True)
        for passage, own in zip(passages, split_rows(states), strict=True):
            passage.unread, passage.states = passage.unread[-1:], own
        forced = [each.forced for each in passages]
        x = x[:, : len(forced[0])].flatten(0, 1)
        wanted = self._tensor(forced).flatten()
        size = max(1, LOGITS_AT_ONCE // self.trained.manifest.vocab_size)
        parts = [
            F.cross_entropy(
                self.model.model.output(some).float().div_(temperature),
                those,
                reduction="none",
            )
            for some, those in zip(x.split(size), wanted.split(size), strict=True)
        ]
        return torch.cat(parts).neg().view(len(passages), -1).tolist()

    def _decode(
        self,
        rows: list[_Passage],
        settings: GenerationSettings,
        streamer: BaseStreamer | None,
    ) -> tuple[list[list[int]], list[list[float]]]:
        """The continuation of the last token of each row, with log-probabilities.

        rows: each text, once per hypothesis.
        """
        choice = _Choice(rows, settings, self.pad, self.end)
        processors = LogitsProcessorList([choice])
        if settings.top_k is not None:
            processors.append(TopKLogitsWarper(settings.top_k))
        if settings.top_p is not None:
            processors.append(TopPLogitsWarper(settings.top_p))
        if settings.samples:
            randoms = [each.random for each in rows[:: settings.beam]]
            processors.append(_Noise(randoms, self.end))
        # transformers itself makes the rows of a beam search
        last = self._tensor([each.unread[-1:] for each in rows[:: choice.beams]])
        cache = None
        if rows[0].states is not None:
            # for transformers the text begins here
            cache = TransNormerCache.of_rows([each.states for each in rows])
        length_penalty = 1.0  # without beams transformers warns of others
        if choice.beams > 1:
            # for texts that end immediately: in float32, and together with others that
            # have -1e9 until there is a text
            length_penalty = min(max(settings.length_penalty, 0), 4)
        found = self.model.generate(
            last,
            attention_mask=torch.ones_like(last),
            cache=cache,
            num_beams=choice.beams,
            num_return_sequences=choice.beams,
            early_stopping=choice.beams > 1,
            length_penalty=length_penalty,
            # the end of a line adds one
            max_new_tokens=settings.max_new_tokens + 1,
            logits_processor=processors,
            streamer=streamer,
            return_dict_in_generate=True,
        )
        tokens = found.sequences
        texts = [row[: row.index(self.end) + 1] for row in tokens[:, 1:].tolist()]
        places = torch.arange(len(rows))[:, None].expand(tokens.shape)
        if choice.beams > 1:
            places = found.beam_indices
        return texts, choice.scores_of(tokens, texts, places.tolist())

    def _tensor(self, tokens: Sequence[Any]) -> Tensor:
        return torch.tensor(tokens, dtype=torch.int64, device=self.trained.device)

    def _result(self, passage: _Passage, settings: GenerationSettings) -> GeneratedText:
        tokens = sum(passage.lines, [])
        text = "\n".join(map(self.words.decode, passage.lines))
        score = sum(passage.scores) / len(tokens) ** settings.length_penalty
        return GeneratedText(text, tokens, passage.scores, score)


class _Choice(LogitsProcessor):
    """Gives log-probabilities of allowed tokens, and records those of chosen ones.

    Args:
        rows: the texts to continue.
        pad, end: tokens. A pad is never chosen.
    """

    def __init__(
        self, rows: list[_Passage], settings: GenerationSettings, pad: int, end: int
    ):
        self.settings, self.pad, self.end = settings, pad, end
        self.beams = 1 if settings.samples else settings.beam
        # as in fairseq, no line is empty
        self.empty = [i for i, each in enumerate(rows) if not each.forced]
        self.log_probs: Tensor | None = None
        self.chosen: list[tuple[Tensor, Tensor]] = []

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """(rows, V) after one token and M generated ones, (rows, 1 + M)."""
        self._note(input_ids)
        temperature = self.settings.temperature
        if temperature != 1:
            scores = scores / temperature
        # scores of a beam search are log-probabilities already
        if temperature != 1 or self.beams == 1:
            scores = scores.log_softmax(-1)
        written = input_ids.shape[1] - 1
        if written == self.settings.max_new_tokens:
            scores[:, : self.end] = scores[:, self.end + 1 :] = -math.inf
        else:
            scores[:, self.pad] = -math.inf
        if written < self.settings.min_new_tokens:
            scores[:, self.end] = -math.inf
        elif not written:
            scores[self.empty, self.end] = -math.inf
        self.log_probs = scores
        return scores

    def _note(self, input_ids: Tensor) -> None:
        """Record the values of possible choices: the end, and each row's token."""
        if self.log_probs is None:
            return
        tokens = F.pad(input_ids[:, -1].view(-1, self.beams), (1, 0), value=self.end)
        values = self.log_probs.unflatten(0, (-1, self.beams))
        every = tokens[:, None].expand(-1, self.beams, -1)
        self.chosen.append((tokens, values.gather(2, every)))

    def scores_of(
        self, found: Tensor, texts: list[list[int]], places: list[list[int]]
    ) -> list[list[float]]:
        """Log-probabilities of texts.

        Args:
            found: (rows, 1 + M), the result of ``generate``.
            texts: of its rows, each up to its end.
            places: the row in which each token was chosen.
        """
        self._note(found)
        # (prompts, beams + 1) and (prompts, beams, beams + 1) of each step
        steps = [(tokens.tolist(), values.tolist()) for tokens, values in self.chosen]
        scores: list[list[float]] = [[] for _ in texts]
        for number, text in enumerate(texts):
            prompt = number // self.beams
            of_text = zip(text, places[number], steps, strict=False)
            for token, row, (tokens, values) in of_text:
                at = tokens[prompt].index(token)
                scores[number].append(values[prompt][row % self.beams][at])
        return scores


class _Noise(LogitsProcessor):
    """Gives a random token the largest score, drawn as by torch.multinomial.

    Args:
        randoms: the random stream of each prompt, for its rows in turn; None: torch's.
        end: token that fills finished rows.
    """

    def __init__(self, randoms: list[torch.Generator | None], end: int):
        self.randoms, self.end = randoms, end

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """(rows, V), after (rows, 1 + M) tokens."""
        noise = torch.ones_like(scores)
        parts = noise.chunk(len(self.randoms))
        last = input_ids[:, -1].view(len(parts), -1).tolist()
        for part, random, tokens in zip(parts, self.randoms, last, strict=True):
            # a prompt's stream stops when its texts have ended
            if input_ids.shape[1] == 1 or set(tokens) != {self.end}:
                part.exponential_(generator=random)
        return scores - noise.log_()


class _TextStreamer(BaseStreamer):
    """Emits the text of a line as its tokens come.

    Text that the next token may change is held back. It is space that the end of the
    line would strip, or the first bytes of a character.

    Args:
        words: decode tokens.
        tokens: at the beginning of the line.
        emit: receives text.
    """

    def __init__(
        self,
        words: Vocabulary,
        tokens: list[int],
        emit: Callable[[str], None],
    ):
        self.words, self.tokens, self.emit = words, tokens, emit
        # state of the text of ``tokens``; whether they follow others
        self.printed, self.continues = 0, False

    def put(self, value: Tensor) -> None:
        """Tokens of one row."""
        self.tokens += value.flatten().tolist()
        text = self._text()
        whole = text.rstrip().rstrip(UNFINISHED).rstrip()
        self._print(whole)
        # finished text is not decoded again with each token
        is_open = self.words.symbol(self.tokens[-1]).endswith(SPACE)
        if whole and whole == text and not is_open:
            self.tokens, self.printed, self.continues = [], 0, True

    def end(self) -> None:
        """Emit the text that was held back."""
        self._print(self._text())

    def _text(self) -> str:
        return self.words.decode(self.tokens, continues=self.continues)

    def _print(self, text: str) -> None:
        self.emit(text[self.printed :])
        self.printed = max(self.printed, len(text))


class _Abandoned(Exception):
    """The iterator was closed: ends the generation from inside its streamer."""


def _iterate(function: Callable[[Callable[[str], None]], None]) -> Iterator[str]:
    """Yield the strings that ``function`` passes to its argument, if not empty.

    transformers' loop cannot be suspended, so it runs in a thread. The thread ends with
    the iterator, which raises the errors of the thread.
    """
    # None: the end
    texts: queue.SimpleQueue[str | BaseException | None] = queue.SimpleQueue()
    abandoned = threading.Event()

    def emit(text: str) -> None:
        if abandoned.is_set():
            raise _Abandoned
        if text:
            texts.put(text)

    def work() -> None:
        try:
            function(emit)
            texts.put(None)
        except BaseException as error:
            texts.put(error)

    worker = threading.Thread(target=work, name="generation", daemon=True)
    worker.start()
    try:
        while (text := texts.get()) is not None:
            if isinstance(text, BaseException):
                raise text
            yield text
    finally:
        abandoned.set()
        worker.join()
