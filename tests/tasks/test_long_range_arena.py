"""The task: folders it takes and refuses, and a training that learns."""

import re
from types import SimpleNamespace

import pytest
import torch
from fairseq import checkpoint_utils

from data_prep.lra_stand_ins import main
from fairseq_transnormer.labelled_sequences import LabelledSequences, collate
from fairseq_transnormer.tasks.long_range_arena import (
    LongRangeArenaConfig,
    LongRangeArenaTask,
)
from tests.fairseq_tools.conftest import fairseq_tool  # noqa: F401 (a fixture)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    dest = tmp_path_factory.mktemp("lra")
    small = ["--counts", "512", "61", "64", "--longest", "60"]
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
    with pytest.raises(ValueError, match="data of 'text'; allowed with arena=listops"):
        setup(folder / "text", arena="listops")
    with pytest.raises(ValueError, match="manifest.json.*data_prep.lra makes it"):
        setup(tmp_path)
    (tmp_path / "manifest.json").write_text('{"format": "other"}')
    with pytest.raises(ValueError, match="format 'other'; allowed"):
        setup(tmp_path)
    with pytest.raises(ValueError, match="max_positions=50; allowed for .*: from 60"):
        setup(folder / "text", max_positions=50)
    with pytest.raises(ValueError, match="split='dev' of .*; allowed: train"):
        setup(folder / "text").load_dataset("dev")


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


def test_training_learns_and_its_checkpoint_comes_back(
    folder,
    fairseq_tool,  # noqa: F811
    tmp_path,
    caplog,
):
    """Which of two letters there are more of: far above chance in 120 updates."""
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
    (model,), _, task = checkpoint_utils.load_model_ensemble_and_task([str(best)])
    assert type(model).__name__ == "lra_transnormer_t2_tiny"
    # 61 examples in batches of 16, and of other sizes here: the same figure
    valid, correct = LabelledSequences(folder / "text", "valid"), 0
    model.eval()
    for start in range(0, 61, 7):
        batch = collate([valid[i] for i in range(start, min(start + 7, 61))])
        predicted = model(batch.tokens, batch.lengths).argmax(1)
        correct += (predicted == batch.labels).sum().item()
    assert logged == pytest.approx(100 * correct / 61, abs=1e-4)
    assert re.search("max_positions", str(task.cfg))
