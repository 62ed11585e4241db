"""How many sequences a worker takes, and that training looks whether it is so."""

import logging
from types import SimpleNamespace

import pytest
import torch
from omegaconf import OmegaConf

from fairseq_transnormer.training.update_layout import (
    check_update,
    fitting_batch,
    lay_out,
)
from tests.messages import assert_names, refuses


def test_a_layout_fills_the_update_with_batches_that_fit():
    for sequences in (96, 128, 512):
        for workers in range(1, sequences + 1):
            if sequences % workers:
                continue
            for most in (1, 3, 8, 1000):
                batch, update_freq = lay_out(sequences, workers, most=most)
                assert workers * batch * update_freq == sequences
                assert batch <= most
                share = sequences // workers
                assert not any(share % n == 0 for n in range(batch + 1, most + 1))


def configuration(batch_size=8, update_freq=(4,), max_tokens=None):
    return OmegaConf.create(
        {
            "dataset": {"batch_size": batch_size, "max_tokens": max_tokens},
            "optimization": {"update_freq": list(update_freq)},
        }
    )


@pytest.fixture
def declared(monkeypatch):
    """declared(text): the environment says so many sequences."""
    return lambda text: monkeypatch.setenv("SEQUENCES_PER_UPDATE", text)


def test_the_layout_is_logged(declared, caplog):
    declared("128")
    with caplog.at_level(logging.INFO):
        check_update(configuration(), 4)
    (told,) = caplog.messages
    assert_names(told, "128 sequences", "4 workers", "8 at once", "4 accumulated")


@pytest.mark.parametrize(
    ("sequences", "options", "workers", "parts"),
    [
        ("128", {}, 3, ["96 sequences", "3 workers"]),
        ("128", {"update_freq": [4, 2]}, 4, ["64 sequences", "4 workers"]),
        ("128", {"max_tokens": 4096}, 4, ["dataset.max_tokens=4096"]),
    ],
)
def test_an_update_that_is_not_as_declared_is_refused(
    declared, sequences, options, workers, parts
):
    declared(sequences)
    with refuses(ValueError, *parts):
        check_update(configuration(**options), workers)


@pytest.mark.parametrize("options", [{}, {"max_tokens": 4096}, {"batch_size": None}])
def test_any_update_where_none_is_declared(declared, options):
    declared("")
    check_update(configuration(**options), 4)


@pytest.fixture
def memories(monkeypatch):
    """memories(GB, ...): the GPUs that there seem to be."""

    def set_memories(*memories: float) -> None:
        gpus = [SimpleNamespace(total_memory=gb * 1e9) for gb in memories]
        monkeypatch.setattr(torch.cuda, "device_count", lambda: len(gpus))
        monkeypatch.setattr(torch.cuda, "get_device_properties", gpus.__getitem__)

    return set_memories


ALM, BLM = "language_modeling", "masked_lm"


@pytest.mark.parametrize(
    ("task", "half", "most", "batches"),
    [
        # 4.7 + 8 * 0.08 = 5.3 GB fit in 5.4 (6), 4.7 does not in 4.5
        (ALM, False, 8, {1: 1, 5: 1, 6: 8, 16: 8, 80: 8}),
        # 4.3 + 2 * 0.06 = 4.42 fit in 4.5, 4.54 do not
        (ALM, True, 8, {1: 1, 5: 2, 6: 8, 16: 8, 80: 8}),
        # 2.9 + 8 * 0.29 = 5.2, 2.9 + 16 * 0.29 = 7.5, 2.9 + 32 * 0.29 = 12.2
        (BLM, False, 32, {1: 1, 8: 8, 12: 16, 16: 32, 80: 32}),
        # 3.2 + 16 * 0.2 = 6.4, 3.2 + 32 * 0.2 = 9.6, 3.2 + 64 * 0.2 = 16
        (BLM, True, 32, {1: 1, 8: 16, 11: 32, 16: 32, 80: 32}),
        # more than the configurations take at once
        (BLM, True, 64, {16: 32, 24: 64}),
        (ALM, False, 128, {16: 64, 24: 128, 32: 128}),
        # 4.7 + 12 * 0.08 = 5.66 do not fit in 5.4
        (ALM, False, 12, {6: 8, 16: 12}),
    ],
)
def test_the_batch_follows_the_memory(task, half, most, batches, memories):
    for gb, batch in batches.items():
        memories(gb)
        assert fitting_batch(task, half, 1, most) == batch


def test_the_smallest_of_the_gpus_used_decides(memories):
    memories(80, 16, 8)
    assert [fitting_batch(BLM, True, n, 64) for n in (1, 2, 3, 8)] == [64, 32, 16, 16]
    assert fitting_batch("long_range_arena", True, 3, 64) == 64
    memories()
    assert fitting_batch(BLM, True, 3, 64) == 64
