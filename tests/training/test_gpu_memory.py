"""How many sequences a GPU takes at once, by its memory."""

from types import SimpleNamespace

import pytest
import torch

from fairseq_transnormer.training import gpu_memory
from fairseq_transnormer.training.gpu_memory import (
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
        # 4.7 + 8 * 0.08 = 5.3 GB fit in 5.4 (6), 4.7 does not in 4.5
        (ALM, False, 8, {5: 1, 6: 8, 16: 8, 80: 8}),
        # 4.3 + 2 * 0.06 = 4.42 fit in 4.5, 4.54 do not
        (ALM, True, 8, {5: 2, 6: 8, 16: 8, 80: 8}),
        # 2.9 + 8 * 0.29 = 5.2, 2.9 + 16 * 0.29 = 7.5, 2.9 + 32 * 0.29 = 12.2
        (BLM, False, 32, {8: 8, 12: 16, 16: 32, 80: 32}),
        # 3.2 + 16 * 0.2 = 6.4, 3.2 + 32 * 0.2 = 9.6, 3.2 + 64 * 0.2 = 16
        (BLM, True, 32, {8: 16, 11: 32, 16: 32, 80: 32}),
        # more than the configurations take at once
        (BLM, True, 64, {16: 32, 24: 64}),
        (ALM, False, 128, {16: 64, 24: 128, 32: 128}),
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
    monkeypatch.setattr(gpu_memory, "least_memory", lambda gpus: 12.0)
    batch, why = described_batch(NEEDS[BLM, False], 8, most=32)
    assert batch == 16
    assert_names(why, "12 GB", "0.29 GB", 32)
