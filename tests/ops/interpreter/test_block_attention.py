"""Block attention's kernels against section 4.2, position by position, in float64."""

import pytest
import torch

from fairseq_transnormer.ops import (
    BlockAttentionState,
    block_attention,
    reorder_state,
)
from fairseq_transnormer.ops.triton_ops.block_attention import launch as launcher

from .. import equations
from ..drawing import draw_mask, gradients, relative_error
from ..splits import ragged_part, split
from .tolerances import TOLERANCES, dtypes

pytestmark = pytest.mark.usefixtures("poisoned_memory")

activations = pytest.mark.parametrize("activation", ["softmax", "relu"])
forms = pytest.mark.parametrize(
    ("causal", "activation"),
    [(False, "softmax"), (False, "relu"), (True, "softmax"), (True, "relu")],
)


def triton(*qkv, **options):
    return block_attention(*qkv, **options, backend="triton")


def draw(length, *, batch=1, width=32, value_width=32, dtype=torch.float32):
    widths = (width, width, value_width)
    return [torch.randn(batch, length, 2, w).to(dtype) for w in widths]


def check(qkv, **options):
    """Output and gradients, by the tolerance of their dtype."""
    dtype = qkv[0].dtype
    output = triton(*qkv, **options)
    sums = dtype == torch.float16 and options.get("activation") == "relu"
    assert output.dtype == (torch.float32 if sums else dtype)
    expected = equations.block_attention(*qkv, **options)
    assert output.shape == expected.shape
    if expected.norm() == 0:
        assert (output == 0).all()
    else:
        assert relative_error(output, expected) < (1e-5 if sums else TOLERANCES[dtype])
    weight = torch.randn(expected.shape).to(dtype)
    computed = gradients(lambda *t: triton(*t, **options), qkv, weight)
    wanted = gradients(
        lambda *t: equations.block_attention(*t, **options),
        [x.double() for x in qkv],
        weight,
    )
    for gradient, exact in zip(computed, wanted, strict=True):
        assert gradient.dtype == dtype
        if exact.norm() == 0:
            # one key in softmax: the weight is 1 whatever the score
            assert gradient.norm() < TOLERANCES[dtype]
        else:
            assert relative_error(gradient, exact) < TOLERANCES[dtype]


@dtypes
@forms
def test_dtypes(dtype, tolerance, causal, activation):
    check(draw(130, dtype=dtype), block_size=64, causal=causal, activation=activation)


@forms
@pytest.mark.parametrize(
    ("length", "block_size"),
    [(1, 16), (17, 16), (17, 64), (64, 64), (300, 128)],
)
def test_lengths_and_block_sizes(length, block_size, causal, activation):
    check(draw(length), block_size=block_size, causal=causal, activation=activation)


@pytest.mark.parametrize(("width", "value_width"), [(64, 32), (32, 128), (128, 64)])
@pytest.mark.parametrize("scale", [None, 1, -0.3])
def test_head_widths_and_scales(width, value_width, scale):
    qkv = draw(40, width=width, value_width=value_width)
    check(qkv, block_size=32, causal=True, scale=scale)


@forms
@pytest.mark.parametrize("transpose", [False, True])
def test_masks_anywhere(transpose, causal, activation, monkeypatch):
    """With both ways in which the backward gets the transposed weights."""
    monkeypatch.setattr(launcher, "transposes_products", lambda _: transpose)
    qkv, mask = draw(40, batch=3), draw_mask(3, 40)
    mask[1, 16:32] = True
    options = {"block_size": 16, "causal": causal, "activation": activation}
    check(qkv, **options, key_padding_mask=mask)
    output = triton(*qkv, **options, key_padding_mask=mask)
    assert (output[2] == 0).all() and (output[1, 16:32] == 0).all()


@forms
def test_what_stands_at_pads_does_not_leak(causal, activation):
    query, key, value = draw(40, batch=3)
    mask = draw_mask(3, 40)
    options = {"block_size": 64, "causal": causal, "activation": activation}
    weight = torch.randn(3, 40, 2, 32)
    results = []
    for filler in (torch.zeros(32), torch.tensor([torch.nan, torch.inf]).repeat(16)):
        pads = mask[..., None, None]
        qkv = query, torch.where(pads, filler, key), torch.where(pads, filler, value)

        def function(*t):
            return triton(*t, **options, key_padding_mask=mask)

        results.append((function(*qkv), *gradients(function, qkv, weight)))
    for clean, poisoned in zip(*results, strict=True):
        assert poisoned.isfinite().all() and torch.equal(clean, poisoned)
    for gradient in results[1][2:]:
        assert (gradient[mask] == 0).all()


