"""``python -m fairseq_transnormer verify`` tries what a model launches."""

import functools
import json

import pytest
import torch

from fairseq_transnormer import verify
from fairseq_transnormer.__main__ import main
from fairseq_transnormer.ops import verdicts
from fairseq_transnormer.ops.trials import Trial
from fairseq_transnormer.ops.verdicts import Verdict

from .launches import one_percent, written

PASSED = Trial(Verdict(None, 0.5, 0.1), lasts=True, raised=False)


@functools.cache
def needed_by_a_classifier(device):
    return verify.needed(["lra_transnormer_t1"], [torch.float16], [40], device)


def test_what_a_model_launches_is_found(launches, device):
    needed = needed_by_a_classifier.__wrapped__(device)
    assert launches == [] and written(device) == {}
    tried = {configuration.op for configuration in needed}
    assert {"rms_norm", "residual", "gated_linear_unit"} < tried
    assert {"lrpe", "block_attention", "linear_attention"} < tried
    assert len(needed) == len(set(needed))


def run_verify(*arguments):
    return main(["verify", "--device", "cpu", "--dtype", "float16", *arguments])


@pytest.fixture
def row_wise_alone(monkeypatch, workers, device):
    """The command tries few kernels."""
    needed = needed_by_a_classifier(device)
    first = {each.op: each for each in reversed(needed)}
    few = [first["rms_norm"], first["lrpe"]]
    monkeypatch.setattr(verify, "needed", lambda *arguments: few)


@pytest.mark.parametrize(
    "words",
    ["nonsense float16 a=3", "rms_norm int32 width=64", "linear_attention float16 a=1"],
)
def test_words_of_no_configuration_are_refused(words, device, capsys):
    assert main(["verify", "--device", str(device), "--configuration", words]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.usefixtures("row_wise_alone")
def test_the_command(launches, capsys, tmp_path, device):
    assert run_verify("--output", str(tmp_path / "table.json")) == 0
    rows = json.loads((tmp_path / "table.json").read_text())["rows"]
    assert {row["configuration"] for row in rows} == {*written(device)}
    assert len(rows) == 2
    # another look finds them
    launches.clear()
    assert run_verify() == 0 and launches == []
    launches.change = one_percent
    assert run_verify() == 0
    assert run_verify("--again") == 1
    assert "torch: result 0 is wrong" in capsys.readouterr().out


def test_an_interrupt_keeps_the_rows(row_wise_alone, monkeypatch, tmp_path):
    def interrupted(configuration, tried=[]):  # noqa: B006 (counts)
        if tried:
            raise KeyboardInterrupt
        tried.append(configuration)
        return PASSED

    monkeypatch.setattr(verify.trials, "trial", interrupted)
    path = tmp_path / "table.json"
    assert run_verify("--output", str(path)) == 130
    report = json.loads(path.read_text())
    assert len(report["rows"]) == 1 < report["wanted"]


@pytest.mark.slow
def test_workers_share_the_trials(device):
    needed = needed_by_a_classifier(device)
    few = [each for each in needed if each.op in ("rms_norm", "lrpe")]
    with verdicts.lock(device):
        rows = dict(verify._tried(few, {}, workers=2))
    assert set(rows) == set(few) and len(written(device)) == len(few)
    assert all(verdict.reason is None for verdict in rows.values())
