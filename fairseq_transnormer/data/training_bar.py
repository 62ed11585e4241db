"""The bar of a whole training in a terminal: loss, tokens a second, time left."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any

BAR = "{desc} |{bar}| {n_fmt}/{total_fmt} updates{postfix}, {remaining} left"
SHOWN = {"loss": "loss {:.3f}", "wps": "{:,.0f} tokens/s"}
# of a terminal that does not know its size, for which tqdm would show nothing
COLUMNS, LINES = 80, 24


class TrainingBar:
    """Updates of a training, drawn by tqdm; whoever uses it has seen to a terminal.

    Args:
        total: updates of the whole training; None where that is not known.
        initial: those that are done.
    """

    def __init__(self, total: int | None, initial: int = 0) -> None:
        # data/ is imported where no tqdm is
        from tqdm import tqdm

        size: dict[str, Any] = {"dynamic_ncols": True}
        if not _columns():
            size = {"ncols": COLUMNS, "nrows": LINES}
        self._bar = tqdm(
            total=total,
            initial=initial,
            bar_format=BAR,
            leave=False,
            **size,
        )

    def describe(self, text: str) -> None:
        """What stands before the bar: the epoch."""
        self._bar.set_description_str(text, refresh=False)

    def move_to(self, update: int) -> None:
        """So many updates are done."""
        self._bar.update(update - self._bar.n)

    def show(self, record: Mapping[str, Any]) -> None:
        """The loss and the tokens a second of a record, where it has them."""
        found = [
            text.format(float(record[name]))
            for name, text in SHOWN.items()
            if record.get(name)
        ]
        if found:
            self._bar.set_postfix_str(", ".join(found))

    def clear(self) -> None:
        """Take it away until it moves again."""
        self._bar.clear()


def _columns() -> int:
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns
    except (OSError, ValueError):
        return 0
