"""The task: folders it takes and refuses, and its step."""

import json
import shutil
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from fairseq_transnormer.data.labelled_sequences import FORMAT
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


def test_other_folders_are_refused(folder, tmp_path):
    with refuses(ValueError, folder / "text", "'text'", "arena=listops", "'listops'"):
        setup(folder / "text", arena="listops")
    with refuses(OSError, tmp_path / "manifest.json"):
        setup(tmp_path)
    (tmp_path / "manifest.json").write_text('{"format": "other"}')
    with refuses(ValueError, tmp_path / "manifest.json", "'other'", repr(FORMAT)):
        setup(tmp_path)
    splits = json.loads((folder / "text" / "manifest.json").read_text())["splits"]
    longest = max(split["longest"] for split in splits.values())
    with refuses(ValueError, "max_positions=20", folder / "text", f"from {longest}"):
        setup(folder / "text", max_positions=20)
    with refuses(ValueError, "split='dev'", folder / "text", *splits):
        setup(folder / "text").load_dataset("dev")


@pytest.mark.parametrize(
    ("name", "place", "value", "allowed"),
    [
        ("train.tokens.0.bin", 7, 200, "below 10"),
        ("train.labels.npy", -1, 5, "below 2"),
    ],
)
def test_numbers_beyond_what_the_folder_declares_are_named(
    folder, tmp_path, name, place, value, allowed
):
    """Embeddings and classes end there: a batch would, hours later."""
    copied = shutil.copytree(folder / "text", tmp_path / "text")
    path = copied / "manifest.json"
    manifest = json.loads(path.read_text())
    if "tokens" in name:
        # what the texts do not pass
        manifest["vocabulary"] = 10
        for part in copied.glob("*.tokens.0.bin"):
            np.memmap(part, np.uint8, "r+")[:] %= 10
        path.write_text(json.dumps(manifest))
        np.memmap(copied / name, np.uint8, "r+")[place] = value
    else:
        np.load(copied / name, mmap_mode="r+")[place] = value
    setup(copied).load_dataset("valid")
    with refuses(ValueError, copied / name, value, allowed):
        setup(copied).load_dataset("train")


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


@pytest.mark.parametrize(
    ("name", "change", "allowed"),
    [
        # every label after a missing one would be another sequence's
        ("labels", lambda labels: labels[:-1], "8 entries"),
        ("labels", lambda labels: labels.astype(np.int8) - 5, "below 2"),
        ("offsets.0", lambda offsets: offsets[:-1], "9 entries"),
    ],
)
def test_other_arrays_than_the_manifest_counts_are_named(
    folder, tmp_path, name, change, allowed
):
    copied = shutil.copytree(folder / "text", tmp_path / "text")
    path = copied / f"train.{name}.npy"
    np.save(path, change(np.load(path)))
    with refuses(ValueError, path, allowed):
        setup(copied).load_dataset("train")
