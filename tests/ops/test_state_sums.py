"""The two ways to add up the chunks' states agree; each is taken where it should."""

import pytest
import torch

from fairseq_transnormer.ops.linear_attention.torch_impl import (
    _states_before,
    _sums_by_addition,
    _sums_by_scan,
)
from tests.operators import Operators


def draw(chunks):
    k, v = torch.randn(chunks, 6, 4, 5), torch.randn(chunks, 6, 5, 3)
    return k.double(), v.double(), torch.randn(6, 4, 3, dtype=torch.float64)


@pytest.mark.parametrize("sums", [_sums_by_addition, _sums_by_scan])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("chunks", [1, 5])
def test_sums(sums, reverse, chunks):
    k, v, start = draw(chunks)
    updates = torch.einsum("ghdc,ghce->ghde", k, v)
    expected = torch.stack(
        [
            start + (updates[i + 1 :] if reverse else updates[:i]).sum(0)
            for i in range(chunks)
        ]
    )
    kept = start.clone()
    before, after = sums(k, v, start, reverse)
    torch.testing.assert_close(before, expected)
    torch.testing.assert_close(after, start + updates.sum(0))
    # the state that was handed in is kept for the backward pass
    assert start.equal(kept)


@pytest.mark.parametrize("reverse", [False, True])
def test_one_chunk_needs_no_sums(reverse):
    k, v, start = draw(1)
    before, after = _states_before(k[0].mT, v[0], start, reverse)
    assert before.equal(start)
    torch.testing.assert_close(after, start + k[0] @ v[0])


@pytest.mark.parametrize(
    ("device", "deterministic", "scans"),
    [("meta", False, True), ("meta", True, False), ("cpu", False, False)],
)
def test_deterministic_algorithms_do_without_cumsum(device, deterministic, scans):
    """On CUDA torch's cumsum raises where only these are allowed.

    meta stands for CUDA: a device that is not a CPU.
    """
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(deterministic)
    try:
        with Operators() as operators:
            k, v = torch.empty(2, 10, 64, 8, device=device)
            _states_before(k, v, torch.empty(2, 8, 8, device=device))
    finally:
        torch.use_deterministic_algorithms(before)
    assert operators.names & {"bmm", "baddbmm"}
    assert ("cumsum" in operators.names) == scans
