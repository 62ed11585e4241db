"""Work on batches of items in several processes, with the results in order."""

import itertools
import multiprocessing
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

BATCH_LINES = 2000
BATCHES_AHEAD = 4

Item = TypeVar("Item")
Result = TypeVar("Result")
_work: Callable[[list[Any]], Any]


def shown(items: Iterable[Item], what: str, total: int | None = None) -> Iterable[Item]:
    """The items, with a bar of progress in a terminal."""
    from tqdm import tqdm

    return tqdm(items, desc=what, total=total, disable=None)


def map_batches(
    work: Callable[[list[Item]], Result],
    items: Iterable[Item],
    workers: int,
    batch_size: int = BATCH_LINES,
) -> Iterator[Result]:
    """``work`` on batches of ``items``; at most a few batches are held in memory."""
    source = iter(items)
    batches = iter(lambda: list(itertools.islice(source, batch_size)), [])
    first = next(batches, [])
    if workers == 1 or len(first) < batch_size:
        if first:
            yield work(first)
        yield from map(work, batches)
        return
    # spawn: forking a process that has torch's threads can hang the child.
    with ProcessPoolExecutor(
        workers,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_set_work,
        initargs=(work,),
    ) as pool:
        waiting: deque[Future[Result]] = deque()
        try:
            for batch in itertools.chain([first], batches):
                waiting.append(pool.submit(_do_work, batch))
                if len(waiting) >= workers * BATCHES_AHEAD:
                    yield waiting.popleft().result()
            for future in waiting:
                yield future.result()
        except BrokenProcessPool as error:
            raise ValueError(
                f"--workers {workers}: a worker process died, most often for lack of "
                "memory; run again with fewer workers"
            ) from error


def _set_work(work: Callable[[list[Any]], Any]) -> None:
    global _work
    _work = work


def _do_work(batch: list[Any]) -> Any:
    return _work(batch)
