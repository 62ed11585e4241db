"""Faults of a run: how it ends, what it says and keeps, and that it goes on.

What the same command gives after each is what a run gives that nothing happened to.
"""

import os
import signal
import subprocess
import time
from typing import NamedTuple

import pytest

from tests.forked_trainings import free_port
from tests.messages import assert_names

from .accidents import WAITING
from .trainings import LAST, UPDATE_9, line_with

AGAIN = os.EX_TEMPFAIL
ROOM = 1_400_000  # for three checkpoints and a half of 372 kB
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
    nan("NaN loss of one of 2 in bf16", 2, "--bf16"),
)  # fmt: skip


@pytest.mark.parametrize(
    "fault",
    [*FAULTS, *(pytest.param(each, marks=pytest.mark.slow) for each in SLOW)],
    ids=lambda fault: fault.name,
)
def test_the_run_goes_on(training, goes_on, fault):
    run = training(len(fault.codes), fault.flags, **fault.options)
    assert run.run(fault.accident, fault.at) == fault.codes, run.text()
    parts = [part.stat().st_size for part in run.save_dir.glob("*.tmp")]
    assert bool(parts) == (fault.accident[0] == "killed_while_writing") and all(parts)
    if fault.said:
        line_with(run.text(), *fault.said)
    if BATCH_IS_NAN in fault.said:
        assert "detected in output of" in run.text()  # NanDetector names a module
    if AGAIN in fault.codes:
        assert list(run.validations()) == [3, 6][: fault.done // 3]
    assert max(run.losses()) == fault.done and run.updates_of() == fault.saved
    assert goes_on(run) == fault.saved
    assert not list(run.save_dir.glob("*.tmp"))


def test_fp16_skips_one_overflow(training):
    run = training(1, ("--fp16",))
    assert run.run(("loss_is_nan", 5, 1)) == [0], run.text()
    line_with(run.text(), "overflow", "ignoring")
    assert max(run.losses()) == LAST


@pytest.fixture
def small_disk(tmp_path):
    """A file system of ``ROOM`` bytes, where this user may mount one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={ROOM}", "small", str(folder)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("this user may not mount a file system")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk(training, goes_on, small_disk):
    run = training()
    run.save_dir = small_disk / "checkpoints"
    codes = run.run()
    assert codes == [1], run.text()
    said = line_with(run.text(), "OSError: ")
    assert_names(said, run.save_dir.name, "cannot be written", "No space left")
    assert run.text().count("Traceback") == 1
    left = sorted(path.name for path in run.save_dir.glob("checkpoint*"))
    assert left == ["checkpoint_1_3.pt", "checkpoint_best.pt", "checkpoint_last.pt"]
    subprocess.run(["mount", "-o", "remount,size=16m", str(small_disk)], check=True)
    assert goes_on(run) == 3


def test_one_dies_before_the_workers_meet(training):
    run = training(2, heartbeat_timeout=4)
    run.meeting, victim = f"tcp://localhost:{free_port()}", 1
    began = time.monotonic()
    run.start(("killed_at_the_start",), at_worker=victim)
    codes = run.wait()
    assert codes[victim] == -signal.SIGKILL and codes[1 - victim] == 1, run.text()
    assert time.monotonic() - began < 100  # torch's own limit is 1,800
    said = line_with(run.text(), f"worker {1 - victim} of 2", "before training")
    assert_names(said, "same command")


def test_a_stopped_worker(training, goes_on):
    run = training(2, heartbeat_timeout=5)
    run.start(("wait_before", 5, "/no/gate"), at_worker=1)
    run.wait_for(WAITING, 1)
    assert stopped(run) == [1, -signal.SIGKILL], run.text()
    said = line_with(run.text(), "worker 0 of 2", "update 4", "not answer")
    assert_names(said, "same command", run.save_dir)
    assert goes_on(run) == 3


def test_the_watchdog_ends_what_the_limit_does_not(training):
    run = training(2, heartbeat_timeout=3, max_update=100_000)
    run.start(("no_limit_on_waiting",))
    run.wait_for(UPDATE_9)
    assert stopped(run) == [-signal.SIGKILL] * 2, run.text()
    line_with(run.text(), "Killing", "progress", "6 seconds")


def stopped(run) -> list[int]:
    """Worker 1 is stopped, and killed when worker 0 has ended, as launchers do."""
    run.send(signal.SIGSTOP, 1)
    run.processes[0].join(100)
    run.send(signal.SIGKILL, 1)
    return run.wait()
