"""States of ops.block_attention: any split of a sequence equals one call."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fairseq_transnormer.ops import (
    BlockAttentionState,
    block_attention,
    reorder_state,
    state_bytes,
)

from . import equations
from .drawing import draw_qkv, gradients, relative_error
from .splits import part_lengths, ragged_part, split

activations = pytest.mark.parametrize("activation", ["softmax", "relu"])


def draw(length, **options):
    query, key, value = draw_qkv(length, **options)
    return query - 1, key - 1, value


def run_parts(parts, **options):
    outputs, state = [], None
    for part in parts:
        output, state = block_attention(
            *part, causal=True, initial_state=state, return_state=True, **options
        )
        outputs.append(output)
    return torch.cat(outputs, 1), state


@activations
@pytest.mark.parametrize("grad_mode", [False, True])
@settings(max_examples=25)
@given(lengths=part_lengths, block_size=st.sampled_from((1, 2, 7, 16, 300)))
def test_any_split_equals_one_call(activation, grad_mode, lengths, block_size):
    qkv = draw(sum(lengths), width=3, value_width=5)
    if grad_mode:
        qkv = [x.requires_grad_() for x in qkv]
    options = {"block_size": block_size, "activation": activation}
    with torch.set_grad_enabled(grad_mode):
        output, state = run_parts(split(qkv, lengths), **options)
    expected = equations.block_attention(*qkv, causal=True, **options)
    torch.testing.assert_close(output, expected, rtol=1e-10, atol=1e-10)
    used = sum(lengths) % block_size
    assert (state.length == sum(lengths)).all()
    assert state.key.shape[1] == state.value.shape[1] == block_size
    for cached, x in zip(state[:2], qkv[1:], strict=True):
        assert torch.equal(cached[:, :used], x[:, sum(lengths) - used :])


@activations
@settings(max_examples=40)
@given(
    block_size=st.sampled_from((1, 3, 8)),
    counts=st.lists(
        st.one_of(st.just((1, 1, 1)), st.tuples(*[st.integers(0, 12)] * 3)),
        min_size=1,
        max_size=8,
    ),
)
@torch.no_grad()
def test_ragged_rows_continue_from_their_own_lengths(activation, block_size, counts):
    totals = torch.tensor(counts).sum(0)
    qkv = draw(max(int(totals.max()), 1), batch=3)
    options = {"block_size": block_size, "activation": activation, "causal": True}
    expected = equations.block_attention(*qkv, **options)
    starts, state = [0, 0, 0], None
    for part in counts:
        tensors, mask = ragged_part(qkv, starts, part)
        output, state = block_attention(
            *tensors,
            **options,
            key_padding_mask=mask,
            initial_state=state,
            return_state=True,
        )
        for b, (start, count) in enumerate(zip(starts, part, strict=True)):
            torch.testing.assert_close(
                output[b, :count], expected[b, start : start + count]
            )
        starts = [s + c for s, c in zip(starts, part, strict=True)]
    assert state.length.tolist() == totals.tolist()


@activations
@pytest.mark.parametrize("lengths", [(5, 1, 1, 9), (8, 1, 20), (3, 3, 3, 3)])
def test_gradients_flow_through_states(lengths, activation):
    qkv = draw(sum(lengths))
    weight = torch.randn(2, sum(lengths), 2, 4, dtype=torch.float64)
    options = {"block_size": 8, "activation": activation}
    computed = gradients(
        lambda *t: run_parts(split(t, lengths), **options)[0], qkv, weight
    )
    expected = gradients(
        lambda *t: equations.block_attention(*t, causal=True, **options), qkv, weight
    )
    for gradient, wanted in zip(computed, expected, strict=True):
        torch.testing.assert_close(gradient, wanted, rtol=1e-10, atol=1e-10)


@activations
@pytest.mark.parametrize("length", [1, 5])
def test_gradcheck_in_the_state(length, activation):
    _, state = run_parts(
        [draw(6, batch=1, heads=1, width=2)], block_size=4, activation=activation
    )
    qkv = draw(length, batch=1, heads=1, width=2)
    tensors = [x.detach().clone().requires_grad_() for x in (*qkv, *state[:2])]

    def function(query, key, value, keys, values):
        output, after = block_attention(
            query,
            key,
            value,
            block_size=4,
            causal=True,
            activation=activation,
            initial_state=BlockAttentionState(keys, values, state.length),
            return_state=True,
        )
        return output, after.key, after.value

    assert torch.autograd.gradcheck(function, tensors)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@activations
@torch.no_grad()
def test_bytes_do_not_grow(activation, dtype):
    qkv = draw(60, width=16, dtype=dtype)
    outputs, sizes, state = [], set(), None
    for part in split(qkv, (30, *[1] * 30)):
        output, state = block_attention(
            *part,
            block_size=8,
            causal=True,
            activation=activation,
            initial_state=state,
            return_state=True,
        )
        outputs.append(output)
        sizes.add(state_bytes(state))
        assert state.key.dtype == state.value.dtype == dtype
    assert len(sizes) == 1
    expected = equations.block_attention(
        *qkv, block_size=8, causal=True, activation=activation
    )
    assert relative_error(torch.cat(outputs, 1), expected) < 3e-3


@torch.no_grad()
def test_one_token_is_written_in_place():
    first, last = split(draw(6), (5, 1))
    _, state = run_parts([first], block_size=8)
    _, after = block_attention(
        *last, block_size=8, causal=True, initial_state=state, return_state=True
    )
    assert after.key.data_ptr() == state.key.data_ptr()
    assert after.value.data_ptr() == state.value.data_ptr()


@torch.no_grad()
def test_what_an_earlier_block_left_in_its_slots_is_not_seen():
    first, last = split(draw(13), (12, 1))
    _, state = run_parts([first], block_size=8)
    dirty = BlockAttentionState(
        *(x.index_fill(1, torch.arange(4, 8), 1e9) for x in state[:2]), state.length
    )
    clean, _ = block_attention(
        *last,
        block_size=8,
        causal=True,
        initial_state=reorder_state(state, torch.arange(2)),
        return_state=True,
    )
    tokens = [torch.cat((x, x), 1) for x in last]
    one = block_attention(
        *last,
        block_size=8,
        causal=True,
        initial_state=reorder_state(dirty, torch.arange(2)),
    )
    for x in dirty[:2]:
        x[:, 4:] = torch.nan
    two = block_attention(*tokens, block_size=8, causal=True, initial_state=dirty)
    assert torch.equal(one, clean)
    torch.testing.assert_close(two[:, :1], clean)


@torch.no_grad()
@pytest.mark.parametrize("activation", ["softmax", "relu"])
def test_a_step_has_the_dtype_of_the_whole_in_float16(activation):
    """ReLU's weights have no bound, so that its sums come in float32."""
    qkv = [x.half() for x in draw(6)]
    given = {"block_size": 8, "causal": True, "activation": activation}
    whole = block_attention(*qkv, **given)
    first, last = split(qkv, (5, 1))
    _, state = block_attention(*first, return_state=True, **given)
    step = block_attention(*last, initial_state=state, **given)
    assert step.dtype == whole.dtype
    torch.testing.assert_close(step, whole[:, 5:], rtol=1e-2, atol=1e-2)


def test_reorder_takes_rows():
    state = BlockAttentionState(
        torch.randn(3, 8, 2, 4), torch.randn(3, 8, 2, 5), torch.tensor([7, 8, 9])
    )
    after = reorder_state(state, torch.tensor([2, 0]))
    assert type(after) is BlockAttentionState
    for tensor, before in zip(after, state, strict=True):
        assert torch.equal(tensor, before[[2, 0]])
