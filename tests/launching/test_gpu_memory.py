"""How many sequences a GPU takes at once, by its memory."""

from types import SimpleNamespace

import pytest
import torch

from fairseq_transnormer.launching import gpu_memory
from fairseq_transnormer.launching.gpu_memory import (
    NEEDS,
    described_batch,
    largest_batch,
    least_memory,
)
from tests.messages import assert_names

ALM, BLM = "language_modeling", "masked_lm"


@pytest.mark.parametrize(
    ("task", "half", "most", "batches"),
    [
        # 2.5 + 4 * 1.8 = 9.7 GB fit in 14.4 (16), 2.5 + 8 * 1.8 = 16.9 do not
        (ALM, False, 8, {8: 2, 16: 4, 24: 8, 32: 8, 80: 8}),
        # 3.1 + 8 * 1.7 = 16.7
        (ALM, True, 8, {8: 2, 16: 4, 24: 8, 32: 8, 80: 8}),
        # 2.0 + 16 * 0.44 = 9.0, 2.0 + 32 * 0.44 = 16.1
        (BLM, False, 32, {8: 8, 16: 16, 24: 32, 32: 32, 80: 32}),
        # 2.5 + 32 * 0.23 = 9.9
        (BLM, True, 32, {8: 16, 16: 32, 32: 32, 80: 32}),
    ],
)
def test_the_batch_follows_the_memory(task, half, most, batches):
    need = NEEDS[task, half]
    assert {gb: largest_batch(gb, need, most) for gb in batches} == batches
    assert largest_batch(1, need, most) == 1


def test_the_smallest_of_the_gpus_used_decides(monkeypatch):
    gpus = [SimpleNamespace(total_memory=gb * 10**9) for gb in (80, 32, 16)]
    monkeypatch.setattr(gpu_memory.shutil, "which", lambda name: name)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: len(gpus))
    monkeypatch.setattr(torch.cuda, "get_device_properties", gpus.__getitem__)
    assert [least_memory(n) for n in (1, 2, 3, 8)] == [80, 32, 16, 16]
    gpus.clear()
    assert least_memory(1) is None


def test_without_a_gpu_nothing_changes():
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    assert described_batch(NEEDS[ALM, False], 8, most=8) == (8, "")
    assert described_batch(None, 8, most=8) == (8, "")


def test_the_reason_is_told(monkeypatch):
    monkeypatch.setattr(gpu_memory, "least_memory", lambda gpus: 16.0)
    batch, why = described_batch(NEEDS[ALM, False], 8, most=8)
    assert batch == 4
    assert_names(why, "16 GB", "1.8 GB", 8)
