"""A worker that dies or hangs: the others end within a limit, and say why."""

import re
import signal
import time

import pytest

from tests.messages import assert_names

from .accidents import WAITING
from .trainings import UPDATE_9, free_port, line_with


@pytest.mark.parametrize(
    "meeting", [pytest.param("file", marks=pytest.mark.slow), "tcp"]
)
def test_one_dies_before_the_workers_meet(training, meeting):
    run = training(2, heartbeat_timeout=4)
    if meeting == "tcp":
        run.meeting = f"tcp://localhost:{free_port()}"
    victim = 1 if meeting == "tcp" else 0
    began = time.monotonic()
    run.start(("killed_at_the_start",), at_worker=victim)
    codes = run.wait()
    assert codes[victim] == -signal.SIGKILL and codes[1 - victim] == 1, run.text()
    assert time.monotonic() - began < 100  # torch's own limit is 1,800
    said = line_with(run.text(), f"worker {1 - victim} of 2", "before training")
    assert_names(said, "same command")
    # more than its limit where the machine has other work
    assert 4 <= int(re.search(r"(\d+) seconds", said)[1]) < 100


def test_a_stopped_worker(training, goes_on, tell):
    run = training(2, heartbeat_timeout=5)
    run.start(("wait_before", 5, "/no/gate"), at_worker=1)
    run.wait_for(WAITING, 1)
    assert stopped(run) == [1, -signal.SIGKILL], run.text()
    said = line_with(run.text(), "worker 0 of 2", "update 4", "not answered")
    assert_names(said, "same command", run.save_dir)
    assert goes_on(run) == 3
    tell("SIGSTOP of one worker of two, --heartbeat-timeout 5", [1, -9], 4, 3, said)


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
