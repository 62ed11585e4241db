"""A causal model learns to recall; its checkpoint has the logged accuracy."""

import pytest
import torch
from fairseq import checkpoint_utils

from data_prep.symbols.recall import main as make_recall
from fairseq_transnormer.data.recall import RecallLines


def test_training_learns_and_its_checkpoint_comes_back(fairseq_tool, tmp_path):
    """Of four keys and values, stacked, softmax attention recalls most."""
    folder = tmp_path / "data"
    law = ["--vocabulary", "8", "--length", "8", "--pairs", "2"]
    counts = ["--counts", "3200", "50", "10"]
    assert make_recall(["--dest", str(folder), *law, *counts]) == 0
    flags = {
        "task": "associative_recall", "pairs": 2, "criterion": "partial_cross_entropy",
        "arch": "linear_transformer_tiny", "attention-types": "softmax*2",
        "ffn-type": "none", "dropout": 0, "optimizer": "adam", "lr": 0.01,
        "max-update": 200, "batch-size": 32, "seed": 1, "save-dir": tmp_path,
        "num-workers": 0, "log-format": "json", "required-batch-size-multiple": 1,
        "best-checkpoint-metric": "accuracy", "save-interval-updates": 100,
    }  # fmt: skip
    words = [str(x) for key, value in flags.items() for x in (f"--{key}", value)]
    words += ["--stacked", "--maximize-best-checkpoint-metric"]
    words += ["--no-epoch-checkpoints", "--cpu"]
    fairseq_tool("train", folder, *words)
    best = tmp_path / "checkpoint_best.pt"
    logged = torch.load(best, weights_only=False)["extra_state"]["best"]
    # a value that is in the line, at random: 50
    assert logged > 80
    (model,), _, task = checkpoint_utils.load_model_ensemble_and_task([str(best)])
    lines = RecallLines(folder, "valid", stacked=True)
    inputs, targets = map(torch.from_numpy, (lines.inputs, lines.targets))
    model.eval()
    with torch.no_grad():
        predicted = model(inputs)[0].argmax(-1)
    told = targets.ne(task.target_dictionary.pad())
    right = predicted[told] == targets[told]
    assert logged == pytest.approx(100 * right.double().mean().item(), abs=1e-4)
