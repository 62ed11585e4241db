"""Sampling in which each prompt has a stream of random numbers of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from fairseq.data import Dictionary
from fairseq.search import Sampling
from torch import Tensor

# exp() of it is a normal float32, also where the hardware takes smaller ones for 0
SMALLEST_DRAWN_LOG_PROB = -80.0


class RandomStreams:
    """The states of torch's random number generator for numbered streams.

    Args:
        seed: stream i starts as after ``torch.manual_seed(seed + i)`` in fairseq.
        device: where numbers are drawn.
    """

    def __init__(self, seed: int, device: torch.device):
        self.seed, self.device = seed, device
        self.states: dict[int, Tensor] = {}

    @contextmanager
    def drawing_from(self, number: int) -> Iterator[None]:
        """Draw from this stream; torch's own stands still meanwhile."""
        if number not in self.states:
            start = torch.Generator(self.device).manual_seed(self.seed + number)
            if self.device.type == "cpu":
                skip_the_loaders_draw(start)
            self.states[number] = start.get_state()
        outside = self._state()
        self._set_state(self.states[number])
        try:
            yield
        finally:
            self.states[number] = self._state()
            self._set_state(outside)

    def _state(self) -> Tensor:
        if self.device.type == "cuda":
            return torch.cuda.get_rng_state(self.device)
        return torch.get_rng_state()

    def _set_state(self, state: Tensor) -> None:
        if self.device.type == "cuda":
            torch.cuda.set_rng_state(state, self.device)
        else:
            torch.set_rng_state(state)


def skip_the_loaders_draw(generator: torch.Generator | None = None) -> None:
    """Leave out the number that fairseq's ``sample()`` loses before it samples.

    It batches its prompts with a torch DataLoader, which draws a seed for its workers
    from the CPU's generator, by default torch's global one.
    """
    torch.empty((), dtype=torch.int64).random_(generator=generator)


class SeededSampling(Sampling):
    """fairseq's sampling, one prompt at a time, each from its stream.

    Args:
        like: fairseq's sampling, for the dictionary and its settings.
        streams: a sample's ``id`` is the number of its stream.
    """

    def __init__(self, like: Sampling, dictionary: Dictionary, streams: RandomStreams):
        super().__init__(dictionary, like.sampling_topk, like.sampling_topp)
        self.streams = streams

    def step(
        self,
        step: int,
        lprobs: Tensor,
        scores: Tensor,
        prev_output_tokens: Tensor,
        original_batch_idxs: Tensor,
    ) -> tuple[Tensor, ...]:
        """As in fairseq: lprobs (B, beam, V) -> three of (B, beam)."""
        drawn = []
        for row, number in enumerate(original_batch_idxs.tolist()):
            with self.streams.drawing_from(number):
                of_row = slice(row, row + 1)
                drawn.append(super().step(step, lprobs[of_row], scores[of_row]))
        return tuple(torch.cat(parts) for parts in zip(*drawn, strict=True))
