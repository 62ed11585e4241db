"""A training of a classifier learns; its checkpoint has the logged accuracy."""

import json
import shutil

import pytest
import torch
from fairseq import checkpoint_utils

from fairseq_transnormer.checkpoints.safe_loading import CheckpointError
from fairseq_transnormer.data.labelled_sequences import (
    MANIFEST,
    LabelledSequences,
    collate,
)
from tests.data_prep.commands import recall as make_recall
from tests.data_prep.commands import synthetic_lra as make_synthetic
from tests.messages import refuses


def test_training_learns_and_its_checkpoint_comes_back(fairseq_tool, tmp_path):
    """Which of two letters there are more of: far above chance in 120 updates."""
    folder = tmp_path / "data"
    small = ["--counts", "512", "61", "64", "--longest", "60"]
    assert make_synthetic(["--dest", str(folder), *small]) == 0
    flags = {
        "task": "long_range_arena", "arena": "text", "max-positions": 64,
        "criterion": "sequence_classification", "arch": "lra_transnormer_t2_tiny",
        "optimizer": "adam", "adam-betas": "(0.9,0.999)", "lr": 0.003,
        "lr-scheduler": "polynomial_decay", "total-num-update": 120,
        "warmup-updates": 10, "max-update": 120, "batch-size": 16, "seed": 1,
        "save-dir": tmp_path, "num-workers": 0, "log-format": "json",
        "required-batch-size-multiple": 1, "best-checkpoint-metric": "accuracy",
        "save-interval-updates": 60,
    }  # fmt: skip
    words = [str(x) for key, value in flags.items() for x in (f"--{key}", value)]
    words += ["--maximize-best-checkpoint-metric", "--no-epoch-checkpoints", "--cpu"]
    fairseq_tool("train", folder / "text", *words)
    best = tmp_path / "checkpoint_best.pt"
    logged = torch.load(best, weights_only=False)["extra_state"]["best"]
    assert logged > 85
    (model,), _, _ = checkpoint_utils.load_model_ensemble_and_task([str(best)])
    assert type(model).__name__ == "lra_transnormer_t2_tiny"
    # 61 examples in batches of 16, and of other sizes here: the same figure
    valid, correct = LabelledSequences(folder / "text", "valid"), 0
    model.eval()
    for start in range(0, 61, 7):
        batch = collate([valid[i] for i in range(start, min(start + 7, 61))])
        predicted = model(batch.tokens, batch.lengths).argmax(1)
        correct += (predicted == batch.labels).sum().item()
    assert logged == pytest.approx(100 * correct / 61, abs=1e-4)
    # the same files under another name: sizes match, and a figure would mean nothing
    other = tmp_path / "other"
    shutil.copytree(folder / "text", other)
    manifest = json.loads((other / MANIFEST).read_text())
    manifest["settings"]["data"] = "image"
    (other / MANIFEST).write_text(json.dumps(manifest))
    given = {"data": str(other), "arena": "any"}
    with refuses(CheckpointError, best, "text", "image"):
        checkpoint_utils.load_model_ensemble_and_task([str(best)], given)


@pytest.mark.parametrize("task", ["long_range_arena", "associative_recall"])
def test_a_split_of_another_name_trains_as_train_does(task, fairseq_tool, tmp_path):
    """--train-subset: its examples are shuffled, too."""
    folder = tmp_path / "data"
    model = {"criterion": "sequence_classification", "arch": "lra_transnormer_t2_tiny"}
    if task == "associative_recall":
        law = ["--vocabulary", "8", "--length", "8", "--pairs", "2"]
        assert (
            make_recall(["--dest", str(folder), *law, "--counts", "48", "9", "9"]) == 0
        )
        model = {"criterion": "partial_cross_entropy", "arch": "transnormer_t2_tiny"}
    else:
        small = ["--counts", "48", "9", "9", "--longest", "60"]
        assert make_synthetic(["--dest", str(tmp_path), *small]) == 0
        (tmp_path / "text").rename(folder)
    for file in folder.glob("train.*"):
        shutil.copy(file, folder / file.name.replace("train", "valid", 1))
    manifest = folder / MANIFEST
    if manifest.exists():
        found = json.loads(manifest.read_text())
        found["splits"]["valid"] = found["splits"]["train"]
        manifest.write_text(json.dumps(found))
    flags = model | {
        "task": task, "optimizer": "adam", "lr": 0.003, "max-update": 8,
        "batch-size": 16, "seed": 1, "num-workers": 0, "dropout": 0,
    }  # fmt: skip
    words = [str(x) for key, value in flags.items() for x in (f"--{key}", value)]
    words += ["--cpu", "--disable-validation", "--no-epoch-checkpoints"]
    weights = []
    for split in ("train", "valid"):
        where = ["--train-subset", split, "--save-dir", tmp_path / split]
        fairseq_tool("train", folder, *words, *where)
        path = tmp_path / split / "checkpoint_last.pt"
        weights.append(torch.load(path, weights_only=False)["model"])
    torch.testing.assert_close(*weights, rtol=0, atol=0)
    # fairseq's default divides by all tokens
    words[words.index("--criterion") + 1] = "cross_entropy"
    with refuses(ValueError, "CrossEntropyCriterion", model["criterion"]):
        fairseq_tool("train", folder, *words, "--save-dir", tmp_path / "new")
