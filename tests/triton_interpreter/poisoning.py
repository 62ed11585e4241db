"""Memory that an op allocates and does not write shows up as NaN."""

import pytest
import torch


@pytest.fixture
def poisoned_memory(monkeypatch):
    """torch.empty, empty_like and Tensor.new_empty give NaN."""

    def poisoned(allocate):
        def allocation(*arguments, **keywords):
            tensor = allocate(*arguments, **keywords)
            return tensor.fill_(torch.nan) if tensor.is_floating_point() else tensor

        return allocation

    monkeypatch.setattr(torch, "empty", poisoned(torch.empty))
    monkeypatch.setattr(torch, "empty_like", poisoned(torch.empty_like))
    monkeypatch.setattr(torch.Tensor, "new_empty", poisoned(torch.Tensor.new_empty))
