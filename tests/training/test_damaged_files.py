"""Damaged checkpoints give way to whole ones; damaged data stop a run at its start."""

import errno
import io
import os
import random
import shutil
from pathlib import Path

import pytest
import torch
from fairseq import checkpoint_utils

from fairseq_transnormer.checkpoints import files
from fairseq_transnormer.checkpoints.files import is_whole
from fairseq_transnormer.checkpoints.safe_loading import CheckpointError
from tests.messages import assert_names, refuses

from .trainings import line_with


def cut(path):
    path.write_bytes(path.read_bytes()[:-1000])


def flip(path):
    """Flip a bit in the middle, where the weights are; torch.load does not notice."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    torch.load(path, weights_only=True)


def lost(path):
    path.unlink()


@pytest.fixture
def finished(training, undisturbed):
    """finished(workers): a run whose last checkpoint is of update 9, with that of 6."""

    def make(workers=1):
        run = training(workers)
        shutil.copytree(undisturbed(workers).save_dir, run.save_dir)
        return run

    return make


@pytest.mark.parametrize(
    ("workers", "damage"),
    [
        *((1, flip), (2, lost)),
        *(
            pytest.param(*each, marks=pytest.mark.slow)
            for each in ((1, cut), (2, cut), (2, flip), (1, lost))
        ),
    ],
)
def test_a_damaged_last_checkpoint(finished, goes_on, damage, workers):
    run = finished(workers)
    last = run.save_dir / "checkpoint_last.pt"
    (newest,) = run.save_dir.glob("checkpoint_*_9.pt")
    (cut if damage is lost else damage)(newest)
    for path in (run.save_dir / "checkpoint_best.pt", last):
        damage(path)
    assert goes_on(run) == 6
    said = line_with(run.text(), last.name, "checkpoint_1_6.pt", "newest")
    kept = run.save_dir / f"{last.name}.damaged"
    assert kept.exists() == (kept.name in said) == (damage is not lost)


def test_no_whole_checkpoint_is_an_error(finished):
    run = finished()
    for path in run.save_dir.glob("*.pt"):
        flip(path)
    assert run.run() == [1]
    said = line_with(run.text(), "ValueError: ")
    assert_names(said, run.save_dir, "no complete checkpoint")
    assert not run.losses()
    assert (run.save_dir / "checkpoint_last.pt").exists()


@pytest.fixture
def damaged(tmp_path):
    """A folder whose last checkpoint is damaged and whose other one is not."""
    for name, update in (("checkpoint_1_8", 8), ("checkpoint_last", 16)):
        state = {"update": update, "model": {"a": torch.ones(999)}}
        torch.save(state, tmp_path / f"{name}.pt")
    flip(tmp_path / "checkpoint_last.pt")
    return tmp_path


def update_of(path):
    assert is_whole(path)
    return torch.load(path, weights_only=True)["update"]


def test_the_newest_is_the_one_of_the_most_updates(damaged):
    """Not the latest file: a copied folder has times in any order."""
    names = {21: "checkpoint_1_21", 35: "checkpoint_2_35", 28: "checkpoint_best"}
    for time, (updates, name) in enumerate(sorted(names.items(), reverse=True)):
        path = damaged / f"{name}.pt"
        state = {"update": updates, "optimizer_history": [{"num_updates": updates}]}
        torch.save({**state, "model": {"a": torch.ones(999)}}, path)
        os.utime(path, (time, time))
    flip(damaged / "checkpoint_2_35.pt")
    cut(damaged / "checkpoint_1_21.pt")
    foreign = {"model": {}, "optimizer_history": [{"num_updates": 99}]}
    torch.save(foreign, damaged / "checkpoint_pretrained.pt")
    assert files.repair_last_checkpoint(damaged) == damaged / "checkpoint_best.pt"
    assert update_of(damaged / "checkpoint_last.pt") == 28
    # fairseq would keep them, and remove newer ones than 28
    kept = {each.name for each in damaged.glob("*.damaged")}
    assert kept == {
        f"checkpoint_{name}.pt.damaged" for name in ("last", "2_35", "1_21")
    }


def test_a_full_disk_at_the_repair_leaves_it_to_be_done(damaged, monkeypatch):
    last = damaged / "checkpoint_last.pt"

    def full(*files):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(files, "copy_whole", full)
        with refuses(OSError, "No space left"):
            files.repair_last_checkpoint(damaged)
    assert last.exists()
    whole = files.repair_last_checkpoint(damaged)
    assert whole == damaged / "checkpoint_1_8.pt" and update_of(last) == 8


def test_a_kill_during_the_repair_leaves_it_to_be_done(damaged, monkeypatch):
    """Between the two renames there is no last checkpoint."""
    last, rename = damaged / "checkpoint_last.pt", os.replace

    def killed(source, target):
        if Path(target) == last:
            raise KeyboardInterrupt
        rename(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(files.os, "replace", killed)
        with pytest.raises(KeyboardInterrupt):
            files.repair_last_checkpoint(damaged)
    assert not last.exists()
    assert files.repair_last_checkpoint(damaged) == last
    assert update_of(last) == 8
    assert files.repair_last_checkpoint(damaged) is None


def test_a_flipped_bit_is_seen_wherever_fairseq_loads(damaged):
    """Evaluation, generation, and the checkpoint that a fine-tuning begins with."""
    load = checkpoint_utils.load_checkpoint_to_cpu
    last = damaged / "checkpoint_last.pt"
    with refuses(CheckpointError, last, "damaged", "CRC-32"):
        load(str(last))


def test_wherever_a_bit_flips_it_is_seen_or_does_no_harm(tmp_path):
    state = {"weights": torch.randn(50), "name": "model", "steps": [1, 2, 3]}
    buffer, path = io.BytesIO(), tmp_path / "checkpoint.pt"
    torch.save(state, buffer)
    whole, chance, seen = buffer.getvalue(), random.Random(0), 0
    path.write_bytes(whole)
    assert is_whole(path)
    for _ in range(400):
        content = bytearray(whole)
        content[chance.randrange(len(whole))] ^= 1 << chance.randrange(8)
        path.write_bytes(content)
        if is_whole(path):
            loaded = torch.load(path, weights_only=True)
            assert torch.equal(loaded.pop("weights"), state["weights"])
            assert loaded == {"name": "model", "steps": [1, 2, 3]}
        else:
            seen += 1
    assert seen > 100
    for length in range(0, len(whole), 97):
        path.write_bytes(whole[:length])
        assert not is_whole(path)


@pytest.mark.parametrize("suffix", ["bin", "idx"])
@pytest.mark.parametrize("shard", [0, 1])
def test_a_truncated_shard_stops_the_start(training, data, tmp_path, suffix, shard):
    folders = [tmp_path / "shard0", tmp_path / "shard1"]
    for folder in folders:
        shutil.copytree(data, folder)
    path = folders[shard] / f"train.{suffix}"
    path.write_bytes(path.read_bytes()[:-100])
    run = training()
    run.data = ":".join(map(str, folders))
    codes = run.run()
    assert codes == [1] and not run.losses()
    said = line_with(run.text(), "ValueError: ")
    assert_names(said, path, "truncated", "damaged")
