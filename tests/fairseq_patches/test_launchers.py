"""SIGTERM reaches training through each way to start it."""

import json
import os
import signal
import sys
import time

import pytest
import torch

from fairseq_transnormer.data.training_records import LOG
from tests.messages import assert_names
from tests.paths import USER_DIR

from .accidents import ACCIDENTS, WAITING
from .trainings import CONTEXT, SECONDS, UPDATE_9, line_with, training_arguments

CONFIGURATION = """
# @package _global_
model: {{_name: transnormer_t2_tiny}}
task: {{_name: language_modeling, data: {data}, tokens_per_sample: 32}}
criterion: cross_entropy
common: {{user_dir: {user_dir}, cpu: true, log_format: json, log_interval: 1}}
dataset: {{batch_size: 4, num_workers: 0, required_batch_size_multiple: 1}}
optimizer: {{_name: adam, adam_betas: "(0.9, 0.98)"}}
lr_scheduler: {{_name: inverse_sqrt, warmup_updates: 20}}
optimization: {{lr: [0.003], max_update: 400}}
checkpoint: {{save_dir: checkpoints, save_interval_updates: 2}}
"""


def _redirect(log: str) -> None:
    os.setsid()
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(file, 1)
    os.dup2(file, 2)


def _hydra(log: str, folder: str) -> None:
    from fairseq_cli.hydra_train import cli_main

    _redirect(log)
    ACCIDENTS["wait_before"](3, f"{folder}/gate")
    sys.argv = ["fairseq-hydra-train", "--config-dir", folder]
    sys.argv += ["--config-name", "tiny", f"hydra.run.dir={folder}"]
    cli_main()


def _spawn(log: str, arguments: list[str]) -> None:
    from fairseq_cli.train import cli_main

    _redirect(log)
    torch.cuda.device_count = lambda: 2  # fairseq starts a worker for each GPU
    sys.argv = ["fairseq-train", *arguments]
    cli_main()


def started(target, log, *arguments):
    process = CONTEXT.Process(target=target, args=(str(log), *arguments))
    process.start()
    return process


def wait_for(process, log, text):
    deadline = time.monotonic() + SECONDS
    while not (log.exists() and text in log.read_text()):
        assert process.exitcode is None and time.monotonic() < deadline, log.read_text()
        time.sleep(0.05)


@pytest.fixture
def log(tmp_path):
    return tmp_path / "log"


def test_hydra(data, tmp_path, log):
    content = CONFIGURATION.format(data=data, user_dir=USER_DIR)
    (tmp_path / "tiny.yaml").write_text(content)
    process = started(_hydra, log, str(tmp_path))
    wait_for(process, log, WAITING)
    os.killpg(process.pid, signal.SIGTERM)
    (tmp_path / "gate").touch()
    process.join(SECONDS)
    assert process.exitcode == os.EX_TEMPFAIL, log.read_text()
    line_with(log.read_text(), "SIGTERM", "update 3", os.EX_TEMPFAIL)
    last = tmp_path / "checkpoints" / "checkpoint_last.pt"
    state = torch.load(last, weights_only=True)
    assert state["optimizer_history"][-1]["num_updates"] == 3
    records = [json.loads(each) for each in (last.parent / LOG).open()]
    steps = [each for each in records if each["kind"] == "train_inner"]
    assert [each["num_updates"] for each in steps] == [*range(1, 4)]


@pytest.mark.slow
def test_workers_that_fairseq_starts(data, tmp_path, log, tell):
    """Two, of which the process that was sent the signal is neither."""
    arguments = [
        str(data), "--user-dir", str(USER_DIR), "--cpu",
        *("--distributed-world-size", "2", "--distributed-backend", "gloo"),
        *("--ddp-backend", "legacy_ddp"),
        *training_arguments(
            "transnormer_t2_tiny", tmp_path / "checkpoints", tokens_per_sample=32,
            batch_size=4, max_update=100_000, save_interval_updates=8,
        ),
    ]  # fmt: skip
    process = started(_spawn, log, arguments)
    wait_for(process, log, UPDATE_9)
    os.kill(process.pid, signal.SIGTERM)
    process.join(SECONDS)
    text = log.read_text()
    assert process.exitcode == os.EX_TEMPFAIL, text
    said = line_with(text, "SIGTERM", "checkpoint", os.EX_TEMPFAIL)
    last = tmp_path / "checkpoints" / "checkpoint_last.pt"
    state = torch.load(last, weights_only=True)
    updates = state["optimizer_history"][-1]["num_updates"]
    assert_names(said, f"update {updates}", "same command")
    tell(
        "SIGTERM to the process that started two workers",
        [process.exitcode], updates, updates, said,
    )  # fmt: skip