@forms
def test_strides_do_not_matter(causal, activation):
    options = {"block_size": 16, "causal": causal, "activation": activation}
    packed = torch.randn(20, 2, 3 * 2 * 32)
    views = [x.unflatten(-1, (2, 32)).transpose(0, 1) for x in packed.chunk(3, -1)]
    token = torch.randn(1, 1, 1, 32).expand(2, 20, 2, 32)
    columns = torch.randn(2, 20, 32, 2).transpose(2, 3)
    windows = torch.randn(2, 20, 2 + 31).unfold(2, 32, 1)
    mask = draw_mask(20, 2).transpose(0, 1)
    for qkv in (views, (token, columns, views[0]), (windows, views[1], windows)):
        check(qkv, **options, key_padding_mask=mask)


def test_the_layout_of_the_values_is_kept():
    qkv = [torch.randn(40, 2, 2, 32).transpose(0, 1) for _ in range(3)]
    output = triton(*qkv, block_size=16, causal=True)
    assert output.stride() == qkv[2].stride()


@pytest.mark.parametrize("causal", [False, True])
def test_float16_scores_and_sums_beyond_its_range(causal):
    big = torch.full((1, 64, 1, 64), 100.0, dtype=torch.float16)
    options = {"block_size": 64, "causal": causal}
    # scores of 64 * 100 * 100 / 8 = 80,000
    average = triton(big, big, big, activation="softmax", **options)
    assert average.dtype == torch.float16 and (average == 100).all()
    total = triton(big, big, big, activation="relu", **options)
    assert total[0, -1, 0, 0] == 64 * 80_000 * 100


def test_gradients_of_float16_sums_beyond_its_range():
    """The gradient of such a sum comes in float32 and may be large or tiny."""
    qkv = draw(32, dtype=torch.float16)
    options = {"block_size": 32, "causal": True, "activation": "relu"}
    weight = 1e6 * torch.randn(1, 32, 2, 32)
    small = [x * 2.0**-8 for x in qkv]
    for gradient in gradients(lambda *t: triton(*t, **options), small, weight):
        assert gradient.isfinite().all() and gradient.abs().max() > 0


def test_nothing_is_kept_but_the_inputs():
    qkv = [x.requires_grad_() for x in draw(40)]
    saved = []
    hooks = torch.autograd.graph.saved_tensors_hooks(saved.append, lambda x: x)
    with hooks:
        triton(*qkv, block_size=16, causal=True)
    assert {x.data_ptr() for x in saved if x is not None} == {x.data_ptr() for x in qkv}


