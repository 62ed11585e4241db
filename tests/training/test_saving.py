"""Saving: a second attempt starts anew, and no loss that is NaN stays the best."""

import errno
import types
from pathlib import Path

import pytest
import torch
from fairseq.dataclass.configs import CheckpointConfig

from fairseq_transnormer.checkpoints import files
from fairseq_transnormer.training import checkpointer
from fairseq_transnormer.training.start import Start
from fairseq_transnormer.training.trainer import Trainer
from tests.messages import refuses


@pytest.fixture
def failing(monkeypatch):
    """failing(number, times): writes that end in this error after some bytes."""
    monkeypatch.setattr(files, "SECONDS_BETWEEN_ATTEMPTS", 0)

    def make(number, times):
        left = [times]

        def save(state, file):
            file.write(b"half of a checkpoint")
            if left[0]:
                left[0] -= 1
                raise OSError(number, "as it may be")
            file.seek(0)
            torch.serialization.save(state, file)

        monkeypatch.setattr(files, "torch", types.SimpleNamespace(save=save))
        return left

    return make


def test_a_passing_fault_leaves_a_whole_checkpoint(failing, tmp_path):
    failing(errno.EIO, 2)
    path = tmp_path / "checkpoint_last.pt"
    files.write_checkpoint(path, {"a": torch.ones(3)})
    assert files.is_whole(path)
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize(("number", "attempts"), [(errno.EIO, 3), (errno.ENOSPC, 1)])
def test_one_that_stays_leaves_the_old_checkpoint(failing, tmp_path, number, attempts):
    path = tmp_path / "checkpoint_last.pt"
    path.write_bytes(b"old")
    left = failing(number, 9)
    with refuses(OSError, path, "cannot be written", "as it may be", "MB") as end:
        files.write_checkpoint(path, {})
    assert end.value.errno == number and left == [9 - attempts]
    assert path.read_bytes() == b"old"
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


@pytest.fixture
def saves(tmp_path):
    """saves(settings) gives save(updates, score, is_end), which saves a checkpoint."""

    def begin(**settings):
        checkpoint = CheckpointConfig(save_dir=str(tmp_path), **settings)
        trainer = types.SimpleNamespace(
            cfg=types.SimpleNamespace(checkpoint=checkpoint),
            checkpoint_suffix="", task=None, consolidate_optimizer=int,
            should_save_checkpoint_on_current_rank=True,
            save_checkpoint=lambda path, state: Path(path).write_text(
                str(trainer.get_num_updates())
            ),
        )  # fmt: skip
        run = checkpointer.Checkpointer(trainer)
        run.start = Start({})

        def save(updates, score, is_end=True):
            trainer.get_num_updates = lambda: updates
            epochs = types.SimpleNamespace(
                epoch=1, end_of_epoch=lambda: is_end, state_dict=dict, num_shards=1,
                frozen_batches=(),
            )  # fmt: skip
            run.save(epochs, score)

        return save

    return begin


@pytest.mark.parametrize("metric", ["loss", "ppl", "correlation"])
def test_a_validation_that_is_nan_is_not_the_best(tmp_path, saves, metric):
    save = saves(best_checkpoint_metric=metric)
    with refuses(FloatingPointError, f"validation {metric}", "nan", "update 7"):
        save(7, float("nan"))
    assert not list(tmp_path.iterdir())
    save(8, 100.0)
    assert (tmp_path / "checkpoint_best.pt").exists()


@pytest.mark.parametrize("value", ["nan", "inf"])
def test_weights_that_are_nan_are_not_saved(tmp_path, value):
    """One of them among others, in the second of two."""
    model = torch.nn.Linear(3, 3)
    trainer = Trainer.__new__(Trainer)
    trainer.get_model, trainer.get_num_updates = lambda: model, lambda: 7
    trainer._check_weights("x")
    with torch.no_grad():
        model.bias[1] = float(value)
    path = tmp_path / "checkpoint_last.pt"
    with refuses(FloatingPointError, "NaN", "update 7", "bias", path):
        trainer.save_checkpoint(str(path), {})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("metric", ["loss", "ppl"])
