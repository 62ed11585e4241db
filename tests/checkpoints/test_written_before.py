"""Checkpoints and exports that were written before the code moved load as they did.

``written_before/`` has a T2 of width 16 after four updates: fairseq's checkpoint, its
export, and the logits that the export gave then, the first six of each token.
"""

import json
import shutil
from pathlib import Path

import pytest
import torch

from fairseq_transnormer.analysis.trained_models import load_trained_model
from fairseq_transnormer.export import load_exported
from tests.forked_trainings import Training
from tests.tiny_data import write_tiny_data

FOLDER = Path(__file__).parent / "written_before"
EXPECTED = json.loads((FOLDER / "expected.json").read_text(encoding="utf-8"))
TOKENS = torch.tensor(EXPECTED["tokens"])


def assert_as_then(logits):
    logits = logits[0] if isinstance(logits, tuple) else logits
    then = torch.tensor(EXPECTED["logits"])
    torch.testing.assert_close(logits[0, :, :6], then, rtol=1e-4, atol=1e-5)


def test_an_export():
    with torch.no_grad():
        assert_as_then(load_exported(FOLDER / "export").model(TOKENS))


@pytest.fixture
def data(tmp_path) -> Path:
    """What it was trained on."""
    return write_tiny_data(tmp_path / "data")


def test_a_checkpoint(data):
    """Of data with the same dictionary; the files of another one are refused."""
    model = load_trained_model(FOLDER / "checkpoint_last.pt", data)
    with torch.no_grad():
        assert_as_then(model(TOKENS))


def test_its_training_resumes(data, tmp_path):
    run = Training(
        data,
        tmp_path / "save",
        options={
            "max-update": 6, "embed-dim": 16, "num-heads": 2, "ffn-dim": 24,
            "attention-types": "diag,norm", "block-size": 8, "save-interval": 100,
        },
    )  # fmt: skip
    run.save_dir.mkdir()
    shutil.copy(FOLDER / "checkpoint_last.pt", run.save_dir)
    assert run.run() == [0], run.text()
    assert "Loaded checkpoint" in run.text() and "num_updates: 6" in run.text()
