"""Pre-train an encoder and tune it with fairseq's sentence_prediction."""

import random

import pytest
import torch

from tests.binary_data import numbered_words, write_labelled_data
from tests.messages import refuses

from .conftest import fine_tuning_arguments, training_arguments

ARCH = "roberta_transnormer_t2_tiny"


@pytest.fixture(scope="module")
def sentences(tmp_path_factory):
    """Two classes by their words, as sentence_prediction reads them."""
    draw = random.Random(0)
    chosen = {
        split: [draw.randrange(2) for _ in range(n)]
        for split, n in (("train", 64), ("valid", 16))
    }
    text = {
        split: [
            " ".join(f"w{20 * label + draw.randrange(20)}" for _ in range(9 + i % 5))
            for i, label in enumerate(rows)
        ]
        for split, rows in chosen.items()
    }
    rows = {split: [str(label) for label in each] for split, each in chosen.items()}
    folder = tmp_path_factory.mktemp("sentences")
    return write_labelled_data(folder, numbered_words(40), text, "01", rows)


def test_pre_training_and_tuning(sentences, fairseq_tool, tmp_path):
    pre_trained, tuned = tmp_path / "pre", tmp_path / "tuned"
    options = training_arguments(ARCH, pre_trained, max_update=2)
    fairseq_tool("train", sentences / "input0", *options, "--cpu")
    reset = ("optimizer", "lr_scheduler", "dataloader", "meters")
    options = fine_tuning_arguments(
        ARCH,
        tuned,
        max_update=40,
        restore_file=pre_trained / "checkpoint_last.pt",
        **{f"reset_{each}": True for each in reset},
    )
    fairseq_tool("train", sentences, *options)
    state = torch.load(tuned / "checkpoint_best.pt", weights_only=False)
    heads = [key for key in state["model"] if key.startswith("classification_heads.")]
    assert any("sentence_classification_head.out_proj" in key for key in heads)
    assert state["extra_state"]["best"] > 80


@pytest.mark.parametrize("classes", [2, 3])
def test_a_head_that_was_never_trained_is_not_validated(
    classes, sentences, fairseq_tool, tmp_path
):
    """fairseq drops the trained one, with a warning, and scores random weights."""
    options = fine_tuning_arguments(ARCH, tmp_path, max_update=1)
    fairseq_tool("train", sentences, *options, "--disable-validation")
    path = tmp_path / "checkpoint_last.pt"
    command = ["validate", sentences, "--path", path, "--task", "sentence_prediction"]
    command += ["--criterion", "sentence_prediction", "--num-classes", classes]
    command += ["--init-token", 0, "--batch-size", 8, "--cpu"]
    if classes == 2:
        fairseq_tool(*command)
    else:
        with refuses(ValueError, path, "3 outputs", "2 outputs", "num_classes"):
            fairseq_tool(*command)
