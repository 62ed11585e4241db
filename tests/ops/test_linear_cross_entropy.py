"""The output layer and its loss in chunks, against torch's loss of all logits."""

import sys

import pytest
import torch
import torch.nn.functional as F

from fairseq_transnormer.ops import linear_cross_entropy
from fairseq_transnormer.ops.linear_cross_entropy import rows_at_a_time
from tests.messages import refuses

from . import laws
from .drawing import CPU_BACKENDS

IGNORED = 1
VOCABULARY, WIDTH, TOKENS = 301, 16, 200


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    """Rows of a chunk that divide no number of tokens here."""
    module = sys.modules["fairseq_transnormer.ops.linear_cross_entropy"]
    monkeypatch.setattr(module, "rows_at_a_time", lambda vocabulary, itemsize: 64)


def draw(dtype=torch.float64, bias=True):
    generator = torch.Generator().manual_seed(1)
    shapes = (TOKENS, WIDTH), (VOCABULARY, WIDTH), (VOCABULARY,)
    x, weight, b = (
        torch.randn(s, generator=generator, dtype=torch.float64) for s in shapes
    )
    targets = torch.randint(VOCABULARY, (TOKENS,), generator=generator)
    targets[::7] = IGNORED
    leaves = [t.to(dtype).requires_grad_() for t in (x, 0.3 * weight, b)]
    return leaves[0], leaves[1], targets, leaves[2] if bias else None


def naive(x, weight, targets, bias, wide=torch.float64):
    scores = F.log_softmax(F.linear(x, weight, bias), -1, dtype=wide)
    return F.nll_loss(scores, targets, ignore_index=IGNORED, reduction="none")


def gradients(loss, *leaves):
    return torch.autograd.grad(loss, [x for x in leaves if x is not None])


@pytest.mark.parametrize("place", [laws.TORCH, laws.REFERENCE])
@pytest.mark.parametrize(
    ("bias", "dtype"),
    [(True, torch.float64), (False, torch.float64), (True, torch.float32)],
)
def test_as_the_loss_of_all_logits(dtype, bias, place):
    laws.equation(place, "cross_entropy", dtype, bias=bias)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_as_good_as_torchs(dtype):
    """Beside the loss of all logits in the same dtype; the loss scaled, as trained."""
    exact = draw(torch.float64)
    rounded = [x if x.dtype == torch.int64 else x.detach().to(dtype) for x in exact]
    results = []
    for kind in ("exact", "torch", "ours"):
        x, weight, targets, b = (
            t if t.dtype == torch.int64
            else t.to(torch.float64 if kind == "exact" else dtype).requires_grad_()
            for t in rounded
        )  # fmt: skip
        if kind == "ours":
            total, _ = linear_cross_entropy(x, weight, targets, b, ignore_index=IGNORED)
        else:
            wide = torch.float64 if kind == "exact" else torch.float32
            total = naive(x, weight, targets, b, wide).sum()
        grads = gradients(128 * total, x, weight, b)
        results.append([total.detach(), *(g / 128 for g in grads)])
    for good, peer, found in zip(*results, strict=True):
        size = good.double().norm()
        error, allowed = ((r.double() - good).norm() / size for r in (found, peer))
        assert error <= 1.5 * allowed + 1e-5


def test_a_sum_over_many_tokens_does_not_overflow_in_float16():
    x, weight = torch.randn(9000, 8).half(), torch.randn(50, 8).half()
    total, _ = linear_cross_entropy(x, weight, torch.randint(50, (9000,)))
    assert total.dtype == torch.float32 and 20000 < total < 1e5


def test_an_overflow_of_the_loss_scale_is_seen_in_the_gradients():
    x, weight, targets, b = draw(torch.float16)
    for scale, finite in ((128.0, True), (2.0**20, False)):
        total, _ = linear_cross_entropy(x, weight, targets, b, ignore_index=IGNORED)
        found = gradients(scale * total, x, weight, b)
        assert all(bool(g.isfinite().all()) for g in found) == finite
        assert not any(bool(g.isnan().any()) for g in found)


