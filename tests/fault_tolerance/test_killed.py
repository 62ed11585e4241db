"""kill -9, of one and of all, and while a checkpoint is being written."""

import signal

import pytest

from .accidents import WAITING
from .trainings import line_with


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


@pytest.mark.parametrize("victim", [0, 1])
def test_one_worker_of_two_is_killed(training, goes_on, tell, victim):
    run = training(2)
    run.start(("wait_before", 14, "/no/gate"), at_worker=victim)
    run.wait_for(WAITING, victim)
    run.send(signal.SIGKILL, victim)
    codes = run.wait()
    assert codes[victim] == -signal.SIGKILL and codes[1 - victim] == 1, run.text()
    said = line_with(run.text(), "ends behind update 13: another worker has died")
    assert goes_on(run) == 8
    tell(f"kill -9 of worker {victim} of two", codes, 13, 8, said)


@pytest.mark.parametrize(
    ("name", "time"), [("checkpoint_1_16.pt", 1), ("checkpoint_last.pt", 2)]
)
def test_killed_while_a_checkpoint_is_written(training, goes_on, tell, name, time):
    run = training()
    codes = run.run(("killed_while_writing", name, time))
    assert codes == [-signal.SIGKILL]
    assert (run.save_dir / f"{name}.tmp").stat().st_size > 0
    assert run.updates_of() == 8
    assert goes_on(run) == 8
    tell(f"kill -9 while {name} is written", codes, 16, 8, "nothing: it is dead")
