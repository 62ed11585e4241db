"""The fused Adam on a GPU: fairseq's update without eps, and nothing that waits."""

import pytest
import torch
from fairseq.optim.adam import Adam

from fairseq_transnormer.plugin.optimizers import FusedAdamW

pytestmark = pytest.mark.gpu

OPTIONS = {"lr": 0.01, "betas": (0.9, 0.98), "eps": 0.0, "weight_decay": 0.1}


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 2e-6)], ids=str
)
def test_steps_are_fairseqs(dtype, tolerance):
    shapes = (300, 200), (7,), ()
    ours = [
        torch.nn.Parameter(torch.randn(shape, device="cuda", dtype=dtype))
        for shape in shapes
    ]
    theirs = [torch.nn.Parameter(each.detach().clone()) for each in ours]
    fused, fairseqs = FusedAdamW(ours, **OPTIONS), Adam(theirs, **OPTIONS)
    for _ in range(20):
        for mine, other in zip(ours, theirs, strict=True):
            mine.grad = torch.randn_like(mine)
            other.grad = mine.grad.clone()
        fused.step()
        fairseqs.step()
    torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance)


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
