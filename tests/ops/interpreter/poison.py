"""New memory full of NaN, so that a kernel that leaves a part of it out is seen."""

import pytest
import torch

EMPTY, EMPTY_LIKE = torch.empty, torch.empty_like


def _poisoned(tensor):
    return tensor.fill_(torch.nan) if tensor.is_floating_point() else tensor


@pytest.fixture
def poisoned_memory(monkeypatch):
    """torch.empty and torch.empty_like give NaN."""
    monkeypatch.setattr(torch, "empty", lambda *a, **k: _poisoned(EMPTY(*a, **k)))
    monkeypatch.setattr(
        torch, "empty_like", lambda *a, **k: _poisoned(EMPTY_LIKE(*a, **k))
    )
