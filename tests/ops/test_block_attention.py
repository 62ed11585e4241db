"""ops.block_attention against section 4.2, position by position, in float64."""

import pytest
import torch

from fairseq_transnormer.ops import block_attention

from . import equations
from .drawing import CPU_BACKENDS, draw_mask, draw_qkv, gradients, relative_error

backends = pytest.mark.parametrize("backend", CPU_BACKENDS)
forms = pytest.mark.parametrize(
    ("causal", "activation"),
    [(False, "softmax"), (False, "relu"), (True, "softmax"), (True, "relu")],
)


def draw(length, **options):
    """Signed queries and keys, so that ReLU has something to cut."""
    query, key, value = draw_qkv(length, **options)
    return query - 1, key - 1, value


@backends
@forms
@pytest.mark.parametrize(
    ("length", "block_size"),
    [(1, 1), (5, 1), (1, 7), (6, 7), (7, 7), (8, 7), (27, 7), (28, 7)]
    + [(63, 64), (64, 64), (65, 64), (200, 64), (40, 1000)],
)
def test_lengths_and_block_sizes(length, block_size, causal, activation, backend):
    qkv = draw(length)
    options = {"block_size": block_size, "causal": causal, "activation": activation}
    output = block_attention(*qkv, **options, backend=backend)
    assert output.dtype == torch.float64
    expected = equations.block_attention(*qkv, **options)
    torch.testing.assert_close(output, expected, rtol=1e-12, atol=1e-12)


@forms
def test_every_length_up_to_60(causal, activation):
    qkv = draw(60, batch=1, heads=1, width=3)
    options = {"block_size": 16, "causal": causal, "activation": activation}
    for length in range(1, 61):
        part = [x[:, :length] for x in qkv]
        expected = equations.block_attention(*part, **options)
        output = block_attention(*part, **options)
        torch.testing.assert_close(output, expected, rtol=1e-12, atol=1e-12)


@backends
@forms
@pytest.mark.parametrize(("width", "value_width"), [(1, 1), (3, 5), (7, 2), (48, 80)])
@pytest.mark.parametrize("scale", [None, 1.0, 0.3])
def test_head_widths_and_scales(scale, width, value_width, causal, activation, backend):
    qkv = draw(20, heads=3, width=width, value_width=value_width)
    options = {
        "block_size": 8,
        "causal": causal,
        "activation": activation,
        "scale": scale,
    }
    output = block_attention(*qkv, **options, backend=backend)
    assert output.shape == (2, 20, 3, value_width)
    assert relative_error(output, equations.block_attention(*qkv, **options)) < 1e-12


@backends
@forms
@pytest.mark.parametrize("block_size", [1, 7, 64, 200])
def test_masks_anywhere(block_size, causal, activation, backend):
    qkv, mask = draw(100, batch=3), draw_mask(3, 100)
    mask[1, 7:21] = True  # two whole blocks of 7
    options = {
        "block_size": block_size,
        "causal": causal,
        "activation": activation,
        "key_padding_mask": mask,
    }
    output = block_attention(*qkv, **options, backend=backend)
    expected = equations.block_attention(*qkv, **options)
    torch.testing.assert_close(output, expected, rtol=1e-12, atol=1e-12)
    assert (output[2] == 0).all()


@forms
@pytest.mark.parametrize("length", [3, 50])
def test_strides_do_not_matter(length, causal, activation):
    options = {"block_size": 8, "causal": causal, "activation": activation}
    packed = torch.randn(length, 2, 3 * 2 * 4, dtype=torch.float64)
    views = [x.unflatten(-1, (2, 4)).transpose(0, 1) for x in packed.chunk(3, -1)]
    token = torch.randn(1, 1, 1, 4, dtype=torch.float64).expand(2, length, 2, 4)
    for qkv in (views, (token, token, token), (views[2].flip(1), token, views[0])):
        expected = equations.block_attention(*qkv, **options)
        output = block_attention(*qkv, **options)
        torch.testing.assert_close(output, expected, rtol=1e-12, atol=1e-12)


@backends
@forms
@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [(torch.float32, 1e-6), (torch.bfloat16, 3e-3), (torch.float16, 4e-4)],
)
def test_dtypes(dtype, tolerance, causal, activation, backend):
    qkv = draw(100, width=16, dtype=dtype)
    options = {"block_size": 32, "causal": causal, "activation": activation}
    output = block_attention(*qkv, **options, backend=backend)
    sums = dtype == torch.float16 and activation == "relu"
    assert output.dtype == (torch.float32 if sums else dtype)
    expected = equations.block_attention(*qkv, **options)
    assert relative_error(output, expected) < (1e-6 if sums else tolerance)


@backends
@forms
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [
        (torch.float64, 1e-12),
        (torch.float32, 1e-6),
        (torch.bfloat16, 5e-3),
        (torch.float16, 6e-4),
    ],
)
def test_gradients_of_dtypes(dtype, tolerance, masked, causal, activation, backend):
    qkv = draw(61, batch=3, width=16, dtype=dtype)
    options = {"block_size": 16, "causal": causal, "activation": activation}
    options["key_padding_mask"] = draw_mask(3, 61) if masked else None
    weight = torch.randn(3, 61, 2, 16).to(dtype)
    computed = gradients(
        lambda *t: block_attention(*t, **options, backend=backend), qkv, weight
    )
    expected = gradients(
        lambda *t: equations.block_attention(*t, **options),
        [x.double() for x in qkv],
        weight,
    )
    for gradient, wanted in zip(computed, expected, strict=True):
        assert gradient.dtype == dtype and gradient.isfinite().all()
        assert relative_error(gradient, wanted) < tolerance


