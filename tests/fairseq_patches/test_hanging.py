"""A worker that hangs: the other ends after --heartbeat-timeout and says why."""

import signal

from tests.messages import assert_names

from .accidents import WAITING
from .trainings import UPDATE_9, line_with


def test_a_stopped_worker(training, goes_on, tell):
    run = training(2, heartbeat_timeout=5)
    run.start(("wait_before", 14, "/no/gate"), at_worker=1)
    run.wait_for(WAITING, 1)
    run.send(signal.SIGSTOP, 1)
    run.processes[0].join(100)
    run.send(signal.SIGKILL, 1)  # as a launcher does when a worker has failed
    codes = run.wait()
    assert codes == [1, -signal.SIGKILL], run.text()
    said = line_with(run.text(), "worker 0 of 2", "update 13", "not answered")
    assert_names(said, "same command", run.save_dir)
    assert goes_on(run) == 8
    tell("SIGSTOP of one worker of two, --heartbeat-timeout 5", codes, 13, 8, said)


def test_the_watchdog_ends_what_the_limit_does_not(training):
    run = training(2, heartbeat_timeout=3, max_update=100_000)
    run.start(("no_limit_on_waiting", "ours"), at_worker=0)
    run.wait_for(UPDATE_9)
    run.send(signal.SIGSTOP, 1)
    run.processes[0].join(100)
    run.send(signal.SIGKILL, 1)
    codes = run.wait()
    assert codes == [-signal.SIGKILL] * 2, run.text()
    line_with(run.text(), "Killing", "progress", "6 seconds")
