"""The task: folders it takes and refuses, and its step."""

import shutil
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from fairseq_transnormer.plugin.tasks.long_range_arena import (
    LongRangeArenaConfig,
    LongRangeArenaTask,
)
from tests.data_prep.commands import synthetic_lra as main
from tests.messages import refuses


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    dest = tmp_path_factory.mktemp("lra")
    small = ["--counts", "8", "4", "4", "--longest", "60"]
    assert main(["--dest", str(dest), *small]) == 0
    return dest


def setup(folder, **values):
    return LongRangeArenaTask.setup_task(
        LongRangeArenaConfig(data=str(folder), **values)
    )


def test_a_folder_says_what_its_examples_are(folder):
    for name, sequences, classes in (("text", 1, 2), ("retrieval", 2, 2)):
        task = setup(folder / name, arena=name)
        found = (task.vocabulary_size, task.num_classes, task.num_sequences)
        assert found == (256, classes, sequences)
    assert setup(folder / "image").num_classes == 10


@pytest.mark.parametrize(("limit", "expected"), [(1.0, 1.0), (0.0, 5.0)])
def test_the_step_clips_values(folder, limit, expected):
    parameter = torch.nn.Parameter(torch.zeros(1))
    parameter.grad = torch.tensor([5.0])
    seen = []
    optimizer = SimpleNamespace(
        optimizer=torch.optim.SGD([parameter]),
        step=lambda: seen.append(parameter.grad.item()),
    )
    setup(folder / "text", clip_value=limit).optimizer_step(optimizer, None, 0)
    assert seen == [expected]


@pytest.mark.parametrize("name", ["labels", "offsets.0"])
def test_arrays_of_other_lengths_are_named(folder, tmp_path, name):
    """Every label after a missing one would be another sequence's."""
    copied = shutil.copytree(folder / "text", tmp_path / "text")
    path = copied / f"train.{name}.npy"
    np.save(path, np.load(path)[:-1])
    with refuses(ValueError, copied / "train.tokens.0.bin", "damaged"):
        setup(copied).load_dataset("train")
