"""SIGTERM: a checkpoint behind the update, exit code 75, and the same losses after."""

import os
import signal
import types

import pytest
from torch.multiprocessing.spawn import ProcessExitedException

from fairseq_transnormer.fault_tolerance import stopping

from .accidents import WAITING
from .trainings import line_with


def stop_at(training, update, number=signal.SIGTERM, worker=0):
    """Send a signal while a worker stands before ``update``; the exit codes."""
    gate = training.save_dir.parent / "gate"
    training.start(("wait_before", update, str(gate)), at_worker=worker)
    training.wait_for(WAITING, worker)
    training.send(number, worker)
    gate.touch()
    return training.wait()


def test_sigterm_to_all_processes(training, goes_on, tell):
    """Those that load data, too: of the signal they would die, and training of that."""
    run = training(num_workers=1)
    codes = stop_at(run, 13, signal.SIGTERM)
    assert codes == [os.EX_TEMPFAIL], run.text()
    said = line_with(run.text(), "SIGTERM: stopped after update 13")
    assert run.updates_of() == 13
    assert goes_on(run) == 13
    tell("SIGTERM to all processes, as Slurm sends it", codes, 13, 13, said)


def test_sigterm_to_one_worker_of_two(training, goes_on, tell):
    run = training(2)
    codes = stop_at(run, 13, signal.SIGTERM, worker=1)
    assert codes == [os.EX_TEMPFAIL] * 2, run.text()
    assert run.updates_of() == 13
    said = line_with(run.text(), "SIGTERM: stopped after update 13")
    assert goes_on(run) == 13
    tell("SIGTERM to one worker of two", codes, 13, 13, said)


def test_a_signal_at_an_update_with_a_validation_loses_nothing(training, goes_on):
    run = training()
    assert stop_at(run, 8, signal.SIGUSR1) == [os.EX_TEMPFAIL]
    assert list(run.validations()) == [8]
    assert goes_on(run) == 8


def test_a_signal_at_the_last_update_is_a_finished_run(training):
    run = training()
    assert stop_at(run, 24, signal.SIGTERM) == [0], run.text()
    assert run.updates_of() == 24


def test_signals_are_a_programs_own_outside_training(monkeypatch):
    request, died = stopping.StopRequest(), []
    monkeypatch.setattr(stopping, "_die", died.append)
    before = signal.getsignal(signal.SIGTERM)
    with request.noting():
        os.kill(os.getpid(), signal.SIGTERM)
        assert request.number == signal.SIGTERM
        os.kill(os.getpid(), signal.SIGTERM)  # torchrun's, behind Slurm's
        assert not died
        monkeypatch.setattr(stopping, "SECONDS_OF_ONE_STOP", -1)
        os.kill(os.getpid(), signal.SIGTERM)
        assert died == [signal.SIGTERM]
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_handler_that_there_was_is_called(monkeypatch):
    """submitit's requeues the job on SIGUSR2."""
    calls = []
    before = signal.signal(signal.SIGUSR2, lambda *each: calls.append(each))
    trainer = types.SimpleNamespace(
        data_parallel_world_size=1,
        is_data_parallel_master=True,
        get_num_updates=lambda: 3,
    )
    checkpoint = types.SimpleNamespace(write_checkpoints_asynchronously=False)
    cfg = types.SimpleNamespace(checkpoint=checkpoint)
    try:
        with stopping._request.noting():
            os.kill(os.getpid(), signal.SIGUSR2)
            assert not calls
            with pytest.raises(SystemExit) as end:
                stopping._leave(cfg, trainer, stopping._request.number)
    finally:
        signal.signal(signal.SIGUSR2, before)
    assert end.value.code == os.EX_TEMPFAIL
    assert calls == [(signal.SIGUSR2, None)]


def test_that_handler_waits_for_the_workers_that_a_process_started(monkeypatch):
    """submitit queues a job again at once: its checkpoint has to be there."""
    happened = []
    monkeypatch.setattr(stopping, "_hand_on", lambda number: happened.append(number))

    def workers(cfg, main):
        os.kill(os.getpid(), signal.SIGUSR2)
        happened.append("checkpoint")
        raise ProcessExitedException(
            "", error_index=0, error_pid=1, exit_code=os.EX_TEMPFAIL
        )

    training = types.SimpleNamespace(
        distributed_init_method="tcp://localhost:1", distributed_no_spawn=False
    )
    cfg = types.SimpleNamespace(distributed_training=training)
    before = signal.signal(signal.SIGUSR2, lambda *each: happened.append("queued"))
    try:
        with pytest.raises(SystemExit) as end:
            stopping.call_main(workers, cfg, None)
    finally:
        signal.signal(signal.SIGUSR2, before)
    assert end.value.code == os.EX_TEMPFAIL
    assert happened == [signal.SIGUSR2, "checkpoint", "queued"]


def test_without_checkpoints_there_is_nothing_to_go_on_from(training):
    run = training(1, ("--no-save",))
    assert stop_at(run, 3, signal.SIGTERM) == [-signal.SIGTERM]
    assert "SIGTERM: no_save=true" in run.text()
