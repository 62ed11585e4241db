"""The fused Adam on a GPU: fairseq's update without eps, and nothing that waits."""

import pytest
import torch
from fairseq.optim.adam import Adam

from fairseq_transnormer.plugin.optimizers import FusedAdamW

pytestmark = pytest.mark.gpu

OPTIONS = {"lr": 0.01, "betas": (0.9, 0.98), "eps": 0.0, "weight_decay": 0.1}


@pytest.mark.parametrize("loaded", [False, True])
def test_nothing_waits_for_the_device(loaded):
    """... nor after a state of fairseq's Adam, whose counts lie on the host."""
    weights = torch.nn.Parameter(torch.ones(1000, device="cuda"))
    weights.grad = torch.ones_like(weights)
    optimizer = FusedAdamW([weights], **OPTIONS)
    if loaded:
        fairseqs = Adam([weights], **OPTIONS)
        fairseqs.step()
        optimizer.load_state_dict(fairseqs.state_dict())
    optimizer.step()
    before = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    try:
        optimizer.step()
    finally:
        torch.cuda.set_sync_debug_mode(before)
    assert optimizer.state[weights]["step"].item() == 2 + loaded