@pytest.mark.parametrize("backend", CPU_BACKENDS)
def test_logits_beyond_the_exponentials_of_float32(backend):
    """exp(89) is infinite; a loss of a few hundred is not."""
    x, weight, targets, bias = draw(torch.float32)
    with torch.no_grad():
        x *= 100
    loss, _ = linear_cross_entropy(
        x, weight, targets, bias, ignore_index=IGNORED, backend=backend
    )
    wide = [each.detach().double() for each in (x, weight)]
    logits = F.linear(*wide, bias.detach().double())
    assert logits.max() > 200
    expected = F.cross_entropy(logits, targets, ignore_index=IGNORED, reduction="sum")
    torch.testing.assert_close(loss.double(), expected, rtol=1e-5, atol=0)


def test_under_autocast_the_gradients_have_the_parameters_dtype():
    x, weight, targets, b = draw(torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        total, _ = linear_cross_entropy(x, weight, targets, b, ignore_index=IGNORED)
    assert total.dtype == torch.float32
    assert total != naive(x, weight, targets, b, torch.float32).sum()
    expected = naive(x, weight, targets, b, torch.float32).sum()
    torch.testing.assert_close(total, expected, rtol=1e-2, atol=0)
    for found, wanted in zip(
        gradients(total, x, weight, b), gradients(expected, x, weight, b), strict=True
    ):
        assert found.dtype == torch.float32
        assert (found - wanted).norm() < 0.02 * wanted.norm()


def test_what_needs_no_gradient_gets_none():
    x, weight, targets, b = draw()
    total, _ = linear_cross_entropy(x.detach(), weight, targets, b)
    (found,) = torch.autograd.grad(total, [weight])
    assert found.shape == weight.shape
    with torch.no_grad():
        total, _ = linear_cross_entropy(x, weight, targets, b)
    assert not total.requires_grad


def test_the_gradients_serve_one_backward_pass():
    x, weight, targets, _ = draw()
    total, _ = linear_cross_entropy(x, weight, targets)
    total.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="forward pass again"):
        total.backward()


def test_a_tied_weight_gets_both_gradients():
    weight = draw()[1]
    targets = torch.arange(20)
    total, _ = linear_cross_entropy(weight[:20], weight, targets, ignore_index=IGNORED)
    (found,) = torch.autograd.grad(total, [weight])
    expected = naive(weight[:20], weight, targets, None).sum()
    torch.testing.assert_close(found, torch.autograd.grad(expected, [weight])[0])


def test_nothing_that_counts():
    x, weight, targets, b = draw()
    targets = torch.full_like(targets, IGNORED)
    total, losses = linear_cross_entropy(x, weight, targets, b, ignore_index=IGNORED)
    assert total == 0 and not losses.any()
    assert not any(g.any() for g in gradients(total, x, weight, b))
    empty, _ = linear_cross_entropy(x[:0], weight, targets[:0], b)
    assert empty == 0


def test_rows_of_a_chunk():
    """256 MB of logits, but from 64 to 2,048 rows: WikiText-103, RoBERTa, characters,
    and a vocabulary of ten million."""
    cases = (267_744, 2), (267_744, 4), (50_265, 2), (256, 2), (10_000_000, 4)
    rows = [rows_at_a_time(*case) for case in cases]
    assert rows == [501, 250, 2048, 2048, 64]


def test_dtypes_that_do_not_fit():
    """As F.linear, in place of products that are less exact than the weight."""
    x, weight, targets, b = draw(torch.float32)
    with refuses(ValueError, "weight", "float64", "float32"):
        linear_cross_entropy(x, weight.double(), targets)
    with refuses(ValueError, "weight", "float32", "bfloat16"):
        linear_cross_entropy(x.bfloat16(), weight, targets)
    with refuses(ValueError, "targets", "float32", "int64"):
        linear_cross_entropy(x, weight, targets.float())
    with refuses(ValueError, "bias", "float16", "float32"):
        linear_cross_entropy(x, weight, targets, b.half())
    with torch.autocast("cpu", torch.bfloat16):
        total, _ = linear_cross_entropy(x.bfloat16(), weight, targets, b)
    assert [g.dtype for g in gradients(total, x, weight)] == [torch.float32] * 2
