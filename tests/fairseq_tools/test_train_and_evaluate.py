"""fairseq-train and -validate with the plugin; tests/inference has -eval-lm."""

import json
import math

import pytest

from tests.messages import refuses

from .conftest import fairseq_command, training_arguments

ARCHS = {
    "language_modeling": "transnormer_t2_tiny",
    "masked_lm": "roberta_transnormer_t2_tiny",
}
# the rows of Table 4 train the others in every run
SLOW = (
    "transnormer_t1_tiny",
    "roberta_transnormer_t2_tiny",
    "flash_quad_tiny",
    "flash_tiny",
    "transformer_ls_tiny",
    "roberta_flash_quad_tiny",
    "roberta_flash_tiny",
    "roberta_transformer_ls_tiny",
)


@pytest.mark.parametrize(
    "arch",
    [
        *("transnormer_t2_tiny", "roberta_transnormer_t1_tiny"),
        *(pytest.param(arch, marks=pytest.mark.slow) for arch in SLOW),
    ],
)
def test_training_lowers_the_validation_loss(
    arch, data_bin, tmp_path, fairseq_tool, caplog
):
    caplog.set_level("INFO")
    options = {"validate_interval_updates": 6, "max_update": 18, "warmup_updates": 6}
    arguments = training_arguments(arch, tmp_path, **options)
    fairseq_tool("train", data_bin, *arguments)
    losses = [
        float(json.loads(record.message)["valid_loss"])
        for record in caplog.records
        if record.name == "valid"
    ]
    assert all(math.isfinite(loss) for loss in losses)
    assert losses[0] < math.log2(3000) and losses[-1] < losses[0]


@pytest.fixture
def trained(data_bin, tmp_path_factory, fairseq_tool):
    """Checkpoints of a tiny ALM and BLM."""
    paths = {}
    for arch in ARCHS.values():
        folder = tmp_path_factory.mktemp(arch)
        fairseq_tool("train", data_bin, *training_arguments(arch, folder, max_update=2))
        paths[arch] = folder / "checkpoint_last.pt"
    return paths


def test_trained_models_are_validated(trained, data_bin):
    for task, arch in ARCHS.items():
        options = ["--path", trained[arch], "--task", task, "--batch-size", 4]
        text = fairseq_command("validate", data_bin, *options)
        assert "valid on 'valid' subset" in text


def test_an_evaluation_of_nothing_is_refused(trained, data_bin, fairseq_tool):
    """fairseq leaves out what is longer than a model takes; ppl of nothing is 1."""
    path = trained[ARCHS["masked_lm"]]
    with refuses(ValueError, "of the tokens", "max_positions"):
        fairseq_tool(
            "validate", data_bin, "--task", "masked_lm", "--path", path, "--cpu",
            "--batch-size", 4, "--skip-invalid-size-inputs-valid-test",
            "--tokens-per-sample", 1024, "--sample-break-mode", "none",
        )  # fmt: skip
