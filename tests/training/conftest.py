"""Undisturbed runs to compare with."""

from pathlib import Path

import pytest
import torch

from tests.fairseq_tools.conftest import fairseq_tool as fairseq_tool
from tests.inference.models import train
from tests.tiny_data import write_tiny_data

from .trainings import Training

# that change no losses
HARMLESS = ("num_workers", "heartbeat_timeout", "min_loss_scale")
HARMLESS += ("--disable-validation", "no_last_checkpoints")


@pytest.fixture(scope="session")
def data(tmp_path_factory) -> Path:
    """Of 15 batches of the trainings."""
    return write_tiny_data(tmp_path_factory.mktemp("data"), lines=90)


@pytest.fixture(scope="session")
def trained(data, tmp_path_factory) -> Path:
    """The checkpoint of a tiny T2 of two updates, trained in this process.

    Copy its folder before a run resumes there.
    """
    folder = tmp_path_factory.mktemp("trained") / "checkpoints"
    return train(data, folder, "transnormer_t2_tiny", "--max-update", 2)


@pytest.fixture(scope="session")
def undisturbed(data, tmp_path_factory):
    """undisturbed(workers, flags, **options): a whole run that nothing happened to."""
    runs = {}

    def run(workers: int = 1, flags: tuple[str, ...] = (), **options) -> Training:
        key = (workers, flags, *sorted(options.items()))
        if key not in runs:
            folder = tmp_path_factory.mktemp("undisturbed") / "checkpoints"
            runs[key] = Training(data, folder, workers, options, flags)
            assert runs[key].run() == [0] * workers, runs[key].text()
        return runs[key]

    return run


@pytest.fixture
def training(data, tmp_path):
    """training(workers, flags, **options): a run, killed when the test ends."""
    made = []

    def make(workers: int = 1, flags: tuple[str, ...] = (), **options) -> Training:
        folder = tmp_path / "checkpoints"
        made.append(Training(data, folder, workers, options, flags))
        return made[-1]

    yield make
    for each in made:
        each.kill()


@pytest.fixture
def goes_on(undisturbed):
    """goes_on(training): started again, it gives what the undisturbed run gave.

    Returns the update that it went on from.
    """

    def check(training: Training) -> int:
        options = {k: v for k, v in training.options.items() if k not in HARMLESS}
        flags = tuple(each for each in training.flags if each not in HARMLESS)
        whole = undisturbed(training.workers, flags, **options)
        assert training.run() == [0] * training.workers, training.text()
        at, losses, expected = training.went_on_at(), training.losses(), whole.losses()
        assert losses == {n: expected[n] for n in range(at + 1, max(expected) + 1)}
        for update, loss in training.validations().items():
            assert loss == whole.validations()[update]
        ours, theirs = training.state(), whole.state()
        assert all(
            torch.equal(ours["model"][name], theirs["model"][name])
            for name in theirs["model"]
        )
        return at

    return check
