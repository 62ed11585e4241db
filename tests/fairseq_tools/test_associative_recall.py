"""A causal model learns to recall; its checkpoint has the logged accuracy."""

import shutil

import numpy as np
import pytest
import torch
from fairseq import checkpoint_utils

from fairseq_transnormer.analysis.training_log import parse_training_log
from fairseq_transnormer.data.recall import RecallLines
from fairseq_transnormer.plugin.tasks.associative_recall import RecallDataset
from tests.data_prep.commands import recall as make_recall
from tests.messages import refuses


def _flags(folder, values: dict) -> list[str]:
    flags = {
        "task": "associative_recall", "criterion": "partial_cross_entropy",
        "arch": "linear_transformer_tiny", "attention-types": "softmax*2",
        "ffn-type": "none", "dropout": 0, "optimizer": "adam", "lr": 0.01,
        "batch-size": 32, "seed": 1, "num-workers": 0, "log-format": "json",
        "required-batch-size-multiple": 1, "best-checkpoint-metric": "accuracy",
    }  # fmt: skip
    flags |= values
    words = [str(x) for key, value in flags.items() for x in (f"--{key}", value)]
    words += ["--stacked", "--maximize-best-checkpoint-metric"]
    return [str(folder), *words, "--no-epoch-checkpoints", "--cpu"]


def test_training_learns_and_its_checkpoint_comes_back(fairseq_tool, tmp_path):
    """Of four keys and values, stacked, softmax attention recalls most."""
    folder = tmp_path / "data"
    law = ["--vocabulary", "8", "--length", "8", "--pairs", "2"]
    counts = ["--counts", "3200", "50", "10"]
    assert make_recall(["--dest", str(folder), *law, *counts]) == 0
    values = {"pairs": 2, "max-update": 200, "save-interval-updates": 100}
    fairseq_tool("train", *_flags(folder, values | {"save-dir": tmp_path}))
    best = tmp_path / "checkpoint_best.pt"
    logged = torch.load(best, weights_only=False)["extra_state"]["best"]
    # a value that is in the line, at random: 50
    assert logged > 80
    right = _right(best, folder)
    assert logged == pytest.approx(100 * right.double().mean().item(), abs=1e-4)


def _right(checkpoint, folder) -> torch.Tensor:
    """Which values of the stacked lines of valid a checkpoint tells."""
    (model,), _, task = checkpoint_utils.load_model_ensemble_and_task([str(checkpoint)])
    lines = RecallLines(folder, "valid", stacked=True)
    inputs, targets = map(torch.from_numpy, (lines.inputs, lines.targets))
    model.eval()
    with torch.no_grad():
        predicted = model(inputs)[0].argmax(-1)
    told = targets.ne(task.target_dictionary.pad())
    return predicted[told] == targets[told]


@pytest.fixture(scope="module")
def mixture(tmp_path_factory):
    """Lines of one pair and of three, in folders 1 and 3."""
    folder = tmp_path_factory.mktemp("mixture")
    for pairs, counts in (("1", ["96", "12", "3"]), ("3", ["32", "7", "3"])):
        law = ["--vocabulary", "8", "--length", str(4 * int(pairs)), "--pairs", pairs]
        words = ["--dest", str(folder / pairs), *law, "--counts", *counts]
        assert make_recall(words) == 0
    return folder


def test_a_mixture_logs_the_accuracy_of_each_number_of_pairs(
    fairseq_tool, mixture, tmp_path
):
    values = {"mixture": "1,3", "max-tokens": 90, "max-update": 20}
    values |= {"save-dir": tmp_path, "max-epoch": 2}
    values["best-checkpoint-metric"] = "accuracy_3"
    fairseq_tool("train", *_flags(mixture, values))
    last = parse_training_log((tmp_path / "train.log").read_text())["valid"][-1]
    found = {
        pairs: _right(tmp_path / "checkpoint_last.pt", mixture / str(pairs)).double()
        for pairs in (1, 3)
    }
    assert {pairs: len(each) for pairs, each in found.items()} == {1: 12, 3: 21}
    for pairs, right in found.items():
        logged = float(last[f"valid_accuracy_{pairs}"])
        assert logged == pytest.approx(100 * right.mean().item(), abs=1e-3)
    every = 100 * torch.cat([*found.values()]).mean().item()
    assert float(last["valid_accuracy"]) == pytest.approx(every, abs=1e-4)


def test_a_part_that_is_not_evaluated_has_no_accuracy(fairseq_tool, mixture, tmp_path):
    """Batches of one pair come first."""
    values = {"mixture": "1,3", "max-update": 1, "save-dir": tmp_path}
    values |= {"max-valid-steps": 1, "batch-size-valid": 4}
    fairseq_tool("train", *_flags(mixture, values))
    (found,) = parse_training_log((tmp_path / "train.log").read_text())["valid"]
    assert "valid_accuracy_1" in found and "valid_accuracy_3" not in found


def test_batches_of_a_mixture_are_of_one_part_and_have_every_line_once(mixture):
    parts = {p: RecallLines(mixture / str(p), "train", stacked=True) for p in (1, 3)}
    dataset = RecallDataset(parts, shuffle=True)
    batches = dataset.batch_by_size(dataset.ordered_indices(), max_tokens=90)
    assert sorted(np.concatenate(batches)) == [*range(96 + 32)]
    assert {len(each) for each in batches} >= {30, 10}
    for numbers in batches:
        batch = dataset.collater([dataset[i] for i in numbers])
        first = 0 if batch["pairs"] == 1 else 96
        lines = parts[batch["pairs"]]
        assert batch["net_input"]["src_tokens"].numel() <= 2 * 90
        for number, inputs, targets in zip(
            numbers, batch["net_input"]["src_tokens"], batch["target"], strict=True
        ):
            assert (inputs.numpy() == lines.inputs[number - first]).all()
            assert (targets.numpy() == lines.targets[number - first]).all()


def test_other_folders_beside_a_mixture_are_not_its_data(
    fairseq_tool, mixture, tmp_path
):
    """A run resumes when another number of pairs has been prepared, not with it."""
    folder = tmp_path / "data"
    shutil.copytree(mixture, folder)
    values = {"mixture": "1,3", "max-tokens": 90, "max-update": 2}
    flags = _flags(folder, values | {"save-dir": tmp_path})
    flags += ["--disable-validation"]
    fairseq_tool("train", *flags)
    words = ["--dest", str(folder / "2"), "--pairs", "2", "--length", "8"]
    assert make_recall([*words, "--vocabulary", "24", "--counts", "9", "2", "2"]) == 0
    flags[flags.index("--max-update") + 1] = "3"
    fairseq_tool("train", *flags)
    last = torch.load(tmp_path / "checkpoint_last.pt", weights_only=False)
    assert last["optimizer_history"][-1]["num_updates"] == 3
    flags[flags.index("--mixture") + 1] = "1"
    with refuses(ValueError, "training data"):
        fairseq_tool("train", *flags)
