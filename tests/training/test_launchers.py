"""SIGTERM reaches training through each way to start it."""

import json
import os
import signal
import time

import pytest
import torch

from fairseq_transnormer.data.training_records import LOG
from tests.forked_trainings import Call, start_command, wait_for
from tests.messages import assert_names
from tests.paths import USER_DIR

from .trainings import ACCIDENTS, SECONDS, UPDATE_9, line_with, training_arguments

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


def updates_of(path) -> int:
    state = torch.load(path, weights_only=True)
    return state["optimizer_history"][-1]["num_updates"]


def test_hydra(data, tmp_path):
    content = CONFIGURATION.format(data=data, user_dir=USER_DIR)
    (tmp_path / "tiny.yaml").write_text(content)
    words = ["--config-dir", tmp_path, "--config-name", "tiny"]
    words += [f"hydra.run.dir={tmp_path}"]
    log, signalled = tmp_path / "log", (3, signal.SIGTERM)
    call = Call(ACCIDENTS, "signalled_before", signalled)
    process = start_command("hydra_train", words, log, before=[call])
    assert wait_for([process]) == [os.EX_TEMPFAIL], log.read_text()
    line_with(log.read_text(), "SIGTERM", "update 3", os.EX_TEMPFAIL)
    last = tmp_path / "checkpoints" / "checkpoint_last.pt"
    assert updates_of(last) == 3
    records = [json.loads(each) for each in (last.parent / LOG).open()]
    steps = [each for each in records if each["kind"] == "train_inner"]
    assert [each["num_updates"] for each in steps] == [1, 2, 3]


def two_gpus() -> None:
    """fairseq starts a worker for each."""
    torch.cuda.device_count = lambda: 2


@pytest.mark.slow
def test_workers_that_fairseq_starts(data, tmp_path, tell):
    """Two, of which the process that was sent the signal is neither."""
    last, log = tmp_path / "checkpoints" / "checkpoint_last.pt", tmp_path / "log"
    words = training_arguments(
        "transnormer_t2_tiny", last.parent, tokens_per_sample=32, batch_size=4,
        max_update=100_000, save_interval_updates=8, distributed_world_size=2,
        distributed_backend="gloo", ddp_backend="legacy_ddp",
    )  # fmt: skip
    call = Call(__name__, "two_gpus")
    process = start_command("train", [data, *words], log, before=[call])
    deadline = time.monotonic() + SECONDS
    while not (log.exists() and UPDATE_9 in log.read_text()):
        assert process.exitcode is None and time.monotonic() < deadline
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGTERM)
    codes, text = wait_for([process]), log.read_text()
    assert codes == [os.EX_TEMPFAIL], text
    said = line_with(text, "SIGTERM", "checkpoint", os.EX_TEMPFAIL)
    updates = updates_of(last)
    assert_names(said, f"update {updates}", "same command")
    fault = "SIGTERM to the process that started two workers"
    tell(fault, codes, updates, updates, said)
