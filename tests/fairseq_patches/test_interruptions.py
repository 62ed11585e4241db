"""Faults of a run: how it ends, what it says and keeps, and that it goes on.

What the same command gives after each is what a run gives that nothing happened to.
"""

import os
import signal
from typing import NamedTuple

import pytest

from .trainings import LAST, line_with

AGAIN = os.EX_TEMPFAIL
BATCH_IS_NAN = "FloatingPointError: gradients are Nan/Inf"


class Fault(NamedTuple):
    """A row: what happens to a run of as many workers as there are exit codes.

    done: the last update; saved: that of its last checkpoint, at 3 and 6 of 9. said:
    what one line of the log names; at: the worker, or None for all.
    """

    name: str
    accident: tuple
    codes: list[int]
    done: int
    saved: int
    said: tuple = ()
    at: int | None = None
    flags: tuple[str, ...] = ()
    options: dict = {}


def signalled(name: str, number: int, codes: list[int], *said, **more) -> Fault:
    accident = ("signalled_before", 5, number)
    stops = number != signal.SIGKILL
    return Fault(name, accident, codes, 4 + stops, 3 + 2 * stops, said, **more)


def nan(name: str, workers: int, *more) -> Fault:
    told = ("Minimum loss scale",) if "--fp16" in more else (BATCH_IS_NAN,)
    accident = ("loss_is_nan", 5, 1000 if "--fp16" in more else 1)
    told = ("FloatingPointError", *told)
    # less than an epoch of batches that are skipped
    scale = {"min_loss_scale": 1} if "--fp16" in more else {}
    return Fault(name, accident, [1] * workers, 4, 3, told, workers - 1, more, scale)


def bad_weights(name: str, what: str, *flags) -> Fault:
    told = ("FloatingPointError", what, "NaN", "update 6")
    return Fault(name, ("weights_become_nan", 6), [1], 6, 3, told, flags=flags)


def half_written(name: str, number: int) -> Fault:
    accident = ("killed_while_writing", name, number)
    return Fault(f"kill -9 while {name} is written", accident, [-signal.SIGKILL], 6, 3)


FAULTS = (
    signalled("kill -9 of both workers", signal.SIGKILL, [-signal.SIGKILL] * 2),
    signalled(
        "kill -9 of worker 0 of two", signal.SIGKILL, [-signal.SIGKILL, 1],
        *("worker 1 of 2", "update 4", "died", "same command", "checkpoints"), at=0,
    ),
    signalled(
        "SIGTERM to all processes, as Slurm sends it", signal.SIGTERM, [AGAIN],
        *("SIGTERM", "update 5", AGAIN), options={"num_workers": 1},
    ),
    signalled(
        "SIGTERM to one worker of two", signal.SIGTERM, [AGAIN] * 2,
        *("SIGTERM", "update 5", AGAIN), at=1,
    ),
    # its validation takes the processes that load data, which were forked before
    Fault(
        "SIGUSR1 at an update with a validation",
        ("signalled_before", 6, signal.SIGUSR1), [AGAIN], 6, 6,
        ("SIGUSR1", "update 6", AGAIN), options={"num_workers": 2},
    ),
    half_written("checkpoint_1_6.pt", 1),
    nan("NaN loss of one of 2 in fp32", 2),
    nan("NaN loss of every batch in fp16", 1, "--fp16"),
    bad_weights("weights become NaN at a checkpoint's update", "validation loss"),
    bad_weights(
        "weights become NaN without validations", "weights", "--disable-validation"
    ),
)  # fmt: skip
SLOW = (
    signalled(
        "kill -9 of worker 1 of two", signal.SIGKILL, [1, -signal.SIGKILL],
        *("worker 0 of 2", "update 4", "died", "same command"), at=1,
    ),
    half_written("checkpoint_last.pt", 2),
    nan("NaN loss of one of 1 in fp32", 1),
    nan("NaN loss of one of 1 in bf16", 1, "--bf16"),
    nan("NaN loss of one of 2 in bf16", 2, "--bf16"),
)  # fmt: skip


@pytest.mark.parametrize(
    "fault",
    [*FAULTS, *(pytest.param(each, marks=pytest.mark.slow) for each in SLOW)],
    ids=lambda fault: fault.name,
)
def test_the_run_goes_on(training, goes_on, tell, fault):
    run = training(len(fault.codes), fault.flags, **fault.options)
    assert run.run(fault.accident, fault.at) == fault.codes, run.text()
    parts = [part.stat().st_size for part in run.save_dir.glob("*.tmp")]
    assert bool(parts) == (fault.accident[0] == "killed_while_writing") and all(parts)
    said = "nothing: nobody is left to"
    if fault.said:
        said = line_with(run.text(), *fault.said)
    if BATCH_IS_NAN in fault.said:
        assert "detected in output of" in run.text()  # NanDetector names a module
    if AGAIN in fault.codes:
        assert list(run.validations()) == [3, 6][: fault.done // 3]
    assert max(run.losses()) == fault.done and run.updates_of() == fault.saved
    assert goes_on(run) == fault.saved
    assert not list(run.save_dir.glob("*.tmp"))
    tell(fault.name, fault.codes, fault.done, fault.saved, said)


def test_fp16_skips_one_overflow(training, tell):
    run = training(1, ("--fp16",))
    assert run.run(("loss_is_nan", 5, 1)) == [0], run.text()
    said = line_with(run.text(), "overflow", "ignoring")
    assert max(run.losses()) == LAST
    tell("NaN loss of one batch in fp16", [0], LAST, LAST, said)
