"""fairseq-train with --compile-layers, beside the same without."""

import shutil

import pytest

from tests.forked_trainings import Training, logged


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler")
@pytest.mark.parametrize(
    ("arch", "criterion"),
    [
        ("transnormer_t2_tiny", "chunked_cross_entropy"),
        ("roberta_transnormer_t2_tiny", "chunked_masked_lm"),
    ],
)
def test_the_same_losses(data_bin, tmp_path, arch, criterion):
    """Dropout would be drawn otherwise."""
    options = {"criterion": criterion, "max-update": 3, "dropout": 0.0}
    options |= {"attention-dropout": 0.0, "disable-validation": True}
    losses = []
    for flags in ((), ("--compile-layers",)):
        folder = tmp_path / f"run{len(losses)}"
        training = Training(data_bin, folder, 1, options, flags, arch)
        assert training.run() == [0], training.text()
        steps = logged(training.text(), "train_inner")
        losses.append([float(step["loss"]) for step in steps])
    assert losses[1] == pytest.approx(losses[0], abs=2e-3)
