"""Cross entropy's kernel against the loss of float64 logits."""

import pytest
import torch
import torch.nn.functional as F

from fairseq_transnormer.ops.cross_entropy import cross_entropy_in_place
from fairseq_transnormer.ops.kernels.cross_entropy import TILE

from ..drawing import relative_error
from .tolerances import TOLERANCES

pytestmark = pytest.mark.usefixtures("poisoned_memory")
IGNORED = 2


def triton(logits, targets, **keywords):
    keywords |= {"ignore_index": IGNORED, "backend": "triton"}
    return cross_entropy_in_place(logits, targets, **keywords)


@pytest.mark.parametrize(
    ("vocabulary", "dtype"),
    [(5, torch.float16), (1024, torch.bfloat16), (TILE, torch.float32)]
    + [(TILE + 3, torch.float16), (TILE + 3, torch.bfloat16)],
)
def test_losses_and_gradient(vocabulary, dtype):
    logits = (3 * torch.randn(6, vocabulary)).to(dtype)
    targets = torch.tensor([0, IGNORED, vocabulary - 1, 4, vocabulary // 2, 1])
    exact = logits.double().requires_grad_()
    expected = F.cross_entropy(exact, targets, ignore_index=IGNORED, reduction="none")
    (gradient,) = torch.autograd.grad(2 * expected.sum(), exact)
    losses = triton(logits.clone(), targets, with_gradient=False)
    assert losses.dtype == torch.float32
    assert relative_error(losses, expected.detach()) < 1e-6
    found = logits.clone()
    assert torch.equal(triton(found, targets, scale=2.0), losses)
    assert relative_error(found, gradient) < TOLERANCES[dtype]
    assert losses[1] == 0 and not found[1].any()


def test_rows_of_a_larger_tensor():
    """What lies beside the logits is not read, and stays."""
    room = torch.full((5, 75), torch.nan)
    logits = room[:, :70].copy_(torch.randn(5, 70))
    targets = torch.arange(5) + 3
    expected = F.cross_entropy(logits, targets, reduction="none")
    losses = triton(logits, targets)
    torch.testing.assert_close(losses, expected)
    assert not logits.isnan().any() and room[:, 70:].isnan().all()
    assert logits.sum(1).abs().max() < 1e-5


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_numbers_that_are_not_finite_are_seen(bad):
    logits = torch.randn(3, 50)
    logits[1, 40] = bad
    losses = triton(logits, torch.tensor([4, 5, 6]))
    assert losses.isnan().tolist() == [False, True, False]
    assert logits.isnan().any(1).tolist() == [False, True, False]


def test_minus_infinity_is_a_probability_of_zero():
    logits = torch.randn(2, 2000)
    logits[:, 3:1990] = -torch.inf
    expected = F.cross_entropy(logits, torch.tensor([0, 1999]), reduction="none")
    losses = triton(logits, torch.tensor([0, 1999]))
    torch.testing.assert_close(losses, expected)
    assert not logits[:, 3:1990].any()


def test_a_target_beyond_the_vocabulary_is_no_loss():
    assert triton(torch.randn(2, 9), torch.tensor([9, -1])).isnan().all()
