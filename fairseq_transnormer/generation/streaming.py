"""An iterator over what a function hands to a callback."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator


class Abandoned(Exception):
    """Nobody wants more: ends the function from inside its callback."""


def iterate(function: Callable[[Callable[[str], None]], None]) -> Iterator[str]:
    """Yield what ``function`` hands to its argument, as it comes, if not empty.

    fairseq's generator is a loop that cannot be left and entered again, so it runs in a
    thread. That ends with the iterator; what it raises, the iterator raises.
    """
    # None: there are no more
    pieces: queue.SimpleQueue[str | BaseException | None] = queue.SimpleQueue()
    abandoned = threading.Event()

    def emit(piece: str) -> None:
        if abandoned.is_set():
            raise Abandoned
        if piece:
            pieces.put(piece)

    def work() -> None:
        try:
            function(emit)
            pieces.put(None)
        except Abandoned:
            pass
        except BaseException as error:
            pieces.put(error)

    worker = threading.Thread(target=work, name="generation", daemon=True)
    worker.start()
    try:
        while (piece := pieces.get()) is not None:
            if isinstance(piece, BaseException):
                raise piece
            yield piece
    finally:
        abandoned.set()
        worker.join()
