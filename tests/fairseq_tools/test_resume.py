"""A killed run, started again, gives the losses of one that was not disturbed.

Of causal and of bidirectional models, whose masks are drawn; what else may happen to a
run is in tests/fairseq_patches.
"""

import signal

import pytest
import torch

from tests.fairseq_patches.accidents import WAITING
from tests.fairseq_patches.trainings import Training

SAVE_EVERY = 8
UPDATES = 24


@pytest.mark.parametrize(
    "arch",
    [
        "transnormer_t1_tiny",
        pytest.param("roberta_transnormer_t2_tiny", marks=pytest.mark.slow),
    ],
)
def test_resume_after_kill(arch, data_bin, tmp_path):
    options = {"max-update": UPDATES, "save-interval-updates": SAVE_EVERY}
    undisturbed = Training(data_bin, tmp_path / "undisturbed", 1, options, arch=arch)
    assert undisturbed.run() == [0], undisturbed.text()

    killed = Training(data_bin, tmp_path / "killed", 1, options, arch=arch)
    killed.start(("wait_before", SAVE_EVERY + 5, "/no/gate"))
    killed.wait_for(WAITING)
    killed.send(signal.SIGKILL)
    assert killed.wait() == [-signal.SIGKILL]
    assert max(killed.losses()) == SAVE_EVERY + 4

    assert killed.run() == [0], killed.text()
    resumed = killed.losses()
    assert "Loaded checkpoint" in killed.text()
    assert list(resumed) == list(range(SAVE_EVERY + 1, UPDATES + 1))
    assert resumed == {n: undisturbed.losses()[n] for n in resumed}
    last = [
        torch.load(run.save_dir / "checkpoint_last.pt", weights_only=True)["model"]
        for run in (undisturbed, killed)
    ]
    assert all(torch.equal(last[0][name], last[1][name]) for name in last[0])
