"""The two ways to add up the chunks' states, one for each kind of device, agree."""

import pytest
import torch

from fairseq_transnormer.ops.torch_linear_attention import (
    _sums_by_addition,
    _sums_by_scan,
)


@pytest.mark.parametrize("sums", [_sums_by_addition, _sums_by_scan])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("chunks", [1, 5])
def test_sums(sums, reverse, chunks):
    updates = torch.randn(2, 3, chunks, 4, 6, dtype=torch.float64)
    start = torch.randn(2, 3, 4, 6, dtype=torch.float64)
    expected = torch.stack(
        [
            start + (updates[:, :, i + 1 :] if reverse else updates[:, :, :i]).sum(2)
            for i in range(chunks)
        ],
        dim=2,
    )
    total = start + updates.sum(2)
    kept = start.clone()
    before, after = sums(updates.clone(), start, reverse)
    torch.testing.assert_close(before, expected)
    torch.testing.assert_close(after, total)
    # the state that was handed in is kept for the backward pass
    assert start.equal(kept)
    # and the one that is handed out keeps no other state alive
    assert after.untyped_storage().nbytes() == after.numel() * 8
