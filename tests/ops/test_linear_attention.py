"""ops.linear_attention against equation 3 in float64."""

import pytest
import torch

from fairseq_transnormer.ops import (
    FEATURE_MAPS,
    chunks,
    linear_attention,
    torch_linear_attention,
)
from tests.messages import refuses

from . import equations
from .drawing import CPU_BACKENDS, draw_mask, draw_qkv, gradients, relative_error

backends = pytest.mark.parametrize("backend", CPU_BACKENDS)
forms = pytest.mark.parametrize(
    ("causal", "normalize"),
    [(False, False), (False, True), (True, False), (True, True)],
)
# below, at and above a chunk (64) and a segment of chunks (1024)
LENGTHS = (1, 2, 63, 64, 65, 127, 128, 129, 300, 1023, 1024, 1025, 2100)


@backends
@forms
@pytest.mark.parametrize("length", LENGTHS)
def test_lengths(length, causal, normalize, backend):
    qkv = draw_qkv(length, batch=1)
    options = {"causal": causal, "normalize": normalize}
    output = linear_attention(*qkv, **options, backend=backend)
    assert output.dtype == torch.float64
    assert relative_error(output, equations.linear_attention(*qkv, **options)) < 1e-13


@forms
def test_every_length_up_to_300(causal, normalize):
    qkv = draw_qkv(300, batch=1, heads=1, width=3)
    for length in range(1, 301):
        part = [x[:, :length] for x in qkv]
        options = {"causal": causal, "normalize": normalize}
        expected = equations.linear_attention(*part, **options)
        assert relative_error(linear_attention(*part, **options), expected) < 1e-13


@backends
@forms
@pytest.mark.parametrize(("width", "value_width"), [(1, 1), (3, 5), (7, 2), (48, 80)])
def test_head_widths(width, value_width, causal, normalize, backend):
    qkv = draw_qkv(70, heads=3, width=width, value_width=value_width)
    options = {"causal": causal, "normalize": normalize}
    output = linear_attention(*qkv, **options, backend=backend)
    assert output.shape == (2, 70, 3, value_width)
    assert relative_error(output, equations.linear_attention(*qkv, **options)) < 1e-13


@backends
@forms
def test_masks_anywhere(causal, normalize, backend):
    qkv, mask = draw_qkv(150, batch=3), draw_mask(3, 150)
    options = {"causal": causal, "normalize": normalize, "key_padding_mask": mask}
    output = linear_attention(*qkv, **options, backend=backend)
    assert relative_error(output, equations.linear_attention(*qkv, **options)) < 1e-13
    assert (output[2] == 0).all()


@backends
@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize(("length", "key_length"), [(1, 90), (90, 1), (65, 130)])
def test_queries_and_keys_of_different_lengths(length, key_length, normalize, backend):
    qkv = draw_qkv(length, key_length=key_length, value_width=3)
    mask = draw_mask(2, key_length)
    options = {"causal": False, "normalize": normalize, "key_padding_mask": mask}
    output = linear_attention(*qkv, **options, backend=backend)
    assert relative_error(output, equations.linear_attention(*qkv, **options)) < 1e-13


@backends
def test_a_signed_divisor_is_not_below_eps(backend):
    qkv = [torch.randn(2, 80, 2, 4, dtype=torch.float64) for _ in range(3)]
    for eps in (1e-6, 0.5):
        options = {"causal": True, "normalize": True, "eps": eps}
        output = linear_attention(*qkv, **options, backend=backend)
        expected = equations.linear_attention(*qkv, **options)
        assert relative_error(output, expected) < 1e-12


@forms
@pytest.mark.parametrize("length", [3, 129])
def test_strides_do_not_matter(length, causal, normalize):
    options = {"causal": causal, "normalize": normalize}
    # fairseq's (N, B, H * D), one projection for all three
    packed = torch.rand(length, 2, 3 * 2 * 4, dtype=torch.float64)
    views = [x.unflatten(-1, (2, 4)).transpose(0, 1) for x in packed.chunk(3, -1)]
    # one row, one head, one token for all
    tokens = torch.rand(1, 1, 1, 4, dtype=torch.float64).expand(2, length, 2, 4)
    reversed_ = views[0].flip(1)[:, ::2].repeat_interleave(2, 1)[:, :length]
    for qkv in (views, (tokens, tokens, tokens), (views[2], reversed_, tokens)):
        output = linear_attention(*qkv, **options)
        assert torch.equal(
            output, linear_attention(*(x.contiguous() for x in qkv), **options)
        )
        expected = equations.linear_attention(*qkv, **options)
        assert relative_error(output, expected) < 1e-13
        weight = torch.randn_like(output)
        for gradient, plain in zip(
            gradients_through(qkv, weight, options),
            gradients(lambda *t: linear_attention(*t, **options), qkv, weight),
            strict=True,
        ):
            torch.testing.assert_close(gradient, plain, rtol=1e-12, atol=1e-12)


