"""Trainings with the chunked criterions beside trainings with fairseq's own."""

import pytest
import torch

from tests.forked_trainings import Training, logged

UPDATES = 4
# float32; what a rounding of half precision makes of a loss
CLOSE, ROUNDED = 2e-3, 2e-2
KINDS = {
    "transnormer_t2_tiny": ("cross_entropy", "chunked_cross_entropy"),
    "roberta_transnormer_t1_tiny": ("masked_lm", "chunked_masked_lm"),
}


class ShortTraining(Training):
    """A few updates, and a validation after them."""

    DEFAULTS = {"max-update": UPDATES, "batch-size": 4, "disable-validation": None}


def trained(data, folder, criterion, arch, workers, options, flags):
    options = options | {"criterion": criterion}
    training = ShortTraining(data, folder, workers, options, flags, arch)
    assert training.run() == [0] * workers, training.text()
    steps = logged(training.text(), "train_inner")[:UPDATES]
    (valid,) = logged(training.logs[0].read_text(), "valid")
    kept = {"loss", "ppl", "num_updates", "wpb", "bsz"}
    steps = [{k: float(v) for k, v in step.items() if k in kept} for step in steps]
    valid = {k: float(v) for k, v in valid.items() if k.removeprefix("valid_") in kept}
    weights = torch.load(folder / "checkpoint_last.pt", weights_only=True)["model"]
    return steps, valid, weights


@pytest.mark.parametrize(
    ("arch", "workers", "options", "flags", "close"),
    [
        ("transnormer_t2_tiny", 1, {"update-freq": 2}, ("--fp16",), ROUNDED),
        ("roberta_transnormer_t1_tiny", 2, {}, (), CLOSE),
    ],
    ids=str,
)
def test_the_same_training(data_bin, tmp_path, arch, workers, options, flags, close):
    theirs, ours = (
        trained(data_bin, tmp_path / name, name, arch, workers, options, flags)
        for name in KINDS[arch]
    )
    assert len(ours[0]) == UPDATES
    for one, other in zip((*ours[0], ours[1]), (*theirs[0], theirs[1]), strict=True):
        assert one.keys() == other.keys()
        assert one == pytest.approx(other, rel=close, abs=close)
    if close == CLOSE:
        for name, weight in ours[2].items():
            torch.testing.assert_close(weight, theirs[2][name], rtol=1e-2, atol=2e-4)


def test_a_run_of_fairseqs_criterion_is_resumed(data_bin, tmp_path):
    """And back: checkpoints do not know them apart."""
    arch = "transnormer_t2_tiny"
    for i, criterion in enumerate((*KINDS[arch], KINDS[arch][0])):
        options = {"criterion": criterion, "max-update": 2 * i + 2}
        training = ShortTraining(data_bin, tmp_path / "run", 1, options, (), arch)
        assert training.run() == [0], training.text()
    # their log is one
    steps = logged(training.text(), "train_inner")
    assert [int(step["num_updates"]) for step in steps] == [1, 2, 3, 4, 5, 6]
