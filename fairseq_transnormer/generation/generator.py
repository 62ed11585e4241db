"""Generating texts from a checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, overload

import torch
from fairseq.hub_utils import GeneratorHubInterface
from fairseq.tokenizer import tokenize_line
from torch import Tensor

from ..data.subword_files import control_ids, unknown_symbols
from ..data.texts import check_text, joined_lines
from ..devices import usable_device
from ..modules.cpu_decoding import lay_out_for_decoding
from .checkpoint import load_language_model
from .errors import GenerationError
from .passages import Passage, join_rows, take_row
from .prefill import PrefilledModel
from .sampling import (
    SMALLEST_DRAWN_LOG_PROB,
    RandomStreams,
    SeededSampling,
    skip_the_loaders_draw,
)
from .settings import GenerationSettings, Settings
from .streaming import iterate
from .text import Detokenizer, TextPieces

if TYPE_CHECKING:
    from typing_extensions import Unpack


@dataclass(frozen=True)
class GeneratedText:
    """A prompt and what follows it.

    Attributes:
        text: both, as the dictionary spells them; lines are separated by "\\n".
        tokens: both, each line with the token that ends it.
        positional_scores: log-probability of each token, at the temperature asked for.
        score: their sum over (number of tokens) ** length_penalty, as in fairseq.
    """

    text: str
    tokens: list[int]
    positional_scores: list[float]
    score: float


class TextGenerator:
    """Continues prompts with a language model of this package.

    A prompt is read in one parallel pass; then the model decodes with its states, which
    have one size in a model of linear time, however much it has read or written. The
    search is fairseq's own, so that texts and scores are those of
    ``fairseq-interactive`` and ``from_pretrained(...).sample(...)`` with the same
    settings.

    Args:
        hub: one model with its task, as ``from_pretrained`` returns it.

    Raises:
        GenerationError: the hub holds several models.
    """

    def __init__(self, hub: GeneratorHubInterface):
        if len(hub.models) != 1:
            raise GenerationError(
                f"{len(hub.models)} models; allowed: one, no ensemble"
            )
        self.hub, self.task, self.model = hub, hub.task, hub.models[0]
        self.dictionary = self.task.target_dictionary
        self.detokenizer = Detokenizer(hub)

    @classmethod
    def from_checkpoint(
        cls,
        path: str | Path,
        data: str | Path | None = None,
        device: str | torch.device | None = None,
        sentencepiece_model: str | Path | None = None,
    ) -> TextGenerator:
        """Load a checkpoint of fairseq-train.

        Args:
            path: the checkpoint file.
            data: folder with dict.txt; by default that of the training, or else that of
                the checkpoint.
            device: where to run; by default "cuda" if there is one, else "cpu".
            sentencepiece_model: by default sentencepiece.bpe.model in the folder of the
                dictionary or of the checkpoint; without one, words are the symbols.

        Raises:
            GenerationError: a file is missing or not what it should be, or there is no
                such device.
        """
        try:
            device = usable_device(device)
        except ValueError as error:
            raise GenerationError(str(error)) from error
        hub = load_language_model(path, data, sentencepiece_model).to(device)
        if device.type == "cpu":
            lay_out_for_decoding(hub)
        return cls(hub)

    @property
    def device(self) -> torch.device:
        """Where the model runs."""
        return self.hub.device

    # a string is a sequence of strings, too; what one is given decides
    @overload
    def generate(  # type: ignore[overload-overlap]
        self, prompts: str, **settings: Unpack[Settings]
    ) -> GeneratedText: ...

    @overload
    def generate(
        self, prompts: Sequence[str], **settings: Unpack[Settings]
    ) -> list[GeneratedText]: ...

    def generate(
        self, prompts: str | Sequence[str], **settings: Unpack[Settings]
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
            GenerationError: a setting or a prompt is not allowed.
        """
        if isinstance(prompts, str):
            return self.generate([prompts], **settings)[0]
        chosen = self._settings(settings)
        passages = [self._passage(i, each, chosen) for i, each in enumerate(prompts)]
        streams = self._streams(chosen)
        for _ in range(chosen.lines):
            in_order = sorted(passages, key=Passage.can_run_with)
            for _, equal in groupby(in_order, key=Passage.can_run_with):
                group = list(equal)
                for i in range(0, len(group), chosen.batch_size):
                    batch = group[i : i + chosen.batch_size]
                    self._generate_line(batch, chosen, streams)
        return [self._result(each, chosen) for each in passages]

    def stream(
        self, prompt: str, number: int = 0, **settings: Unpack[Settings]
    ) -> Iterator[str]:
        """The text of ``generate(prompt, **settings)`` in pieces, as they come.

        The first piece is the prompt. ``close()`` of the iterator ends the generation.

        Args:
            prompt: as in ``generate``.
            number: of the prompt among several: it draws as if all ran together.
            settings: see ``GenerationSettings``.

        Raises:
            GenerationError: as in ``generate``, or beam is not 1: beam search knows the
                text when it has finished only.
        """
        chosen = self._settings(settings)
        if chosen.beam != 1:
            raise GenerationError(f"beam={chosen.beam}; allowed in a stream: 1")
        passage = self._passage(number, prompt, chosen)
        streams = self._streams(chosen)

        def generate_line(emit: Callable[[str], None]) -> None:
            pieces = TextPieces(self.detokenizer)
            emit(pieces.add(passage.unread[len(passage.unread) - passage.forced :]))
            self._generate_line(
                [passage],
                chosen,
                streams,
                on_token=lambda tokens: emit(pieces.add(tokens.tolist())),
            )
            emit(pieces.rest())

        def generate_lines(emit: Callable[[str], None]) -> None:
            generate_line(emit)
            for _ in range(1, chosen.lines):
                emit("\n")
                generate_line(emit)

        return iterate(generate_lines)

    def unknown_words(self, prompt: str) -> list[str]:
        """The words, or subword units, of a prompt that the dictionary lacks."""
        check_text(prompt, GenerationError, "prompt")
        return unknown_symbols(self._symbols(prompt), self.dictionary)

    def _symbols(self, prompt: str) -> list[str]:
        line = joined_lines(prompt)
        return tokenize_line(self.hub.apply_bpe(self.hub.tokenize(line)))

    def _settings(self, settings: Settings) -> GenerationSettings:
        chosen = GenerationSettings(**settings)
        if (chosen.top_k or 0) > len(self.dictionary):
            raise GenerationError(
                f"top_k={chosen.top_k}; allowed: up to {len(self.dictionary)}, the "
                "entries of the dictionary"
            )
        return chosen

    def _streams(self, settings: GenerationSettings) -> RandomStreams | None:
        if not settings.samples:
            return None
        if settings.seed is not None:
            return RandomStreams(settings.seed, self.device)
        skip_the_loaders_draw()
        return None

    def _passage(
        self, number: int, prompt: str, settings: GenerationSettings
    ) -> Passage:
        check_text(prompt, GenerationError, f"prompt {number + 1}")
        dictionary = self.dictionary
        tokens = [dictionary.index(symbol) for symbol in self._symbols(prompt)]
        for special in control_ids(dictionary):
            if special in tokens:
                raise GenerationError(
                    f"prompt {number + 1} contains {dictionary[special]!r}, which "
                    "stands for no text"
                )
        longest = self.model.max_decoder_positions() - 1
        if len(tokens) + settings.max_new_tokens > longest:
            raise GenerationError(
                f"prompt {number + 1} has {len(tokens)} tokens and "
                f"max_new_tokens={settings.max_new_tokens}; allowed: together up to "
                f"{longest} (the model's longest input)"
            )
        self._check_lines(number, len(tokens), settings)
        add_bos = getattr(self.task.args, "add_bos_token", False)
        start = dictionary.bos() if add_bos else dictionary.eos()
        return Passage(number, [start, *tokens], len(tokens))

    def _check_lines(
        self, number: int, prompt_length: int, settings: GenerationSettings
    ) -> None:
        """Refuse more lines than the layers can read after one another.

        Each line begins with the token that ended the one before it, or with the first
        of all, and the model reads it up to its last token but the end.
        """
        stack = getattr(self.model.decoder.model, "stack", None)
        if stack is None or stack.longest_input is None:
            return
        line = 1 + settings.max_new_tokens
        allowed = (stack.longest_input - prompt_length) // line
        if settings.lines > allowed:
            raise GenerationError(
                f"lines={settings.lines} with max_new_tokens={settings.max_new_tokens} "
                f"after prompt {number + 1} of {prompt_length} tokens; allowed: up to "
                f"{allowed} (the model's longest input is {stack.longest_input})"
            )

    def _generate_line(
        self,
        passages: list[Passage],
        settings: GenerationSettings,
        streams: RandomStreams | None,
        on_token: Callable[[Tensor], None] | None = None,
    ) -> None:
        """Add a line to passages that can run together."""
        forced = passages[0].forced
        unread = torch.tensor([each.unread for each in passages], device=self.device)
        source = unread[:, unread.shape[1] - forced - 1 :]
        sample = {
            "id": torch.tensor([each.number for each in passages], device=self.device),
            "net_input": {
                "src_tokens": source,
                "unread": unread,
                "states": join_rows([each.states for each in passages]),
            },
        }
        model = PrefilledModel(
            self.model,
            smallest_log_prob=SMALLEST_DRAWN_LOG_PROB if settings.samples else None,
            on_token=on_token,
        )
        generator = self.task.build_generator(model, settings.for_fairseq(forced))
        if streams is not None:
            generator.search = SeededSampling(
                generator.search, self.dictionary, streams
            )
        hypotheses = generator.generate(
            [model], sample, prefix_tokens=source[:, 1:], bos_token=source[0, 0].item()
        )
        for row, (passage, found) in enumerate(zip(passages, hypotheses, strict=True)):
            tokens = found[0]["tokens"].tolist()
            passage.lines.append(tokens)
            passage.positional_scores += found[0]["positional_scores"].tolist()
            # the line after its prompt is read again when the next one is generated:
            # the generator does not tell which beam's state is the best text's
            passage.states = take_row(model.read_states, row)
            passage.unread, passage.forced = tokens[forced:], 0

    def _result(self, passage: Passage, settings: GenerationSettings) -> GeneratedText:
        detokenizer = self.detokenizer
        texts = [detokenizer.text(detokenizer.symbols(each)) for each in passage.lines]
        tokens = sum(passage.lines, [])
        score = sum(passage.positional_scores) / len(tokens) ** settings.length_penalty
        return GeneratedText(
            "\n".join(texts),
            tokens,
            passage.positional_scores,
            score,
        )
