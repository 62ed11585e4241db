"""fairseq-validate of a classifier; test_labelled_data.py pre-trains and tunes one."""

import pytest

from tests.inference.problems import write_problem
from tests.messages import refuses

from .conftest import fine_tuning_arguments


@pytest.mark.parametrize("classes", [2, 3])
def test_a_head_that_was_never_trained_is_not_validated(
    classes, fairseq_tool, tmp_path
):
    """fairseq drops the trained one, with a warning, and scores random weights."""
    data = write_problem(tmp_path / "data")
    arch = "roberta_transnormer_t2_tiny"
    options = fine_tuning_arguments(arch, tmp_path, max_update=1)
    fairseq_tool("train", data, *options, "--disable-validation")
    path = tmp_path / "checkpoint_last.pt"
    command = ["validate", data, "--path", path, "--task", "sentence_prediction"]
    command += ["--criterion", "sentence_prediction", "--num-classes", classes]
    command += ["--init-token", 0, "--batch-size", 8, "--cpu"]
    if classes == 2:
        fairseq_tool(*command)
    else:
        with refuses(ValueError, path, "3 outputs", "2 outputs", "num_classes"):
            fairseq_tool(*command)
