"""The interpreter is a device here; nothing has been tried before a test."""

import pytest
import torch

from fairseq_transnormer import ops
from fairseq_transnormer.ops import backend
from fairseq_transnormer.ops.linear_attention import launch_table
from fairseq_transnormer.ops.verification import records, verdicts

from .launches import Launches, set_multiprocessors


@pytest.fixture(autouse=True)
def device(monkeypatch, tmp_path):
    """The interpreter as a GPU with two multiprocessors; nothing has been tried."""
    monkeypatch.setattr(backend, "INTERPRETER_IS_A_DEVICE", True)
    set_multiprocessors(monkeypatch, 2)
    monkeypatch.setenv(records.FOLDER_VARIABLE, str(tmp_path / "cache"))
    monkeypatch.delenv(ops.ENVIRONMENT_VARIABLE, raising=False)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    verdicts.forget()
    yield torch.device("cpu")
    verdicts.forget()
    launch_table._form.cache_clear()
    torch.set_float32_matmul_precision(before)


@pytest.fixture
def launches(monkeypatch):
    return Launches(monkeypatch)
