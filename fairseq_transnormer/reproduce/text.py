"""Numbers and headings as pages have them."""

import re


def number(value: float | None, sign: bool = False) -> str:
    """Two decimals, or three digits of what is smaller than that shows; "" of None."""
    if value is None:
        return ""
    text = f"{value:.2f}" if abs(value) >= 0.01 or value == 0 else f"{value:.3g}"
    return "+" + text if sign and value > 0 else text


def fine(value: float) -> str:
    """``number`` with a third decimal below 1, where seeds may differ in it alone."""
    return f"{value:.3f}" if 0.01 <= abs(value) < 1 else number(value)


def plus_minus(value: float, deviation: float | None) -> str:
    """ " ± 0.08" after a mean over seeds, no finer than it; "" of a single seed."""
    if deviation is None:
        return ""
    return f" ± {deviation:.2f}" if abs(value) >= 1 else f" ± {number(deviation)}"


def anchor(heading: str) -> str:
    """The fragment that GitHub gives to a heading: "table-1-of-arxiv-240517381"."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
