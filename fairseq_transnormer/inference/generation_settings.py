"""The settings of generation; without torch, for the command's help."""

from __future__ import annotations

from dataclasses import dataclass

# beyond these, scores overflow in float32 or are all equal
RANGES = {
    **dict.fromkeys(("max_new_tokens", "beam", "lines", "batch_size"), (1, 10**6)),
    **{"min_new_tokens": (0, 10**6), "top_k": (1, 10**6), "top_p": (0, 1)},
    **{"temperature": (1e-4, 1e4), "length_penalty": (-50, 50)},
    "seed": (0, 2**63 - 1),
}


@dataclass(frozen=True)
class GenerationSettings:
    """How texts are generated.

    Args:
        max_new_tokens: longest continuation of a line, without its end.
        min_new_tokens: shortest continuation.
        beam: hypotheses of a beam search; with sampling, texts that are drawn. The one
            with the best score is returned.
        sampling: draw tokens; ``top_k`` and ``top_p`` imply it.
        temperature: divides the logits, also in a beam search.
        top_k: draw from the k most probable tokens.
        top_p: draw from the most probable tokens that together have this probability.
        length_penalty: the score of a text is the sum of its log-probabilities over
            (number of tokens) ** length_penalty.
        seed: prompt i (from 0) has its own random stream, seeded seed + i, so its text
            does not depend on other prompts. None: torch's global stream.
        lines: lines to generate. The model ends a line with the token that ends lines
            of its training text; the next line continues from the state.
        batch_size: maximum number of prompts that run together.

    Raises:
        ValueError: a value would have no effect, or no meaning.
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
        for name, (least, most) in RANGES.items():
            value = getattr(self, name)
            if value is not None and not least <= value <= most:
                raise ValueError(f"{name}={value}; allowed: {least} to {most}")
        if self.min_new_tokens > self.max_new_tokens:
            raise ValueError(
                f"min_new_tokens={self.min_new_tokens}; allowed: up to "
                f"max_new_tokens={self.max_new_tokens}"
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
