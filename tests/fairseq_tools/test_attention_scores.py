"""Figure 2 from checkpoints: ours, a linear encoder, and fairseq's own transformer."""

import json

import pytest
import torch

from fairseq_transnormer.checkpoints.identity import weights_fingerprint
from tests.commands import command
from tests.messages import command_refuses, lines_naming

from .conftest import training_arguments


@pytest.fixture
def checkpoint(data_bin, tmp_path, fairseq_tool):
    def train(arch, **options):
        arguments = training_arguments(arch, tmp_path / arch, max_update=1, **options)
        fairseq_tool("train", data_bin, *arguments, "--disable-validation")
        return tmp_path / arch / "checkpoint_last.pt"

    return train


def test_curves_and_maps_of_several_models(checkpoint, data_bin, tmp_path, capsys):
    models = {
        "T1": checkpoint("transnormer_t1_tiny"),
        "vanilla": checkpoint("vanilla_transformer_tiny"),
        "BLM": checkpoint("roberta_transnormer_t2_tiny"),
    }
    length, folder = 40, tmp_path / "figures"
    arguments = [f"{name}={path}" for name, path in models.items()]
    arguments += ["--data", data_bin, "--output", folder, "--sequences", 2]
    arguments += ["--length", length, "--layers", 1]
    attention_scores = command("analyse", "attention_scores")
    assert attention_scores(arguments) == 0
    assert lines_naming(capsys.readouterr().out, "T1", "area")
    results = json.loads((folder / "curves.json").read_text())
    layers = [f"stack.layers.{i}.attention" for i in (0, 1)]
    for name in models:
        assert list(results[name]["attentions"]) == layers
        assert results[name]["weights"] == weights_fingerprint(models[name])
        for each in results[name]["attentions"].values():
            curve = torch.tensor(each["curve"])
            assert curve[0] == 0 and curve[-1] == pytest.approx(1)
            # ReLU leaves rows of T1 without any weight
            assert name == "T1" or each["rows_with_weight"] == 1
            assert each["rows_with_weight"] > 0.5
    # nothing is seen outside a block of 8: all weight is inside 16 tokens of 40
    inside = results["BLM"]["attentions"]["stack.layers.0.attention"]
    assert inside["curve"][40] == pytest.approx(1)
    assert results["BLM"]["evenly_spread"]["area"] == pytest.approx(0.5, abs=0.01)
    for image in ("curves.png", "maps.png"):
        assert (folder / image).read_bytes().startswith(b"\x89PNG")

    for option, value, *parts in (
        ("--length", 100000000, data_bin / "valid", "2 * 100000000"),
        ("--layers", 2, "layers", "0 to 1", "2"),
        ("--split", "other", "other.idx"),
    ):
        wrong = [*arguments, option, value]
        command_refuses(attention_scores, wrong, capsys, *parts)
