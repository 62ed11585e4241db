"""SIGTERM where there is no checkpoint to write, between epochs, and to who starts."""

import functools
import importlib
import os
import random
import signal
import time
import types
from contextlib import suppress

import pytest
from fairseq.dataclass.configs import DistributedTrainingConfig
from fairseq.distributed import utils as distributed_utils
from torch.multiprocessing.spawn import ProcessExitedException

from fairseq_transnormer.training import signals, workers
from tests.messages import assert_names

from .trainings import LOADING, MEETING, line_with


@pytest.fixture
def own_handlers():
    """What a test does to handlers ends with it."""
    before = {each: signal.getsignal(each) for each in signals.SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("workers", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_before_the_first_update_nothing_is_lost(training, workers):
    run = training(workers, num_workers=1)
    codes = run.run(("signalled_in_setup", signal.SIGTERM))
    assert codes == [os.EX_TEMPFAIL] * workers, run.text()
    said = line_with(run.text(), "SIGTERM", "first update")
    assert_names(said, os.EX_TEMPFAIL, "same command")
    assert not run.losses() and not list(run.save_dir.glob("*.pt"))


def test_between_epochs(training):
    """Of 4 updates each."""
    run = training(num_workers=1, batch_size=16, max_epoch=3)
    codes = run.run(("signalled_between_epochs", signal.SIGTERM))
    assert codes == [os.EX_TEMPFAIL], run.text()
    assert run.updates_of() == len(run.losses()) == 5


def test_while_the_workers_meet(training):
    """In C++: the other one never comes."""
    run = training(2, heartbeat_timeout=100)
    run.start(("killed_at_the_start",), at_worker=1)
    run.wait_for(MEETING)
    time.sleep(0.2)
    run.send(signal.SIGTERM)
    assert run.wait() == [os.EX_TEMPFAIL, -signal.SIGKILL], run.text()
    line_with(run.text(), "SIGTERM", "before", "workers", os.EX_TEMPFAIL)


def test_before_any_worker_has_been_started(monkeypatch, tmp_path, own_handlers):
    monkeypatch.setenv("RESUMABLE_FILE", str(tmp_path / "note"))
    signalled = lambda *_: os.kill(os.getpid(), signal.SIGTERM)  # noqa: E731
    monkeypatch.setattr(workers.torch.multiprocessing, "spawn", signalled)
    with pytest.raises(SystemExit) as end:
        workers.call_main(spawning(), None)
    assert end.value.code == os.EX_TEMPFAIL and (tmp_path / "note").exists()


def spawning():
    """A configuration by which a process starts workers."""
    training = types.SimpleNamespace(
        distributed_init_method="tcp://localhost:1", distributed_no_spawn=False,
        distributed_rank=0, distributed_world_size=2,
    )  # fmt: skip
    return types.SimpleNamespace(distributed_training=training)


def test_a_signal_at_the_last_update_is_a_finished_run(training):
    run = training(max_update=3)
    assert run.run(("signalled_before", 3, signal.SIGTERM)) == [0], run.text()
    assert run.updates_of() == 3


@pytest.mark.parametrize(
    ("update", "options"),
    [
        *((6, {}), (9, {"no_last_checkpoints": True})),
        (4, {"max_epoch": 1, "batch_size": 16}),
    ],
)
def test_a_killed_validation_is_made_up_for(training, goes_on, update, options):
    run = training(**options)
    assert run.run(("killed_in_validation", update)) == [-signal.SIGKILL], run.text()
    assert goes_on(run) == update and update in run.validations()
    assert run.run() == [0] and not run.validations(), run.text()


def test_signals_are_a_programs_own_outside_training(monkeypatch):
    request, died = signals.StopRequest(), []
    monkeypatch.setattr(signals, "die", died.append)
    before = signal.getsignal(signal.SIGTERM)
    with request.noted():
        os.kill(os.getpid(), signal.SIGTERM)
        assert request.number == signal.SIGTERM
        os.kill(os.getpid(), signal.SIGTERM)  # torchrun's, behind Slurm's
        assert not died
        monkeypatch.setattr(signals, "SECONDS_OF_ONE_STOP", -1)
        os.kill(os.getpid(), signal.SIGTERM)
        assert died == [signal.SIGTERM]
    assert signal.getsignal(signal.SIGTERM) == before


@pytest.mark.parametrize("program", ["eval_lm", "validate", "interactive"])
def test_programs_that_train_nothing_are_ended(program):
    """Theirs would be noted, and looked at by nobody."""
    main = importlib.import_module(f"fairseq_cli.{program}").main
    training = DistributedTrainingConfig(distributed_world_size=1)
    cfg = types.SimpleNamespace(
        distributed_training=training, common=types.SimpleNamespace(tpu=False)
    )
    seen = []
    is_default = lambda *_: seen.append(signal.getsignal(signal.SIGTERM))  # noqa: E731
    distributed_utils.call_main(cfg, functools.wraps(main)(is_default))
    assert seen == [signal.SIG_DFL]


def test_a_handler_that_there_was_is_called(own_handlers):
    """submitit's requeues the job on SIGUSR2."""
    calls = []
    signal.signal(signal.SIGUSR2, lambda *each: calls.append(each))
    trainer = types.SimpleNamespace(
        data_parallel_world_size=1,
        is_data_parallel_master=True,
        get_num_updates=lambda: 3,
    )
    request = signals.StopRequest()
    with request.noted():
        os.kill(os.getpid(), signal.SIGUSR2)
        assert not calls
        with pytest.raises(SystemExit) as end:
            request.leave(trainer, request.number, "here")
    os.kill(os.getpid(), signal.SIGTERM)  # while the process ends
    assert end.value.code == os.EX_TEMPFAIL
    assert calls == [(signal.SIGUSR2, None)]


def test_that_handler_waits_for_the_workers_that_a_process_started(
    monkeypatch, own_handlers
):
    """submitit queues a job again at once: its checkpoint has to be there."""
    happened = []

    def spawn(*_):
        os.kill(os.getpid(), signal.SIGUSR2)
        happened.append("checkpoint")
        raise ProcessExitedException(
            "", error_index=0, error_pid=1, exit_code=os.EX_TEMPFAIL
        )

    monkeypatch.setattr(workers.torch.multiprocessing, "spawn", spawn)
    started = types.SimpleNamespace(pid=7)
    monkeypatch.setattr(workers, "active_children", lambda: [started])
    kill = os.kill
    monkeypatch.setattr(
        workers.os,
        "kill",
        lambda pid, n: happened.append(n) if pid == 7 else kill(pid, n),
    )
    signal.signal(signal.SIGUSR2, lambda *each: happened.append("queued"))
    with pytest.raises(SystemExit) as end:
        workers.call_main(spawning(), None)
    os.kill(os.getpid(), signal.SIGTERM)  # torchrun's, after Slurm's
    assert end.value.code == os.EX_TEMPFAIL
    assert happened == [signal.SIGUSR2, "checkpoint", "queued"]


def test_without_checkpoints_there_is_nothing_to_resume(training):
    run = training(1, ("--no-save",))
    codes = run.run(("signalled_before", 3, signal.SIGTERM))
    assert codes == [-signal.SIGTERM], run.text()
    line_with(run.text(), "no_save=true", "signal")


@pytest.mark.slow
@pytest.mark.parametrize("start_method", ["fork", "spawn"])
@pytest.mark.parametrize("num_workers", [1, 2])
def test_any_moment(training, goes_on, num_workers, start_method):
    """As Slurm sends it; loaders are spawned where fairseq has started workers."""
    chance, moments = random.Random(num_workers), []
    run = training(num_workers=num_workers, max_update=120, batch_size=16)
    stopped = 0
    while len(moments) < (16 if start_method == "fork" else 4):
        run.start(("start_loaders_by", start_method))
        run.wait_for(LOADING)
        moments.append(chance.random() * (2 if start_method == "fork" else 20))
        time.sleep(moments[-1])
        with suppress(ProcessLookupError):  # it has ended by then
            run.send(signal.SIGTERM)
        code = run.wait()
        # or while it leaves, which nobody waits for
        if code == [0] or "done training" in run.text():
            run.save_dir = run.save_dir.with_name(f"checkpoints-{len(moments)}")
        else:
            assert code == [os.EX_TEMPFAIL], (moments, run.text())
            stopped += 1
    assert stopped >= len(moments) / 4, moments
    goes_on(run)
