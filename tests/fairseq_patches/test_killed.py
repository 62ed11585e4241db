"""kill -9, of one and of all, and while a checkpoint is being written."""

import re
import signal
import time

import pytest

from tests.messages import assert_names

from .accidents import WAITING
from .trainings import free_port, line_with


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


def test_all_workers_are_killed(training, goes_on, tell):
    run = training(2)
    run.start(("wait_before", 14, "/no/gate"))
    run.wait_for(WAITING)
    for worker in (0, 1):
        run.send(signal.SIGKILL, worker)
    codes = run.wait()
    assert codes == [-signal.SIGKILL] * 2
    assert goes_on(run) == 8
    tell("kill -9 of both workers", codes, 13, 8, "nothing: nobody is left to")


@pytest.mark.parametrize("victim", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_one_worker_of_two_is_killed(training, goes_on, tell, victim):
    run = training(2)
    run.start(("wait_before", 14, "/no/gate"), at_worker=victim)
    run.wait_for(WAITING, victim)
    run.send(signal.SIGKILL, victim)
    codes = run.wait()
    assert codes[victim] == -signal.SIGKILL and codes[1 - victim] == 1, run.text()
    said = line_with(run.text(), f"worker {1 - victim} of 2", "update 13", "died")
    assert_names(said, "same command", run.save_dir)
    assert goes_on(run) == 8
    tell(f"kill -9 of worker {victim} of two", codes, 13, 8, said)


@pytest.mark.parametrize(
    ("name", "time"),
    [
        ("checkpoint_1_16.pt", 1),
        pytest.param("checkpoint_last.pt", 2, marks=pytest.mark.slow),
    ],
)
def test_killed_while_a_checkpoint_is_written(training, goes_on, tell, name, time):
    run = training()
    codes = run.run(("killed_while_writing", name, time))
    assert codes == [-signal.SIGKILL]
    (part,) = run.save_dir.glob(f"{name}.*.tmp")
    assert part.stat().st_size > 0
    assert run.updates_of() == 8
    assert goes_on(run) == 8
    assert not list(run.save_dir.glob("*.tmp"))
    tell(f"kill -9 while {name} is written", codes, 16, 8, "nothing: it is dead")
