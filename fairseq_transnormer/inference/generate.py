"""Prompts continued by a trained causal model; transformers' ``generate`` decodes.

generator = TextGenerator.from_checkpoint("checkpoints/checkpoint_best.pt")
for found in generator.generate(["The river", "In 1902"], top_p=0.9, seed=1):
    print(found.text)
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, cast, overload

import torch
from torch import Tensor
from transformers import (
    LogitNormalization,
    LogitsProcessor,
    LogitsProcessorList,
    StoppingCriteria,
    StoppingCriteriaList,
    TemperatureLogitsWarper,
    TextIteratorStreamer,
    TopKLogitsWarper,
    TopPLogitsWarper,
)
from transformers.generation.streamers import BaseStreamer

from ..checkpoints.load import TrainedModel, load
from ..checkpoints.manifest import CAUSAL
from ..checkpoints.safe_loading import CheckpointError
from ..checkpoints.vocabulary import Vocabulary
from ..devices import usable_device
from ..hf import TransNormerCache, TransNormerForCausalLM

# logits that are in memory at once while tokens are scored: 128 MiB
LOGITS_AT_ONCE = 1 << 25


@dataclass(frozen=True)
class GenerationSettings:
    """How texts are generated.

    Attributes:
        max_new_tokens: longest continuation of a line, its end not counted.
        min_new_tokens: shortest one.
        beam: hypotheses of a beam search; with sampling, texts that are drawn. The one
            with the best score is returned.
        sampling: draw tokens; ``top_k`` and ``top_p`` imply it.
        temperature: divides the logits.
        top_k: draw from the k likeliest tokens.
        top_p: draw from the likeliest tokens that together have this probability.
        length_penalty: a hypothesis is judged by the sum of its log-probabilities over
            (number of tokens) ** length_penalty.
        seed: prompt i (from 0) draws from a stream of its own, seeded seed + i: its
            text does not depend on the others. None: torch's global stream.
        lines: lines to generate. The model ends a line, with the token that ends each
            line of its training text; the next one continues from the state.
        batch_size: most prompts, of equal length, that run together.

    Raises:
        ValueError: a value would be passed over, or have no meaning.
    """

    max_new_tokens: int = 128
    min_new_tokens: int = 0
    beam: int = 1
    sampling: bool = False
    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    length_penalty: float = 1.0
    seed: int | None = None
    lines: int = 1
    batch_size: int = 16

    def __post_init__(self) -> None:
        for name in ("max_new_tokens", "beam", "lines", "batch_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)}; allowed: 1 or more")
        if not 0 <= self.min_new_tokens <= self.max_new_tokens:
            raise ValueError(
                f"min_new_tokens={self.min_new_tokens}; allowed: 0 to "
                f"max_new_tokens={self.max_new_tokens}"
            )
        if not 1e-8 <= self.temperature <= 1e8:
            raise ValueError(f"temperature={self.temperature}; allowed: 1e-8 to 1e8")
        if self.top_k is not None and self.top_p is not None:
            raise ValueError(
                f"top_k={self.top_k} and top_p={self.top_p}; allowed: one of them"
            )
        if self.seed is not None and not self.samples:
            raise ValueError(
                f"seed={self.seed}; allowed with sampling, top_k or top_p only: "
                "without them nothing is drawn"
            )

    @property
    def samples(self) -> bool:
        """Whether tokens are drawn."""
        return self.sampling or self.top_k is not None or self.top_p is not None

    @property
    def processors(self) -> LogitsProcessorList:
        """What transformers makes of the logits before a token is chosen."""
        found = LogitsProcessorList()
        if self.temperature != 1:
            # a beam search adds them up: log-probabilities again
            found += [TemperatureLogitsWarper(self.temperature), LogitNormalization()]
        if self.top_k is not None:
            found.append(TopKLogitsWarper(self.top_k))
        if self.top_p is not None:
            found.append(TopPLogitsWarper(self.top_p))
        return found


@dataclass(frozen=True)
class GeneratedText:
    """A prompt and what follows it.

    Attributes:
        text: both, as the dictionary spells them; lines are separated by "\\n".
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
    """A text in the making: ``unread`` tokens stand after what ``cache`` has read."""

    number: int
    unread: list[int]
    random: torch.Generator | None
    cache: TransNormerCache | None = None
    lines: list[list[int]] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)


