"""ops.linear_attention beside its laws: divisors, feature maps, chunks and tiles."""

import pytest
import torch

from fairseq_transnormer.ops import FEATURE_MAPS, linear_attention
from fairseq_transnormer.ops.linear_attention import chunks, torch_impl
from fairseq_transnormer.ops.linear_attention.options import Options
from tests.messages import refuses

from . import equations
from .drawing import CPU_BACKENDS, draw_qkv, gradients, relative_error

backends = pytest.mark.parametrize("backend", CPU_BACKENDS)


@backends
def test_a_signed_divisor_is_not_below_eps(backend):
    qkv = [torch.randn(2, 80, 2, 4, dtype=torch.float64) for _ in range(3)]
    for eps in (1e-6, 0.5):
        options = {"causal": True, "normalize": True, "eps": eps}
        output = linear_attention(*qkv, **options, backend=backend)[0]
        expected = equations.linear_attention(*qkv, **options)
        assert relative_error(output, expected) < 1e-12


@backends
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.bfloat16, 8e-3), (torch.float16, 1e-3)]
)
def test_positive_features_near_zero(dtype, tolerance, causal, backend):
    """1 + elu(x) is exp(x) there; as a sum in half precision it would be 0 or so."""
    qkv = [x - shift for x, shift in zip(draw_qkv(70), (7, 7, 0), strict=True)]
    qkv = [x.to(dtype) for x in qkv]
    options = {"causal": causal, "feature_map": "1+elu", "normalize": True}
    output = linear_attention(*qkv, **options, backend=backend)[0]
    exact = linear_attention(*(x.double() for x in qkv), **options, backend=backend)[0]
    assert relative_error(output, exact) < tolerance


@pytest.mark.parametrize("name", FEATURE_MAPS)
def test_feature_maps_and_their_gradients(name):
    x = torch.tensor([-40, -18, -16, -3, -0.1, 0.1, 3, 40], requires_grad=True)
    wide = x.detach().double().requires_grad_()
    found, expected = FEATURE_MAPS[name](x), equations.FEATURE_MAPS[name](wide)
    torch.testing.assert_close(found.double(), expected, rtol=1e-6, atol=0)
    gradients = torch.autograd.grad(found.sum(), x) + torch.autograd.grad(
        expected.sum(), wide
    )
    torch.testing.assert_close(gradients[0].double(), gradients[1], rtol=1e-6, atol=0)
    # where two branches meet
    x = torch.zeros(1, requires_grad=True)
    FEATURE_MAPS[name](x).backward()
    assert x.grad == (name != "relu")


@backends
@pytest.mark.parametrize(("shift", "causal"), [(10, False), (16, True), (18, False)])
def test_one_plus_elu_far_below_zero(shift, causal, backend):
    """In float32, too: the sum of elu(x) and 1 is 5% off near -16 and 0 near -18."""
    qkv = [x - shift * (i == 0) for i, x in enumerate(torch.randn(3, 2, 33, 1, 8))]
    phi, weight = equations.FEATURE_MAPS["1+elu"], torch.randn(2, 33, 1, 8)

    def op(*qkv):
        options = {"causal": causal, "feature_map": "1+elu", "backend": backend}
        return linear_attention(*qkv, **options)[0]

    def exact(q, k, v):
        return equations.linear_attention(phi(q), phi(k), v, causal=causal)

    wide = [x.double() for x in qkv]
    assert relative_error(op(*qkv), exact(*wide)) < 1e-6
    for gradient, wanted in zip(
        gradients(op, qkv, weight), gradients(exact, wide, weight), strict=True
    ):
        assert relative_error(gradient, wanted) < 1e-6


@pytest.mark.parametrize(
    ("length", "normalize"), [(1, False), (4, True), (11, True), (12, False)]
)
def test_gradcheck_over_chunks_segments_and_states(length, normalize, monkeypatch):
    monkeypatch.setattr(chunks, "CHUNKS_PER_SEGMENT", 2)
    qkv = draw_qkv(length, batch=1, heads=1, width=2, value_width=2)
    before = draw_qkv(3, batch=1, heads=1, width=2, value_width=2)
    _, state = linear_attention(
        *before, causal=True, normalize=normalize, return_state=True
    )
    sums = [x for x in state[:-1] if x is not None]
    tensors = [x.detach().clone().requires_grad_() for x in (*qkv, *sums)]

    def function(query, key, value, *sums):
        sums = [*sums, None][:2]
        before = state._replace(key_value=sums[0], key_sum=sums[1])
        options = Options(
            causal=True, normalize=normalize, initial_state=before, return_state=True
        )
        output, after = torch_impl.linear_attention(
            query, key, value, options, chunk_size=2
        )
        return output, *(x for x in after[:-1] if x is not None)

    assert torch.autograd.gradcheck(function, tensors)


@pytest.mark.parametrize(
    ("length", "scan", "elements"),
    [(64, True, 1), (200, False, 2**30), (200, True, 64 * 4 * 2 * 2)]
    + [(1100, False, 1), (1100, True, 2**30)],
)
def test_tiles_of_any_size(length, scan, elements, monkeypatch):
    """One chunk of one row at a time; two rows; all rows and chunks as on a GPU."""
    monkeypatch.setattr(chunks, "TILE_ELEMENTS", elements)
    if scan:
        scanned = torch_impl._sums_by_scan
        monkeypatch.setattr(torch_impl, "_sums_by_addition", scanned)
    qkv = draw_qkv(length, batch=3)
    before = draw_qkv(9, batch=3)
    _, state = linear_attention(*before, causal=True, return_state=True)
    together = [torch.cat(pair, 1) for pair in zip(before, qkv, strict=True)]
    output, after = linear_attention(
        *qkv, causal=True, initial_state=state, return_state=True
    )
    expected = equations.linear_attention(*together, causal=True)[:, 9:]
    assert relative_error(output, expected) < 1e-13
    key_value = torch.einsum("bnhd,bnhe->bhde", *together[1:])
    assert relative_error(after.key_value, key_value) < 1e-13
    weight = torch.randn_like(expected)
    computed, wanted = (
        gradients(lambda *t, f=f: f(*t, causal=True), qkv, weight)
        for f in (_output, equations.linear_attention)
    )
    for gradient, value in zip(computed, wanted, strict=True):
        torch.testing.assert_close(gradient, value, rtol=1e-10, atol=1e-10)


def _output(*qkv, **options):
    return linear_attention(*qkv, **options)[0]


@pytest.mark.parametrize("eps", [0.0, -1.0, float("nan")])
def test_a_divisor_that_may_be_zero_is_refused(eps):
    x = torch.zeros(1, 3, 1, 2)
    with refuses(ValueError, f"eps={eps}", "above 0"):
        linear_attention(x, x, x, causal=True, normalize=True, eps=eps)


def test_half_precision_sums_under_autocast():
    """bfloat16 inputs, as projections under autocast give them; float32 sums inside."""
    q, k, v = (torch.ones(1, 1000, 1, 8, dtype=torch.bfloat16) for _ in range(3))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output, state = linear_attention(q, k, v, causal=True, return_state=True)
        # bfloat16 sums of ones stop growing at 256
        assert (state.key_value == 1000).all()
    assert relative_error(output[0, :, 0, 0], 8 * torch.arange(1, 1001)) < 3e-3
