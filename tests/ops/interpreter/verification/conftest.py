"""The interpreter is a device here; nothing has been tried before a test."""

from concurrent.futures import ThreadPoolExecutor
from subprocess import DEVNULL, PIPE, CompletedProcess
from types import SimpleNamespace

import pytest
import torch

from fairseq_transnormer import ops, verify
from fairseq_transnormer.__main__ import main
from fairseq_transnormer.ops import backend, verdicts
from fairseq_transnormer.ops.linear_attention import launch_table

from .launches import Launches, set_multiprocessors


@pytest.fixture(autouse=True)
def device(monkeypatch, tmp_path):
    """The interpreter as a GPU with two multiprocessors; nothing has been tried."""
    monkeypatch.setattr(backend, "INTERPRETER_IS_A_DEVICE", True)
    set_multiprocessors(monkeypatch, 2)
    monkeypatch.setenv(verdicts.FOLDER_VARIABLE, str(tmp_path / "cache"))
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


@pytest.fixture
def workers(monkeypatch):
    """The workers of ``verify`` are threads of this process."""
    monkeypatch.setattr(verify, "_processes", ThreadPoolExecutor)


@pytest.fixture
def children(monkeypatch, workers):
    """The children that ops start, which run in this process; their arguments."""
    started = []

    def run(command, **options):
        started.append(command)
        return CompletedProcess(command, main(command[3:]), stderr="")

    stand_in = SimpleNamespace(run=run, DEVNULL=DEVNULL, PIPE=PIPE)
    monkeypatch.setattr(verdicts, "subprocess", stand_in)
    monkeypatch.setattr(verdicts, "MOST_WORKERS", 1)
    return started