def gradients_through(qkv, weight, options):
    """Gradients in the inputs as they are strided, where ``gradients`` clones them."""
    views = [x.detach().requires_grad_() for x in qkv]
    loss = (linear_attention(*views, **options) * weight).sum()
    return torch.autograd.grad(loss, views)


# Output rounding alone gives 2^-9 (bfloat16) and 2^-12 (float16) on average less.
@backends
@forms
@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [(torch.float32, 1e-6), (torch.bfloat16, 3e-3), (torch.float16, 4e-4)],
)
@pytest.mark.parametrize("length", [5, 200, 1100])
def test_dtypes(length, dtype, tolerance, causal, normalize, backend):
    qkv = draw_qkv(length, width=16, dtype=dtype)
    options = {"causal": causal, "normalize": normalize}
    output = linear_attention(*qkv, **options, backend=backend)
    sums = dtype == torch.float16 and not normalize
    assert output.dtype == (torch.float32 if sums else dtype)
    assert relative_error(output, equations.linear_attention(*qkv, **options)) < (
        1e-6 if sums else tolerance
    )


@backends
@forms
@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [(torch.float32, 1e-6), (torch.bfloat16, 5e-3), (torch.float16, 6e-4)],
)
def test_gradients_of_dtypes(dtype, tolerance, causal, normalize, backend):
    qkv = draw_qkv(200, width=16, dtype=dtype)
    options = {"causal": causal, "normalize": normalize}
    weight = torch.randn(2, 200, 2, 16).to(dtype)
    computed = gradients(
        lambda *t: linear_attention(*t, **options, backend=backend), qkv, weight
    )
    expected = gradients(
        lambda *t: equations.linear_attention(*t, **options),
        [x.double() for x in qkv],
        weight,
    )
    for gradient, wanted in zip(computed, expected, strict=True):
        assert gradient.dtype == dtype
        assert relative_error(gradient, wanted) < tolerance


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
    output = linear_attention(*qkv, **options, backend=backend)
    exact = linear_attention(*(x.double() for x in qkv), **options, backend=backend)
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
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("shift", [10, 16, 18])
def test_one_plus_elu_far_below_zero(shift, causal, backend):
    """In float32, too: the sum of elu(x) and 1 is 5% off near -16 and 0 near -18."""
    qkv = [x - shift * (i == 0) for i, x in enumerate(torch.randn(3, 2, 33, 1, 8))]
    phi, weight = equations.FEATURE_MAPS["1+elu"], torch.randn(2, 33, 1, 8)

    def op(*qkv):
        options = {"causal": causal, "feature_map": "1+elu", "backend": backend}
        return linear_attention(*qkv, **options)

    def exact(q, k, v):
        return equations.linear_attention(phi(q), phi(k), v, causal=causal)

    wide = [x.double() for x in qkv]
    found, expected = op(*qkv), exact(*wide)
    assert relative_error(found, expected) < 1e-6
    for gradient, wanted in zip(
        gradients(op, qkv, weight), gradients(exact, wide, weight), strict=True
    ):
        assert relative_error(gradient, wanted) < 1e-6


@forms
@pytest.mark.parametrize("length", [1, 64, 65, 1023, 1025, 2100])
def test_gradients_of_lengths(length, causal, normalize):
    qkv = draw_qkv(length, heads=1, value_width=3)
    options = {"causal": causal, "normalize": normalize}
    options["key_padding_mask"] = draw_mask(2, length)
    weight = torch.randn(2, length, 1, 3, dtype=torch.float64)
    computed, expected = (
        gradients(lambda *t, f=f: f(*t, **options), qkv, weight)
        for f in (linear_attention, equations.linear_attention)
    )
    for gradient, wanted in zip(computed, expected, strict=True):
        torch.testing.assert_close(gradient, wanted, rtol=1e-10, atol=1e-10)


