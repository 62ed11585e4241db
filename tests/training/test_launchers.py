"""SIGTERM reaches training through each way to start it."""

import importlib
import json
import os
import runpy
import signal
import sys

import pytest
import torch
from omegaconf import OmegaConf

from fairseq_transnormer.data.training_records import LOG
from fairseq_transnormer.plugin.compatibility import train_with_our_loop
from fairseq_transnormer.training import workers
from fairseq_transnormer.training.processes import run_torchrun
from tests.forked_trainings import Call, start_command, wait_for, wait_until
from tests.kept_configurations import kept
from tests.messages import assert_names
from tests.paths import USER_DIR
from tests.resolved_configs import command_line_config

from .trainings import (
    ACCIDENTS,
    SECONDS,
    UPDATE_9,
    line_with,
    training_arguments,
    updates_of,
)


def test_a_configurations_file(data, tmp_path):
    words = training_arguments(
        "transnormer_t2_tiny", "checkpoints", tokens_per_sample=32, batch_size=4,
        max_update=400, save_interval_updates=2,
    )  # fmt: skip
    with kept():
        cfg = command_line_config([str(data), *words, "--user-dir", str(USER_DIR)])
    (tmp_path / "config.yaml").write_text(OmegaConf.to_yaml(cfg))
    log, signalled = tmp_path / "log", (3, signal.SIGTERM)
    call = Call(ACCIDENTS, "signalled_before", signalled)
    program = "fairseq_transnormer.training"
    process = start_command(program, ["config.yaml"], log, tmp_path, before=[call])
    assert wait_for([process]) == [os.EX_TEMPFAIL], log.read_text()
    line_with(log.read_text(), "SIGTERM", "update 3", os.EX_TEMPFAIL)
    last = tmp_path / "checkpoints" / "checkpoint_last.pt"
    assert updates_of(last) == 3
    records = [json.loads(each) for each in (last.parent / LOG).open()]
    steps = [each for each in records if each["kind"] == "train_inner"]
    assert [each["num_updates"] for each in steps] == [1, 2, 3]


@pytest.mark.parametrize("program", ["train", "eval_lm", "validate"])
def test_fairseqs_program_by_another_name(monkeypatch, program):
    """Run by its file or with python -m it is __main__."""
    file = importlib.import_module(f"fairseq_cli.{program}").__file__
    main = runpy.run_path(file, run_name="another")["main"]
    called = []
    monkeypatch.setattr(workers, "call_main", lambda *_: called.append("ours"))
    train_with_our_loop(lambda *_: called.append("fairseq's"), None, main)
    assert called == ["ours" if program == "train" else "fairseq's"]


@pytest.mark.parametrize(
    ("script", "code"),
    [
        ("exit 1", 1),
        ("kill -9 $$", -signal.SIGKILL),
        ('touch "$RESUMABLE_FILE"; exit 1', os.EX_TEMPFAIL),
        ('touch "$RESUMABLE_FILE"; exit 0', 0),
    ],
)
def test_torchrun_that_fails_does_not_resume(tmp_path, monkeypatch, script, code):
    """Of 1, its exit code for everything, workers leave a note."""
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    assert run_torchrun(["config.yaml"]) == code


def two_gpus() -> None:
    """fairseq starts a worker for each."""
    torch.cuda.device_count = lambda: 2


@pytest.mark.slow
def test_workers_that_fairseq_starts(data, tmp_path):
    """Two, of which the process that was sent the signal is neither."""
    last, log = tmp_path / "checkpoints" / "checkpoint_last.pt", tmp_path / "log"
    words = training_arguments(
        "transnormer_t2_tiny", last.parent, tokens_per_sample=32, batch_size=4,
        max_update=100_000, save_interval_updates=8, distributed_world_size=2,
        distributed_backend="gloo", ddp_backend="legacy_ddp",
    )  # fmt: skip
    call = Call(__name__, "two_gpus")
    process = start_command("train", [data, *words], log, before=[call])
    seen = lambda: log.exists() and UPDATE_9 in log.read_text()  # noqa: E731
    wait_until(lambda: seen() or process.exitcode is not None, SECONDS)
    assert process.exitcode is None
    os.kill(process.pid, signal.SIGTERM)
    codes, text = wait_for([process]), log.read_text()
    assert codes == [os.EX_TEMPFAIL], text
    said = line_with(text, "SIGTERM", "checkpoint", os.EX_TEMPFAIL)
    updates = updates_of(last)
    assert_names(said, f"update {updates}", "same command")
