"""Checkpoints and exports that were written before the code moved load as they did.

``written_before/`` has a T2 of width 16 after four updates: fairseq's checkpoint, its
export, and the logits that the export gave then, the first six of each token. And a
vanilla of fairseq's own modules after as many.
"""

import json
import shutil
from pathlib import Path

import pytest
import torch

from fairseq_transnormer.checkpoints.identity import weights_fingerprint
from fairseq_transnormer.checkpoints.load import load
from tests.forked_trainings import Training, logged
from tests.tiny_data import write_tiny_data

FOLDER = Path(__file__).parent / "written_before"
EXPECTED = json.loads((FOLDER / "expected.json").read_text(encoding="utf-8"))
TOKENS = torch.tensor(EXPECTED["tokens"])


def assert_as_then(logits):
    then = torch.tensor(EXPECTED["logits"])
    torch.testing.assert_close(logits[0, :, :6], then, rtol=1e-4, atol=1e-5)


def test_an_export():
    with torch.no_grad():
        assert_as_then(load(FOLDER / "export").model(TOKENS))


@pytest.fixture
def data(tmp_path) -> Path:
    """What it was trained on."""
    return write_tiny_data(tmp_path / "data")


def test_a_checkpoint(data):
    """Of data with the same dictionary; the files of another one are refused."""
    model = load(FOLDER / "checkpoint_last.pt", data).model
    with torch.no_grad():
        assert_as_then(model(TOKENS))


def resumed(data, save_dir, name, arch, **options):
    """Two more updates of a training whose last checkpoint is one of these."""
    options |= {"max-update": 6, "embed-dim": 16, "num-heads": 2, "ffn-dim": 24}
    options["save-interval"] = 100
    run = Training(data, save_dir, options=options, arch=arch)
    run.save_dir.mkdir()
    shutil.copy(FOLDER / name, run.save_dir / "checkpoint_last.pt")
    assert run.run() == [0], run.text()
    return run


def test_its_training_resumes(data, tmp_path):
    options = {"attention-types": "diag,norm", "block-size": 8}
    arch = Training.arch
    run = resumed(data, tmp_path / "save", "checkpoint_last.pt", arch, **options)
    assert "Loaded checkpoint" in run.text() and "update 6 of max_update" in run.text()


def test_a_training_of_fairseqs_own_modules_resumes(data, tmp_path):
    """With the losses and gradient norms that they had."""
    arch = "vanilla_transformer_tiny"
    run = resumed(data, tmp_path / "save", "vanilla.pt", arch, dropout=0.0)
    found = [(r["loss"], r["gnorm"]) for r in logged(run.text(), "train_inner")]
    assert found == [("6.861", "0.597"), ("6.922", "0.614")]


def test_its_fingerprint_is_that_of_then(tmp_path):
    """Of the file as it is, not as it is read: fine-tunings have noted it."""
    path = shutil.copy(FOLDER / "vanilla.pt", tmp_path)
    then = "8d2c68e0a0123414d7ca9055b000de8a17c3294c6cd08dfa950083d7977daf46"
    assert weights_fingerprint(path) == then


def test_one_eps_of_all_norms_in_an_export(tmp_path):
    folder = shutil.copytree(FOLDER / "export", tmp_path / "export")
    path = folder / "config.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    config = content["fairseq_transnormer"]["config"]
    config["norm_eps"] = 0.5
    del config["attention_norm_eps"]
    path.write_text(json.dumps(content), encoding="utf-8")
    assert load(folder).manifest.config.attention_norm_eps == 0.5


def test_one_eps_of_all_norms_in_a_checkpoint(data, tmp_path):
    state = torch.load(FOLDER / "checkpoint_last.pt", weights_only=False)
    before = state["cfg"]["model"]
    assert "attention_norm_eps" not in before
    logits = []
    for name, changed in {
        "before.pt": {"norm_eps": 0.5},
        "after.pt": {"norm_eps": 0.5, "attention_norm_eps": 0.5},
        "other.pt": {"norm_eps": 0.5, "attention_norm_eps": 1e-8},
    }.items():
        state["cfg"]["model"] = before | changed
        torch.save(state, tmp_path / name)
        with torch.no_grad():
            logits.append(load(tmp_path / name, data).model(TOKENS))
    assert torch.equal(logits[0], logits[1])
    assert not torch.allclose(logits[0], logits[2])