@backends
@forms
def test_gradcheck(causal, normalize, backend):
    mask = draw_mask(2, 7)
    qkv = draw_qkv(7, width=2, value_width=3)
    assert torch.autograd.gradcheck(
        lambda *t: linear_attention(
            *t,
            causal=causal,
            normalize=normalize,
            key_padding_mask=mask,
            backend=backend,
        ),
        [x.requires_grad_() for x in qkv],
    )


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("length", [1, 4, 11, 12])
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
        output, after = torch_linear_attention.linear_attention(
            query,
            key,
            value,
            causal=True,
            normalize=normalize,
            initial_state=state._replace(key_value=sums[0], key_sum=sums[1]),
            return_state=True,
            chunk_size=2,
        )
        return output, *(x for x in after[:-1] if x is not None)

    assert torch.autograd.gradcheck(function, tensors)


@pytest.mark.parametrize("elements", [1, 64 * 4 * 2 * 2, 2**30])
@pytest.mark.parametrize("scan", [False, True])
@pytest.mark.parametrize("length", [64, 200, 1100])
def test_tiles_of_any_size(length, scan, elements, monkeypatch):
    """One chunk of one row at a time; two rows; all rows and chunks as on a GPU."""
    monkeypatch.setattr(chunks, "TILE_ELEMENTS", elements)
    if scan:
        scanned = torch_linear_attention._sums_by_scan
        monkeypatch.setattr(torch_linear_attention, "_sums_by_addition", scanned)
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
        for f in (linear_attention, equations.linear_attention)
    )
    for gradient, value in zip(computed, wanted, strict=True):
        torch.testing.assert_close(gradient, value, rtol=1e-10, atol=1e-10)


@backends
@forms
@pytest.mark.parametrize("poison", [1e9, torch.inf, torch.nan])
def test_what_stands_at_pads_does_not_leak(poison, causal, normalize, backend):
    query, key, value = draw_qkv(150, batch=3, dtype=torch.float32)
    mask = draw_mask(3, 150)
    weight = torch.randn(3, 150, 2, 4)
    options = {"causal": causal, "normalize": normalize, "key_padding_mask": mask}
    results = []
    for filler in (0.0, poison):
        qkv = (
            query,
            *(x.masked_fill(mask[..., None, None], filler) for x in (key, value)),
        )

        def function(*t):
            return linear_attention(*t, **options, backend=backend)

        results.append((function(*qkv), *gradients(function, qkv, weight)))
    for clean, poisoned in zip(*results, strict=True):
        assert torch.equal(clean, poisoned)
        assert poisoned.isfinite().all()
    for gradient in results[1][2:]:
        assert (gradient[mask] == 0).all()


@backends
@pytest.mark.parametrize("causal", [False, True])
def test_float16_sums_beyond_its_range(causal, backend):
    qkv = [torch.full((1, 512, 1, 64), 4.0, dtype=torch.float16) for _ in range(3)]
    output = linear_attention(*qkv, causal=causal, backend=backend)
    # 512 tokens, each 64 products of 16, times 4
    assert output[0, -1, 0, 0] == 512 * 64 * 16 * 4 > torch.finfo(torch.float16).max
    assert (
        relative_error(output, equations.linear_attention(*qkv, causal=causal)) < 1e-6
    )
    average = linear_attention(*qkv, causal=causal, normalize=True, backend=backend)
    assert (average == 4).all() and average.dtype == torch.float16


@backends
def test_later_tokens_leave_earlier_outputs_untouched(backend):
    query, key, value = draw_qkv(140, dtype=torch.float32)
    output = linear_attention(query, key, value, causal=True, backend=backend)
    for j in (0, 63, 64, 100, 139):
        changed = [x.clone() for x in (query, key, value)]
        for x in changed:
            x[:, j:] = torch.randn_like(x[:, j:])
        after = linear_attention(*changed, causal=True, backend=backend)
        assert torch.equal(after[:, :j], output[:, :j])
        assert not torch.equal(after[:, j], output[:, j])


@pytest.mark.parametrize("eps", [0.0, -1.0, float("nan")])
def test_a_divisor_that_may_be_zero_is_refused(eps):
    x = torch.zeros(1, 3, 1, 2)
    with refuses(ValueError, f"eps={eps}", "above 0"):
        linear_attention(x, x, x, causal=True, normalize=True, eps=eps)
