"""Plans of many runs at once, on all cores: each composes and builds a model."""

import multiprocessing
import os
import signal
from concurrent.futures import ProcessPoolExecutor

from ..runs.plans import Plan, merged
from .definitions import Cell
from .jobs import Conditions, job_of

# fewer than these a process are planned sooner than another one starts
FEWEST = 8


def plan_all(cells: list[Cell], all_conditions: list[Conditions]) -> list[Plan]:
    """The plan of each cell under each conditions, as far as they are different runs.

    Plans of one run are merged: they have the steps of all its cells. A cell that has a
    seed of its own is planned for that.

    Raises:
        ReproduceError: the first mistake in one of them.
    """
    runs: dict[str, list[tuple[Cell, Conditions]]] = {}
    for each in all_conditions:
        for cell in cells:
            own = each if cell.seed is None else each.of(cell.seed)
            runs.setdefault(job_of(cell).name(cell, own), []).append((cell, own))
    processes = min(len(os.sched_getaffinity(0)), len(runs) // FEWEST)
    if processes < 2:
        return [_plan(run) for run in runs.values()]
    with ProcessPoolExecutor(
        processes,
        mp_context=multiprocessing.get_context("fork"),
        initializer=signal.signal,
        # Ctrl-C is the runner's: a process of its own would add a traceback
        initargs=(signal.SIGINT, signal.SIG_IGN),
    ) as pool:
        return list(pool.map(_plan, runs.values(), chunksize=2))


def _plan(run: list[tuple[Cell, Conditions]]) -> Plan:
    (plan,) = merged([job_of(cell).plan(cell, each) for cell, each in run])
    return plan
