"""The fused Adam on a GPU: fairseq's update, without waiting for the device."""

import pytest
import torch
from fairseq.optim.adam import Adam

from fairseq_transnormer.optimizers.fused_adam import FusedAdam

pytestmark = pytest.mark.gpu

OPTIONS = {"lr": 0.01, "betas": (0.9, 0.98), "eps": 1e-8, "weight_decay": 0.1}


@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [
        (torch.float64, 1e-12),
        (torch.float32, 2e-6),
        (torch.float16, 2**-10),
        (torch.bfloat16, 2**-7),
    ],
    ids=str,
)
def test_steps_are_fairseqs(dtype, tolerance):
    shapes = (300, 200), (7,), ()
    ours = [
        torch.nn.Parameter(torch.randn(shape, device="cuda").to(dtype))
        for shape in shapes
    ]
    theirs = [torch.nn.Parameter(each.detach().clone()) for each in ours]
    fused, fairseqs = FusedAdam(ours, **OPTIONS), Adam(theirs, **OPTIONS)
    for _ in range(20):
        for mine, other in zip(ours, theirs, strict=True):
            mine.grad = torch.randn_like(mine)
            other.grad = mine.grad.clone()
        fused.step()
        fairseqs.step()
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_nothing_waits_for_the_device(dtype):
    weights = torch.nn.Parameter(torch.ones(1000, device="cuda", dtype=dtype))
    weights.grad = torch.ones_like(weights)
    optimizer = FusedAdam([weights], **OPTIONS)
    optimizer.step()
    before = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    try:
        optimizer.step()
    finally:
        torch.cuda.set_sync_debug_mode(before)
