"""A killed run, started again, gives the losses of one that was not disturbed."""

import os
import signal
import subprocess
import sys
import time

import pytest
import torch

from tests.paths import USER_DIR

from .conftest import logged, training_arguments

SAVE_EVERY = 15
UPDATES = 60


def command(data_bin, arch, save_dir):
    return [
        sys.executable, "-m", "fairseq_cli.train", str(data_bin),
        "--user-dir", str(USER_DIR),
        *training_arguments(
            arch, save_dir, max_update=UPDATES, save_interval_updates=SAVE_EVERY,
            keep_interval_updates=2,
        ),
        "--no-epoch-checkpoints",
    ]  # fmt: skip


def losses(text):
    return {
        int(record["num_updates"]): (record["loss"], record["gnorm"])
        for record in logged(text, "train_inner")
    }


def run_to_the_end(arguments):
    process = subprocess.run(arguments, capture_output=True, text=True, timeout=300)
    text = process.stdout + process.stderr
    assert process.returncode == 0, text
    return text


@pytest.mark.parametrize("arch", ["transnormer_t1_tiny", "roberta_transnormer_t2_tiny"])
def test_resume_after_kill(arch, data_bin, tmp_path):
    undisturbed = losses(
        run_to_the_end(command(data_bin, arch, tmp_path / "undisturbed"))
    )

    log = tmp_path / "killed.log"
    with log.open("w") as stream:
        process = subprocess.Popen(
            command(data_bin, arch, tmp_path / "killed"),
            stdout=stream,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        deadline = time.monotonic() + 200
        while f'"num_updates": "{SAVE_EVERY + 7}"' not in log.read_text():
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert max(losses(log.read_text())) < UPDATES

    text = run_to_the_end(command(data_bin, arch, tmp_path / "killed"))
    resumed = losses(text)
    assert "Loaded checkpoint" in text
    assert min(resumed) % SAVE_EVERY == 1 and max(resumed) == UPDATES
    assert resumed == {n: undisturbed[n] for n in resumed}
    last = [
        torch.load(tmp_path / run / "checkpoint_last.pt", weights_only=True)["model"]
        for run in ("undisturbed", "killed")
    ]
    assert all(torch.equal(last[0][name], last[1][name]) for name in last[0])