def test_autocast_changes_nothing():
    qkv = draw(40)
    expected = triton(*qkv, block_size=16, causal=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(triton(*qkv, block_size=16, causal=True), expected)


def run_parts(parts, **options):
    outputs, state = [], None
    for part in parts:
        output, state = triton(
            *part, causal=True, initial_state=state, return_state=True, **options
        )
        outputs.append(output)
    return torch.cat(outputs, 1), state


@activations
@dtypes
@pytest.mark.parametrize("lengths", [(17, *[1] * 17), (1, 31, 1, 20, 1)])
@torch.no_grad()
def test_any_split_equals_one_call(lengths, dtype, tolerance, activation):
    qkv = draw(sum(lengths), batch=2, value_width=64, dtype=dtype)
    options = {"block_size": 16, "activation": activation}
    output, state = run_parts(split(qkv, lengths), **options)
    expected = equations.block_attention(*qkv, causal=True, **options)
    assert relative_error(output, expected) < tolerance
    used = sum(lengths) % 16
    assert state.length.tolist() == 2 * [sum(lengths)]
    for cached, x in zip(state[:2], qkv[1:], strict=True):
        assert cached.dtype == dtype
        assert torch.equal(cached[:, :used], x[:, sum(lengths) - used :])


@activations
@torch.no_grad()
def test_ragged_rows_continue_from_their_own_lengths(activation):
    parts = [(20, 3, 0), (1, 1, 1), (7, 0, 16), (1, 1, 1)]
    totals = torch.tensor(parts).sum(0)
    qkv = draw(int(totals.max()), batch=3)
    options = {"block_size": 16, "activation": activation, "causal": True}
    expected = equations.block_attention(*qkv, **options)
    starts, state = [0, 0, 0], None
    for part in parts:
        tensors, mask = ragged_part(qkv, starts, part)
        output, state = triton(
            *tensors,
            **options,
            key_padding_mask=mask,
            initial_state=state,
            return_state=True,
        )
        for b, (start, count) in enumerate(zip(starts, part, strict=True)):
            wanted = expected[b, start : start + count]
            torch.testing.assert_close(
                output[b, :count].double(), wanted, rtol=1e-5, atol=1e-5
            )
        starts = [s + c for s, c in zip(starts, part, strict=True)]
    assert state.length.tolist() == totals.tolist()


@activations
@pytest.mark.parametrize("lengths", [(5, 1, 20), (16, 1, 3)])
def test_gradients_flow_through_states(lengths, activation):
    qkv = draw(sum(lengths))
    weight = torch.randn(1, sum(lengths), 2, 32)
    options = {"block_size": 16, "activation": activation}
    computed = gradients(
        lambda *t: run_parts(split(t, lengths), **options)[0], qkv, weight
    )
    wanted = gradients(
        lambda *t: equations.block_attention(*t, causal=True, **options),
        [x.double() for x in qkv],
        weight,
    )
    for gradient, exact in zip(computed, wanted, strict=True):
        assert relative_error(gradient, exact) < 1e-5


@activations
@torch.no_grad()
def test_a_step_writes_in_place_and_sees_no_leftovers(activation):
    first, last = split(draw(29, batch=2), (28, 1))
    options = {"block_size": 16, "activation": activation, "causal": True}
    _, state = triton(*first, **options, return_state=True)
    clean = triton(
        *last, **options, initial_state=reorder_state(state, torch.arange(2))
    )
    # as a transposed view, which must be written through
    dirty = BlockAttentionState(
        *(
            x.index_fill(1, torch.arange(12, 16), torch.nan)
            .transpose(0, 2)
            .contiguous()
            .transpose(0, 2)
            for x in state[:2]
        ),
        state.length,
    )
    output, after = triton(*last, **options, initial_state=dirty, return_state=True)
    assert torch.equal(output, clean)
    assert after.key is dirty.key and after.value is dirty.value
    assert state.length.tolist() == [28, 28] and after.length.tolist() == [29, 29]
    for cached, before, token in zip(after[:2], state[:2], last[1:], strict=True):
        assert torch.equal(cached[:, :12], before[:, :12])
        assert torch.equal(cached[:, 12], token[:, 0])
        assert cached[:, 13:].isnan().all()


def draw_step():
    """A token of two rows, and a state behind 5 and 7 tokens."""
    cache = (torch.randn(2, 16, 2, 32) for _ in "kv")
    return draw(1, batch=2), BlockAttentionState(*cache, torch.tensor([5, 7]))


def rows_outside(state):
    return state._replace(**{n: x.mT.contiguous().mT for n, x in named_cache(state)})


def every_other_length(state):
    return state._replace(length=torch.tensor([5, 9, 7, 9])[::2])


def named_cache(state):
    return (("key", state.key), ("value", state.value))


@torch.no_grad()
@pytest.mark.parametrize("view", [rows_outside, every_other_length])
def test_a_step_takes_states_with_any_strides(view):
    token, state = draw_step()
    other = view(BlockAttentionState(*(x.clone() for x in state)))
    options = {"block_size": 16, "causal": True, "return_state": True}
    expected, after = triton(*token, **options, initial_state=state)
    output, other_after = triton(*token, **options, initial_state=other)
    assert torch.equal(output, expected)
    for x, y in zip(other_after, after, strict=True):
        assert torch.equal(x, y)
    assert other_after.key is other.key


@torch.no_grad()
def test_a_step_refuses_a_state_whose_rows_share_memory():
    token, state = draw_step()
    shared = state._replace(key=state.key[:1].expand(2, -1, -1, -1))
    with pytest.raises(ValueError, match="expanded"):
        triton(*token, block_size=16, causal=True, initial_state=shared)


def test_blocks_too_large_for_a_tile_are_refused():
    qkv = draw(3, width=128)
    with pytest.raises(ValueError, match="block_size=128 with head width 128"):
        triton(*qkv, block_size=128, causal=True)
