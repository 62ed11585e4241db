"""What can be chosen for a text, and fairseq's names for it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, TypedDict

from ..modules.sampling_settings import check_drawing
from .errors import GenerationError

if TYPE_CHECKING:
    from fairseq.dataclass.configs import GenerationConfig


class Settings(TypedDict, total=False):
    """``GenerationSettings`` by name, for a type checker."""

    max_new_tokens: int
    min_new_tokens: int
    beam: int
    sampling: bool
    temperature: float
    top_k: int | None
    top_p: float | None
    length_penalty: float
    seed: int | None
    lines: int
    batch_size: int


@dataclass(frozen=True)
class GenerationSettings:
    """How texts are generated. The defaults are fairseq's: search, beam 1.

    Attributes:
        max_new_tokens: longest continuation of a line, its end not counted.
        min_new_tokens: shortest one.
        beam: hypotheses side by side; the best one is returned. With sampling they are
            samples, as in fairseq.
        sampling: draw tokens instead of searching the likeliest text; top_k and top_p
            imply it.
        temperature: the logits are divided by it; also those that beam search sees.
        top_k: draw from the k likeliest tokens.
        top_p: draw from the likeliest tokens that together have at least this
            probability.
        length_penalty: a hypothesis is judged by the sum of its log-probabilities over
            (number of tokens) ** length_penalty.
        seed: prompt i (from 0) draws from a stream of its own, seeded seed + i, so that
            its text does not depend on the other prompts. None: torch's global stream.
            Allowed where tokens are drawn.
        lines: lines to generate. The model ends a line, with the token that ends each
            line of its training text; the next one continues from the state.
        batch_size: most prompts, of equal length, that run together.

    Raises:
        GenerationError: a value is not allowed; the field is named.
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
        values = asdict(self)
        self._check("sampling", isinstance(values.pop("sampling"), bool), "True, False")
        check_drawing(GenerationError, **values)
        self._check(
            "min_new_tokens",
            self.min_new_tokens <= self.max_new_tokens,
            f"0 to max_new_tokens={self.max_new_tokens}",
        )
        if self.top_k is not None and self.top_p is not None:
            raise GenerationError(
                f"top_k={self.top_k} and top_p={self.top_p}; allowed: one of them"
            )
        self._check(
            "seed",
            self.seed is None or self.samples,
            "with sampling, top_k or top_p only; without them nothing is drawn",
        )

    def _check(self, name: str, allowed: bool, what: str) -> None:
        if not allowed:
            raise GenerationError(f"{name}={getattr(self, name)!r}; allowed: {what}")

    @property
    def samples(self) -> bool:
        """Whether tokens are drawn."""
        return self.sampling or self.top_k is not None or self.top_p is not None

    def for_fairseq(self, prompt_length: int) -> GenerationConfig:
        """fairseq's configuration for prompts of this many tokens.

        fairseq's lengths count the prompt, ours do not.
        """
        from fairseq.dataclass.configs import GenerationConfig

        return GenerationConfig(
            beam=self.beam,
            max_len_a=0,
            max_len_b=prompt_length + self.max_new_tokens,
            min_len=max(1, prompt_length + self.min_new_tokens),
            lenpen=self.length_penalty,
            temperature=self.temperature,
            sampling=self.samples,
            sampling_topk=-1 if self.top_k is None else self.top_k,
            sampling_topp=-1.0 if self.top_p is None else self.top_p,
        )
