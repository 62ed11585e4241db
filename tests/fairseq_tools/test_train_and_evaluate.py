"""fairseq-train, -validate, -eval-lm and -generate with the plugin, unchanged."""

import json
import math

import pytest
import torch
from fairseq import checkpoint_utils

from tests.messages import refuses

from .conftest import fairseq_command, training_arguments

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
    for arch in ("transnormer_t2_tiny", "roberta_transnormer_t2_tiny"):
        folder = tmp_path_factory.mktemp(arch)
        fairseq_tool("train", data_bin, *training_arguments(arch, folder, max_update=2))
        paths[arch] = folder / "checkpoint_last.pt"
    return paths


def test_tools_of_evaluation_run_on_a_trained_model(trained, data_bin):
    alm = trained["transnormer_t2_tiny"]
    one = ["--required-batch-size-multiple", 1]

    text = fairseq_command(
        "eval_lm", data_bin, "--path", alm, "--tokens-per-sample", 64, *one
    )
    reported = float(text.split("Loss (base 2): ")[1].split(",")[0])
    assert reported == pytest.approx(exact_bits_per_token(alm, data_bin), abs=2e-4)

    for arch, task in (
        ("transnormer_t2_tiny", "language_modeling"),
        ("roberta_transnormer_t2_tiny", "masked_lm"),
    ):
        text = fairseq_command(
            "validate", data_bin, "--path", trained[arch], "--task", task,
            "--batch-size", 4, *one,
        )  # fmt: skip
        assert "valid on 'valid' subset" in text

    fairseq_command(
        "generate", data_bin, "--path", alm, "--task", "language_modeling",
        "--beam", 3, "--prefix-size", 4, "--gen-subset", "valid",
        "--sample-break-mode", "eos", "--tokens-per-sample", 64,
        "--max-len-b", 10, "--batch-size", 16, "--results-path", alm.parent,
    )  # fmt: skip
    results = (alm.parent / "generate-valid.txt").read_text(encoding="utf-8")
    assert results.count("\nH-") >= 90


def exact_bits_per_token(path, data_bin) -> float:
    """The test split's loss, block by block, without fairseq's scorer."""
    from fairseq.data import data_utils

    models, _, task = checkpoint_utils.load_model_ensemble_and_task(
        [str(path)], arg_overrides={"data": str(data_bin)}
    )
    model = models[0].eval()
    dataset = data_utils.load_indexed_dataset(
        str(data_bin / "test"), task.source_dictionary, "mmap"
    )
    stream = torch.cat([dataset[i] for i in range(len(dataset))]).long()
    eos = torch.tensor([task.source_dictionary.eos()])
    inputs, targets = torch.cat((eos, stream[:-1])), stream
    total = 0.0
    with torch.no_grad():
        for start in range(0, len(stream), 64):
            block = slice(start, start + 64)
            logits, _ = model(inputs[None, block])
            total += torch.nn.functional.cross_entropy(
                logits[0].double(), targets[block], reduction="sum"
            ).item()
    return total / len(stream) / math.log(2)


def test_an_evaluation_of_nothing_is_refused(trained, data_bin, fairseq_tool):
    """fairseq leaves out what is longer than a model takes; ppl of nothing is 1."""
    path = trained["roberta_transnormer_t2_tiny"]
    with refuses(ValueError, "of the tokens", "max_positions"):
        fairseq_tool(
            "validate", data_bin, "--task", "masked_lm", "--path", path, "--cpu",
            "--batch-size", 4, "--skip-invalid-size-inputs-valid-test",
            "--tokens-per-sample", 1024, "--sample-break-mode", "none",
        )  # fmt: skip
