"""The process of a fine-tuning: what it checks, and what it leaves."""

import pytest
import torch

from fairseq_transnormer.reproduce import finetune_run
from fairseq_transnormer.reproduce.finetune_run import check, is_trained, main, slim
from tests.messages import assert_names, refuses

from .made import write_yaml


def test_checkpoints_of_the_users_stay(tmp_path):
    """A fine-tuning leaves its best weights alone, among fairseq's own names."""
    ours = ["checkpoint_last.pt", "checkpoint3.pt", "checkpoint_1_12.pt"]
    users = ["checkpoint_keep.pt", "checkpoint_average.pt"]
    state = {"model": {"w": torch.ones(1)}, "last_optimizer_state": {"step": 1}}
    for name in ("checkpoint_best.pt", *ours, *users):
        torch.save(state, tmp_path / name)
    assert not is_trained(tmp_path)
    slim(tmp_path)
    assert is_trained(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"checkpoint_best.pt", *users}
    best = torch.load(tmp_path / "checkpoint_best.pt", weights_only=True)
    assert best["last_optimizer_state"] is None and best["model"]["w"] == 1


def test_a_finished_training_is_not_repeated(tmp_path, monkeypatch, capsys):
    """As after a runner that was killed before it could note the end."""
    trained = []
    monkeypatch.setattr(finetune_run, "check", lambda configuration: None)
    monkeypatch.setattr(finetune_run, "train_file", trained.append)
    monkeypatch.setattr(finetune_run, "slim", trained.append)
    path, best = tmp_path / "config.yaml", tmp_path / "checkpoints/checkpoint_best.pt"
    path.write_text("{}")
    best.parent.mkdir()
    torch.save({"model": {}, "last_optimizer_state": None}, best)
    assert main(path) == 0 and not trained
    assert_names(capsys.readouterr().out, "checkpoint_best.pt", "finished")
    best.write_bytes(best.read_bytes()[:-100])
    assert not is_trained(best.parent)
    assert main(path) == 0 and trained == [path, best.parent]


@pytest.mark.parametrize("name", ["data", "classes", "checkpoint"])
def test_what_does_not_fit_is_told_before_any_training(place, tmp_path, name, capsys):
    cfg = {
        "task": {"data": str(place / "problem"), "num_classes": 2},
        "checkpoint": {"finetune_from_model": None},
        "model": {},
    }
    check(cfg)
    if name == "data":
        cfg["task"]["data"], parts = "/no/such", ["/no/such"]
    elif name == "classes":
        cfg["task"]["num_classes"], parts = 3, ["num_classes=3", 2]
    else:
        cfg["checkpoint"]["finetune_from_model"], parts = "/no/x.pt", ["/no/x.pt"]
    with refuses((OSError, ValueError), *parts):
        check(cfg)
    assert main(write_yaml(tmp_path / "config.yaml", cfg)) == 2
    assert_names(capsys.readouterr().err, *parts)
