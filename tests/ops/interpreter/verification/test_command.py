"""``python -m fairseq_transnormer verify`` tries what a model launches."""

import json

import pytest
import torch

from fairseq_transnormer import verify

from .launches import one_percent, verdict_files


def needed_by_a_classifier(device):
    return verify.needed(["lra_transnormer_t1"], [torch.float16], [40], device)


def test_what_a_model_launches_is_found(launches, device):
    needed = needed_by_a_classifier(device)
    assert launches == [] and verdict_files() == []
    tried = {configuration.op for configuration in needed}
    assert {"rms_norm", "residual", "gated_linear_unit"} < tried
    assert {"encoded_projections", "block_attention", "linear_attention"} < tried
    assert len(needed) == len(set(needed))


def run_verify(*arguments):
    return verify.main(["--device", "cpu", "--dtype", "float16", *arguments])


@pytest.fixture
def row_wise_alone(monkeypatch, device):
    """The command tries few kernels."""
    needed = needed_by_a_classifier(device)
    few = [each for each in needed if each.op in ("rms_norm", "lrpe")]
    monkeypatch.setattr(verify, "needed", lambda *arguments: few)


@pytest.mark.usefixtures("row_wise_alone")
def test_the_command(launches, capsys, tmp_path):
    assert run_verify("--output", str(tmp_path / "table.json")) == 0
    rows = json.loads((tmp_path / "table.json").read_text())["rows"]
    assert len(verdict_files()) == len(rows) > 1
    # another look finds them
    launches.clear()
    assert run_verify() == 0 and launches == []
    launches.change = one_percent
    assert run_verify() == 0
    assert run_verify("--again") == 1
    assert "torch: result 0 is wrong" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.usefixtures("row_wise_alone")
def test_the_command_with_a_process_for_each_trial(capsys):
    assert run_verify("--isolated") == 0
    assert len(verdict_files()) == len(capsys.readouterr().out.splitlines()) - 1