class TextGenerator:
    """Continues prompts with a causal model of this package.

    A prompt is read in one parallel pass; then the model decodes with its states, which
    have one size in a model of linear time, however much it has read or written.

    Args:
        trained: on a CPU it is laid out for decoding, and can compute nothing else.

    Raises:
        CheckpointError: it is no causal model, or has no dictionary.
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

    # a string is a sequence of strings, too; what one is given decides
    @overload
    def generate(self, prompts: str, **settings: Any) -> GeneratedText: ...

    @overload
    def generate(
        self, prompts: Sequence[str], **settings: Any
    ) -> list[GeneratedText]: ...

    def generate(
        self, prompts: str | Sequence[str], **settings: Any
    ) -> GeneratedText | list[GeneratedText]:
        """Continue prompts; those of equal length run together.

        Args:
            prompts: any number of them; of one string, the result is one text. White
                space, newlines included, separates words. The empty prompt begins a
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
            in_order = sorted(passages, key=lambda each: len(each.unread))
            for _, equal in groupby(in_order, key=lambda each: len(each.unread)):
                group = list(equal)
                for i in range(0, len(group), chosen.batch_size):
                    self._add_line(group[i : i + chosen.batch_size], chosen)
        found = [self._result(each, chosen) for each in passages]
        return found[0] if isinstance(prompts, str) else found

    def stream(self, prompt: str, number: int = 0, **settings: Any) -> Iterator[str]:
        """The text of ``generate(prompt, **settings)`` in pieces, as they come.

        The first piece is of the prompt. ``close()`` of the iterator ends the
        generation.

        Args:
            prompt: as in ``generate``.
            number: of the prompt among several: it draws as if all ran together.
            settings: see ``GenerationSettings``.

        Raises:
            ValueError: as in ``generate``, or ``beam`` is not 1: which text is the best
                is known at its end only.
        """
        chosen = GenerationSettings(**settings)
        if chosen.beam != 1:
            raise ValueError(f"beam={chosen.beam}; allowed in a stream: 1")
        passage = self._passage(number, prompt, chosen)
        return self._pieces(passage, chosen)

    def _pieces(self, passage: _Passage, settings: GenerationSettings) -> Iterator[str]:
        for number in range(settings.lines):
            if number:
                yield "\n"
            # of a tokenizer it needs ``decode`` alone
            streamer = TextIteratorStreamer(cast(Any, _Decoder(self.words)))
            stop, failed = _Stop(), list[BaseException]()

            work = partial(self._stream_line, passage, settings, streamer, stop, failed)
            worker = threading.Thread(target=work, name="generation", daemon=True)
            worker.start()
            try:
                yield from filter(None, streamer)
            finally:
                stop.wanted = True
                worker.join()
            if failed:
                raise failed[0]

    def _stream_line(
        self,
        passage: _Passage,
        settings: GenerationSettings,
        streamer: BaseStreamer,
        stop: StoppingCriteria,
        failed: list[BaseException],
    ) -> None:
        try:
            self._add_line([passage], settings, streamer, stop)
        except BaseException as error:
            failed.append(error)
            streamer.end()

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
        return _Passage(number, [self.trained.manifest.start_token, *tokens], random)

    @torch.no_grad()
    def _add_line(
        self,
        passages: list[_Passage],
        settings: GenerationSettings,
        streamer: BaseStreamer | None = None,
        stop: StoppingCriteria | None = None,
    ) -> None:
        """Add a line to passages that have as many tokens to read."""
        prompt = self._tensor([each.unread for each in passages])
        cache, scores = None, prompt.new_zeros(len(prompt), 0).float()
        caches = [each.cache for each in passages if each.cache is not None]
        if caches:
            cache = TransNormerCache.of_rows(caches)
        if prompt.shape[1] > 1:
            cache, scores = self._read(prompt, cache, settings.temperature)
        found = self._decoded(prompt, cache, passages, settings, streamer, stop)
        copies = settings.beam
        # what was chosen is read again in one pass, which also tells the states after
        # each text, whichever hypothesis that was
        new = torch.cat([prompt[:, -1:].repeat_interleave(copies, 0), found], 1)
        if cache is not None:
            cache.batch_repeat_interleave(copies)
        cache, new_scores = self._read(new, cache, settings.temperature)
        for i, passage in enumerate(passages):
            own = range(i * copies, (i + 1) * copies)
            before = scores[i].tolist()
            texts = [self._until_end(found[row].tolist()) for row in own]
            values = [
                [*before, *new_scores[row, : len(text)].tolist()]
                for row, text in zip(own, texts, strict=True)
            ]
            ranks = [sum(v) / len(v) ** settings.length_penalty for v in values]
            best = ranks.index(max(ranks))
            passage.lines.append([*passage.unread[1:], *texts[best]])
            passage.scores += values[best]
            passage.cache = cache.row(own[best])
            passage.unread = texts[best][-1:]

    def _decoded(
        self,
        prompt: Tensor,
        cache: TransNormerCache | None,
        passages: list[_Passage],
        settings: GenerationSettings,
        streamer: BaseStreamer | None,
        stop: StoppingCriteria | None,
    ) -> Tensor:
        """int64 (B * beam, M): what follows (B, N), whose last token is unread."""
        beams, processors, length = settings.beam, settings.processors, prompt.shape[1]
        if settings.samples:
            beams = 1
            prompt = prompt.repeat_interleave(settings.beam, 0)
            processors.append(_GumbelNoise([each.random for each in passages]))
        if cache is not None:
            cache = cache.copy(length - 1)
            cache.batch_repeat_interleave(settings.beam)
        found = self.model.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            past_key_values=cache,
            do_sample=False,
            num_beams=beams,
            num_return_sequences=beams,
            early_stopping=beams > 1,
            length_penalty=settings.length_penalty,
            # the end of a line is one more, and the only choice where it is too long
            max_new_tokens=settings.max_new_tokens + 1,
            forced_eos_token_id=self.end,
            # fairseq, too, has no text without a token
            min_new_tokens=max(settings.min_new_tokens, int(length == 1)),
            logits_processor=processors,
            streamer=streamer,
            stopping_criteria=StoppingCriteriaList([stop] if stop else []),
        )
        return found[:, length:]

    def _read(
        self, tokens: Tensor, cache: TransNormerCache | None, temperature: float
    ) -> tuple[TransNormerCache, Tensor]:
        """Read all tokens (B, N) but the last of each row.

        Returns:
            the cache after them, and (B, N - 1) log-probabilities of all but the first.
        """
        # of a row that has ended the rest is pads, and its last token stays unread
        pads = tokens[:, 1:].eq(self.pad)
        inputs = tokens[:, :-1].masked_fill(pads, self.pad)
        plain = self.model.model
        if inputs.shape[1] == 1:
            # a single column after states would be taken for tokens, pads and all
            inputs = torch.nn.functional.pad(inputs, (0, 1), value=self.pad)
        states = None if cache is None else cache.copy().states
        x, states = plain.features(inputs, states, return_states=True)
        x = x[:, : tokens.shape[1] - 1].flatten(0, 1)
        targets = tokens[:, 1:].flatten()
        size = max(1, LOGITS_AT_ONCE // self.trained.manifest.vocab_size)
        scores = torch.cat(
            [
                (plain.output(some).float() / temperature)
                .log_softmax(-1)
                .gather(1, wanted[:, None])
                for some, wanted in zip(x.split(size), targets.split(size), strict=True)
            ]
        )
        after = TransNormerCache(len(states))
        after.put(states, tokens.shape[1] - 1)
        return after, scores.view(len(tokens), -1)

    def _until_end(self, tokens: list[int]) -> list[int]:
        return tokens[: tokens.index(self.end) + 1] if self.end in tokens else tokens

    def _tensor(self, tokens: list[list[int]]) -> Tensor:
        return torch.tensor(tokens, device=self.trained.device)

    def _result(self, passage: _Passage, settings: GenerationSettings) -> GeneratedText:
        tokens = sum(passage.lines, [])
        text = "\n".join(map(self.words.decode, passage.lines))
        score = sum(passage.scores) / len(tokens) ** settings.length_penalty
        return GeneratedText(text, tokens, passage.scores, score)


class _GumbelNoise(LogitsProcessor):
    """Noise with which the largest log-probability is a token that was drawn.

    randoms: the stream of each prompt, of so many rows in turn; None: torch's own.
    """

    def __init__(self, randoms: list[torch.Generator | None]):
        self.randoms = randoms

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        parts = scores.split(len(scores) // len(self.randoms))
        drawn = [
            torch.empty_like(part).exponential_(generator=random)
            for part, random in zip(parts, self.randoms, strict=True)
        ]
        return scores - torch.cat(drawn).clamp_min(1e-38).log()


class _Stop(StoppingCriteria):
    """Ends a generation whose text nobody wants any more."""

    wanted = False

    def __call__(self, input_ids: Tensor, scores: Any, **kwargs: Any) -> Tensor:
        return torch.full(input_ids.shape[:1], self.wanted, device=input_ids.device)


@dataclass
class _Decoder:
    """What transformers' streamer needs of a tokenizer."""

    words: Vocabulary

    def decode(self, tokens: list[int], **options: Any) -> str:
        return self.words.decode(tokens)
