"""Verdicts of measured devices, which ship with the package."""

import json

import pytest
import torch

from fairseq_transnormer.ops import verdicts

pytest.importorskip("triton")
FILES = sorted((verdicts._OPS / "measured").glob("*.json"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_a_measured_device_finds_its_verdicts(file, monkeypatch, tmp_path):
    """Another text of ops/ voids them: remove the file then, or copy there what
    ``verify`` writes on such a device."""
    content = json.loads(file.read_text())
    about, rows = content["environment"], content["verdicts"]
    cpu = torch.device("cpu")
    here = verdicts.environment(cpu)["sources"]
    monkeypatch.setattr(
        verdicts, "environment", lambda device: {**about, "sources": here}
    )
    monkeypatch.setenv(verdicts.FOLDER_VARIABLE, str(tmp_path))
    verdicts.forget()
    try:
        found = verdicts.known(cpu)
    finally:
        verdicts.forget()
    assert found.keys() == rows.keys()
    bfloat16 = [each for words, each in found.items() if " bfloat16 " in words]
    assert bfloat16 and all(each.reason is None for each in bfloat16)
