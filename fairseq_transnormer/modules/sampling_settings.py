"""What may be asked of a text that is drawn: types and ranges, without fairseq."""

from __future__ import annotations

import numbers
from typing import Any

# beyond these a float32 logit over the temperature may be infinite, or all are equal
COLDEST, HOTTEST = 1e-8, 1e8
# tokens of a line, hypotheses, lines: what memory or a life is long enough for
MOST_TOKENS = 10**6
MOST_HYPOTHESES = 10**4

# name -> least, most
INTEGERS = {
    "max_new_tokens": (1, MOST_TOKENS),
    "min_new_tokens": (0, MOST_TOKENS),
    "beam": (1, MOST_HYPOTHESES),
    "lines": (1, MOST_TOKENS),
    "batch_size": (1, MOST_TOKENS),
    "top_k": (1, MOST_TOKENS),
    "seed": (0, 2**63 - 1),
}
NUMBERS: dict[str, tuple[float, float]] = {
    "temperature": (COLDEST, HOTTEST),
    # a length to the power of it is a float
    "length_penalty": (-50, 50),
}


def check_drawing(error: type[Exception], **settings: Any) -> None:
    """Raise ``error`` for a value that cannot be; field, value and range are named.

    Args:
        error: what to raise.
        settings: by name; None is a setting that was not chosen, where that may be.
    """
    for name, value in settings.items():
        if value is None and name in ("top_k", "top_p", "seed"):
            continue
        wrong = f"{name}={repr(value)[:80]}; allowed: "
        if name in INTEGERS:
            least, most = INTEGERS[name]
            if not _is(numbers.Integral, value):
                raise error(f"{wrong}whole numbers, {least} to {_shown(most)}")
            if not least <= value <= most:
                raise error(f"{wrong}{least} to {_shown(most)}")
            continue
        if not _is(numbers.Real, value):
            raise error(f"{wrong}numbers")
        if name == "top_p":
            if not 0 < value <= 1:
                raise error(f"{wrong}more than 0, up to 1")
            continue
        smallest, largest = NUMBERS[name]
        if not smallest <= value <= largest:
            raise error(f"{wrong}{smallest:g} to {largest:g}")


def _is(kind: type, value: Any) -> bool:
    # True is an integer, but not meant as one
    return isinstance(value, kind) and not isinstance(value, bool)


def _shown(most: int) -> str:
    return "2^63 - 1" if most == 2**63 - 1 else f"{most}"