@backends
@forms
@pytest.mark.parametrize("block_size", [1, 4, 9])
def test_gradcheck(block_size, causal, activation, backend):
    mask = draw_mask(3, 6)
    qkv = [x.requires_grad_() for x in draw(6, batch=3, width=2, value_width=3)]
    assert torch.autograd.gradcheck(
        lambda *t: block_attention(
            *t,
            block_size=block_size,
            causal=causal,
            activation=activation,
            key_padding_mask=mask,
            backend=backend,
        ),
        qkv,
    )


@backends
@forms
@pytest.mark.parametrize("poison", [1e9, torch.inf, torch.nan])
def test_what_stands_at_pads_does_not_leak(poison, causal, activation, backend):
    query, key, value = draw(30, batch=3, dtype=torch.float32)
    mask = draw_mask(3, 30)
    mask[1, 8:16] = True
    weight = torch.randn(3, 30, 2, 4)
    results = []
    for filler in (0.0, poison):
        pads = mask[..., None, None]
        qkv = query, key.masked_fill(pads, filler), value.masked_fill(pads, filler)

        def function(*t):
            return block_attention(
                *t,
                block_size=8,
                causal=causal,
                activation=activation,
                key_padding_mask=mask,
                backend=backend,
            )

        results.append((function(*qkv), *gradients(function, qkv, weight)))
    for clean, poisoned in zip(*results, strict=True):
        assert torch.equal(clean, poisoned)
        assert poisoned.isfinite().all()
    for gradient in results[1][2:]:
        assert (gradient[mask] == 0).all()
    assert (results[1][0][2] == 0).all()


@backends
@pytest.mark.parametrize("causal", [False, True])
def test_float16_scores_and_sums_beyond_its_range(causal, backend):
    big = torch.full((1, 64, 1, 64), 100.0, dtype=torch.float16)
    options = {"block_size": 64, "causal": causal, "backend": backend}
    # scores of 64 * 100 * 100 / 8 = 80,000
    average = block_attention(big, big, big, activation="softmax", **options)
    assert average.dtype == torch.float16 and (average == 100).all()
    total = block_attention(big, big, big, activation="relu", **options)
    assert total[0, -1, 0, 0] == 64 * 80_000 * 100


@backends
@forms
def test_dropout_of_weights(causal, activation, backend):
    """Each weight is dropped or divided by 1 - p, so that the mean does not change."""
    length, p = 64, 0.25
    query, key, _ = draw(length, batch=1, heads=1)
    # with the unit matrix as values the output is the matrix of weights
    value = torch.eye(length, dtype=torch.float64)[None, :, None]
    options = {"block_size": 16, "causal": causal, "activation": activation}
    options["backend"] = backend
    weights = block_attention(query, key, value, **options)
    mean = torch.zeros_like(weights)
    for _ in range(400):
        dropped = block_attention(query, key, value, dropout_p=p, **options)
        kept = dropped != 0
        torch.testing.assert_close(dropped[kept], (weights / (1 - p))[kept])
        mean += dropped / 400
    used = weights > 0.05
    # one weight's mean is off by weight * sqrt(p / (1 - p) / 400) = 3 % typically
    assert ((mean - weights)[used] / weights[used]).abs().max() < 0.15
    assert ((mean - weights).sum() / weights.sum()).abs() < 0.01


@backends
@forms
def test_without_dropout_nothing_is_random(causal, activation, backend):
    qkv = draw(30)
    options = {"block_size": 8, "causal": causal, "activation": activation}
    before = torch.get_rng_state()
    first = block_attention(*qkv, **options, dropout_p=0.0, backend=backend)
    second = block_attention(*qkv, **options, dropout_p=0.0, backend=backend)
    assert torch.equal(first, second)
    assert torch.equal(before, torch.get_rng_state())


@forms
def test_blocks_do_not_see_each_other(causal, activation):
    query, key, value = draw(30)
    options = {"block_size": 8, "causal": causal, "activation": activation}
    output = block_attention(query, key, value, **options)
    changed = [x.clone() for x in (query, key, value)]
    for x in changed:
        x[:, 11] = torch.randn_like(x[:, 11]) + 1
    after = block_attention(*changed, **options)
    first = 11 if causal else 8
    assert torch.equal(after[:, :first], output[:, :first])
    assert torch.equal(after[:, 16:], output[:, 16:])
    assert not torch.equal(after[:, 12:16], output[:, 12:16])
    assert torch.equal(after[:, 8:11], output[:, 8:11]) == causal


@pytest.mark.parametrize("backend", CPU_BACKENDS)
@pytest.mark.parametrize("causal", [True, False])
def test_no_rows_give_no_rows(causal, backend):
    qkv = [torch.randn(0, 20, 2, 4, requires_grad=True) for _ in range(3)]
    output = block_attention(*qkv, block_size=16, causal=causal, backend=backend)
    output.sum().backward()
    assert output.shape == qkv[0].grad.shape == (0, 20, 2, 4)


@pytest.mark.parametrize("backend", CPU_BACKENDS)
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("scale", [-1.0, 0.0, 0.3])
def test_any_scale(scale, causal, backend):
    qkv = draw(40, width=32)
    options = {"block_size": 16, "causal": causal, "scale": scale}
    output = block_attention(*qkv, **options, backend=backend)
    expected = equations.block_attention(*qkv, **options)
    assert relative_error(output, expected) < 1e-12
