"""The process of a fine-tuning: what it checks, and what it leaves."""

from itertools import islice

import pytest
import torch

from fairseq_transnormer.reproduce import finetune_run
from fairseq_transnormer.reproduce.finetune import updates_of_training
from fairseq_transnormer.reproduce.finetune_run import check, is_trained, main, slim
from tests.messages import assert_names

from .made import write_yaml


def test_checkpoints_of_the_users_stay(tmp_path, monkeypatch, capsys):
    """A fine-tuning leaves its best weights alone, among fairseq's own names."""
    folder, path = tmp_path / "checkpoints", write_yaml(tmp_path / "config.yaml", {})
    best, users = (
        folder / "checkpoint_best.pt",
        {"checkpoint_keep.pt", "checkpoint_x.pt"},
    )
    state = {"model": {"w": torch.ones(1)}, "last_optimizer_state": {"step": 1}}
    folder.mkdir()
    for name in (best.name, "checkpoint_last.pt", "checkpoint_1_12.pt", *users):
        torch.save(state, folder / name)
    assert not is_trained(folder)
    slim(folder)
    assert is_trained(folder)
    assert {path.name for path in folder.iterdir()} == {best.name, *users}
    left = torch.load(best, weights_only=True)
    assert left["last_optimizer_state"] is None and left["model"]["w"] == 1
    # what is trained is not repeated, as after a runner that was killed
    trained = []
    monkeypatch.setattr(finetune_run, "check", lambda configuration: None)
    monkeypatch.setattr(finetune_run, "train_file", trained.append)
    monkeypatch.setattr(finetune_run, "slim", trained.append)
    assert main(path) == 0 and not trained
    assert_names(capsys.readouterr().out, best.name, "finished")
    best.write_bytes(best.read_bytes()[:-100])
    assert main(path) == 0 and trained == [path, folder]


def test_what_does_not_fit_is_told_before_any_training(place, tmp_path, capsys):
    task = {"data": str(place / "problem")}
    start = {"finetune_from_model": None}
    check({"task": task, "checkpoint": start, "model": {}})
    for changes, *parts in (
        ({"task": task | {"data": "/no/such"}}, "/no/such"),
        ({"checkpoint": {"finetune_from_model": "/no/x.pt"}}, "/no/x.pt"),
    ):
        cfg = {"task": task, "checkpoint": start, "model": {}} | changes
        assert main(write_yaml(tmp_path / "config.yaml", cfg)) == 2
        assert_names(capsys.readouterr().err, *parts)


@pytest.mark.parametrize("examples", [1, 7, 32, 33, 100])
@pytest.mark.parametrize(
    ("batch", "devices", "accumulated"), [(4, 1, 1), (4, 2, 3), (32, 1, 1), (5, 3, 2)]
)
def test_updates_are_those_of_three_epochs(examples, batch, devices, accumulated):
    updates = 0
    for _ in range(3):
        batches = iter(range(0, examples, batch))
        while [*islice(batches, devices * accumulated)]:
            updates += 1
    # a group of batches that is begun is an update
    assert updates_of_training(examples, batch, devices, accumulated, 3) == updates
