"""How large a vocabulary, a model and a training are for a text: the one rule.

docs/own_text.md gives the reasons for each line.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace

from .errors import OwnTextError

FEWEST_CHARACTERS = 2_000
# of sentencepiece: bytes, fairseq's special symbols, and one to begin words
FIXED_ENTRIES = 261
MOST_ENTRIES = 32_000
# a script of more is written in characters that are half a word each
LARGE_ALPHABET = 1_000
# width and layers, with 12 * layers * width^2 parameters in the layers
SIZES = ((64, 2), (128, 2), (128, 4), (192, 4), (256, 4), (384, 6), (512, 6), (768, 12))
LARGEST_ON_CPU = (256, 4)
PARAMETERS_A_TOKEN = 4
HEAD_WIDTH = 64
EPOCHS = 10
FEWEST_UPDATES_AN_EPOCH = 50


@dataclass(frozen=True)
class Plan:
    """What is trained, and how.

    Attributes:
        vocab_size: entries of the dictionary, at most.
        character_coverage: share of the characters that are pieces of their own.
        width, layers: of the T2; half of the layers are Diag, half Norm.
        block_size: of its Diag layers.
        tokens_per_sample: of a sequence.
        batch_size: sequences of an update.
        updates: at most; training ends earlier where validation no longer gets better.
        lr: the highest learning rate.
    """

    vocab_size: int
    character_coverage: float
    width: int
    layers: int
    block_size: int
    tokens_per_sample: int
    batch_size: int
    updates: int
    lr: float

    def __post_init__(self):
        for name, good, allowed in (
            (
                "vocab_size",
                self.vocab_size > FIXED_ENTRIES,
                f"from {FIXED_ENTRIES + 1}",
            ),
            ("width", self.width % HEAD_WIDTH == 0, f"multiples of {HEAD_WIDTH}"),
            ("layers", self.layers % 2 == 0, "2, 4, 6, ..."),
            # windows of the score overlap by half of it
            ("tokens_per_sample", self.tokens_per_sample > 2, "from 3"),
        ):
            if not good:
                raise OwnTextError(f"{name}={getattr(self, name)}; allowed: {allowed}")

    @property
    def warmup_updates(self) -> int:
        """Of the learning rate: a tenth, up to 1,000."""
        return max(1, min(1000, self.updates // 10))

    @property
    def validations(self) -> int:
        """Updates between two of them: 20 in a training."""
        return max(1, self.updates // 20)

    @property
    def layer_parameters(self) -> int:
        """About; without the embedding."""
        return 12 * self.layers * self.width**2

    def described(self, tokens: int) -> str:
        """A line on each value; ``tokens`` of the train split, about."""
        update = self.batch_size * self.tokens_per_sample
        epochs = self.updates * update / max(1, tokens)
        parameters = self.layer_parameters + self.vocab_size * self.width
        return "\n".join(
            [
                f"  vocabulary   up to {self.vocab_size:,} pieces, character coverage "
                f"{self.character_coverage:g}",
                f"  model        T2, width {self.width}, {self.layers} layers, blocks "
                f"of {self.block_size}; about {parameters / 1e6:.1f} M parameters",
                f"  update       {self.batch_size} sequences of "
                f"{self.tokens_per_sample} tokens, learning rate {self.lr:g}",
                f"  training     up to {self.updates:,} updates, about {epochs:.1f} "
                "epochs; ends earlier where validation no longer gets better",
            ]
        )


def estimated_tokens(characters: int, alphabet: int) -> int:
    """Pieces of a text: four characters each, of a large script one and a half."""
    return round(characters / (1.5 if alphabet > LARGE_ALPHABET else 4))


def plan_for(
    counts: Mapping[str, int], has_gpu: bool, chosen: Mapping[str, object] | None = None
) -> Plan:
    """The plan for a text.

    Args:
        counts: of the train split: characters, different_characters and
            frequent_characters, as ``data_prep split_text`` counts them.
        has_gpu: whether a GPU trains.
        chosen: values of ``Plan`` that the user has chosen; None where the rule shall.

    Raises:
        OwnTextError: there is too little text; a chosen value is not allowed.
    """
    characters = counts["characters"]
    if characters < FEWEST_CHARACTERS:
        raise OwnTextError(
            f"{characters:,} characters of text to train on; allowed: "
            f"{FEWEST_CHARACTERS:,} or more"
        )
    alphabet, coverage = counts["different_characters"], 1.0
    if alphabet > LARGE_ALPHABET:
        alphabet, coverage = counts["frequent_characters"], 0.9995
    pieces = min(MOST_ENTRIES, max(3 * math.sqrt(characters), 2 * alphabet))
    tokens = estimated_tokens(characters, counts["different_characters"])
    sizes = SIZES if has_gpu else SIZES[: SIZES.index(LARGEST_ON_CPU) + 1]
    fitting = [
        (width, layers)
        for width, layers in sizes
        if 12 * layers * width**2 <= PARAMETERS_A_TOKEN * tokens
    ]
    width, layers = fitting[-1] if fitting else sizes[0]
    length = 512 if has_gpu and tokens > 10**6 else 256
    length = length if tokens > 256 * FEWEST_UPDATES_AN_EPOCH else 128
    most = 64 if has_gpu else 8
    chosen = {key: value for key, value in (chosen or {}).items() if value is not None}
    length = chosen.get("tokens_per_sample", length)
    batch = max(1, min(most, round(tokens / (FEWEST_UPDATES_AN_EPOCH * length))))
    batch = chosen.get("batch_size", batch)
    updates = round(EPOCHS * tokens / (batch * length))
    plan = Plan(
        vocab_size=-(-int(FIXED_ENTRIES + pieces) // 8) * 8,
        character_coverage=coverage,
        width=width,
        layers=layers,
        block_size=64,
        tokens_per_sample=length,
        batch_size=batch,
        updates=max(200, min(50_000 if has_gpu else 2_000, updates)),
        lr=0.002 if chosen.get("width", width) <= 256 else 0.001,
    )
    return replace(plan, **chosen)


def differences(there: Mapping[str, object], now: Plan) -> list[str]:
    """The values of an earlier plan that differ, but for ``updates``."""
    values = asdict(now)
    return [
        f"{each.name}: {there.get(each.name)} there, {values[each.name]} now"
        for each in fields(Plan)
        if each.name != "updates" and there.get(each.name) != values[each.name]
    ]