def test_a_perplexity_may_be_infinite(tmp_path, saves, metric):
    """Of a loss above 1,000 it is; the loss itself is not."""
    save = saves(best_checkpoint_metric=metric)
    if metric == "loss":
        with refuses(FloatingPointError, "validation loss", "inf"):
            save(7, float("inf"))
        return
    save(7, float("inf"))
    save(8, 100.0)
    best = tmp_path / "checkpoint_best.pt"
    assert best.read_text() == "8"


def test_the_best_is_written_before_what_counts_it_as_written(
    tmp_path, saves, monkeypatch
):
    """A disk that is full after one file: a resumed run would never write it."""

    def no_copy(path, target):
        raise OSError(errno.ENOSPC, target)

    monkeypatch.setattr(checkpointer, "copy_checkpoint", no_copy)
    with pytest.raises(OSError):
        saves(save_interval_updates=7)(7, 3.0)
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint_best.pt"]


@pytest.mark.parametrize("maximize", [True, False])
@pytest.mark.parametrize(
    "scores",
    [
        (-38.3, -33.8, -10.4, 6.6, 22.2),
        (22.2, 6.6, -10.4, -33.8, -38.3),
        (6.6, -10.4, 22.2, -38.3, -33.8),
        (5.71149, 5.7112, 0.00012, 5.71105, 5.7112, 0.00031),
    ],
)
def test_the_best_are_kept_whatever_their_order_and_sign(
    tmp_path, saves, maximize, scores
):
    """--keep-best-checkpoints by a correlation, which is negative at first."""
    save = saves(
        best_checkpoint_metric="mcc", keep_best_checkpoints=2,
        maximize_best_checkpoint_metric=maximize, no_epoch_checkpoints=True,
    )  # fmt: skip
    for i, score in enumerate(scores, 1):
        save(i, score)
        found = tmp_path.glob("checkpoint.best_*")
        values = sorted(float(each.stem.rpartition("_")[2]) for each in found)
        expected = sorted(sorted(scores[:i], reverse=maximize)[:2])
        assert values == pytest.approx(expected, abs=1e-8)


def test_a_folder_that_was_moved_away_is_made_again(tmp_path, saves):
    """What has been trained since would be lost."""
    save = saves(keep_best_checkpoints=1)
    save(7, 3.0)
    tmp_path.rename(tmp_path.with_name("moved"))
    save(8, 2.0)
    assert (tmp_path / "checkpoint_last.pt").exists()


@pytest.mark.parametrize("last", [True, False])
def test_a_checkpoint_at_an_epochs_end_is_written(tmp_path, saves, last):
    save = saves(
        no_epoch_checkpoints=True, no_last_checkpoints=not last,
        save_interval_updates=7, keep_interval_updates=3,
    )  # fmt: skip
    for updates in range(7, 43, 7):
        save(updates, None, is_end=updates % 14 == 0)
    names = {path.name for path in tmp_path.iterdir()}
    kept = {f"checkpoint_1_{updates}.pt" for updates in (28, 35, 42)}
    assert names == kept | ({"checkpoint_last.pt"} if last else set())


NONE = ("--no-epoch-checkpoints", "--no-last-checkpoints")


@pytest.mark.parametrize(
    ("flags", "options", "leaves"),
    [
        (NONE, {"max_epoch": 1, "save_interval_updates": 100}, 15),
        (NONE, {"max_update": 4, "validate_after_updates": 9}, 4),
        (NONE, {"max_update": 4, "save_interval_updates": 0}, 4),
        ((*NONE, "--no-save"), {"max_update": 4}, 0),
    ],
)
def test_no_run_ends_without_a_checkpoint(training, flags, options, leaves):
    options = {"max_update": None, "keep_interval_updates": None, **options}
    run = training(1, (*flags, "--disable-validation"), **options)
    run.options["no_epoch_checkpoints"] = None
    assert run.run() == [0], run.text()
    found = [run.updates_of(path.name) for path in run.save_dir.glob("*.pt")]
    assert max(found, default=0) == leaves
