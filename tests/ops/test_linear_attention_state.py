"""States of ops.linear_attention: any split of a sequence equals one call."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fairseq_transnormer.ops import (
    LinearAttentionState,
    linear_attention,
    reorder_state,
    state_bytes,
)
from tests.messages import refuses

from . import equations
from .drawing import CPU_BACKENDS, draw_qkv, gradients, relative_error
from .splits import part_lengths, ragged_part, split

backends = pytest.mark.parametrize("backend", CPU_BACKENDS)
normalizers = pytest.mark.parametrize("normalize", [False, True])


def run_parts(parts, normalize, **options):
    outputs, state = [], None
    for part in parts:
        output, state = linear_attention(
            *part,
            causal=True,
            normalize=normalize,
            initial_state=state,
            return_state=True,
            **options,
        )
        outputs.append(output)
    return torch.cat(outputs, 1), state


@backends
@normalizers
@pytest.mark.parametrize("grad_mode", [False, True])
@settings(max_examples=15)
@given(lengths=part_lengths)
def test_any_split_equals_one_call(backend, normalize, grad_mode, lengths):
    qkv = draw_qkv(sum(lengths), width=3, value_width=5)
    if grad_mode:
        qkv = [x.requires_grad_() for x in qkv]
    with torch.set_grad_enabled(grad_mode):
        output, state = run_parts(split(qkv, lengths), normalize, backend=backend)
    options = {"causal": True, "normalize": normalize}
    assert relative_error(output, equations.linear_attention(*qkv, **options)) < 1e-12
    _, key, value = qkv
    key_value = torch.einsum("bnhd,bnhe->bhde", key, value)
    assert relative_error(state.key_value, key_value) < 1e-12
    assert (state.length == sum(lengths)).all()
    if normalize:
        assert relative_error(state.key_sum, key.sum(1)) < 1e-12
    else:
        assert state.key_sum is None


@normalizers
@pytest.mark.parametrize("lengths", [(1024, 1, 1), (1, 1024, 70), (1000, 100, 1025)])
def test_splits_around_a_segment(lengths, normalize):
    qkv = draw_qkv(sum(lengths), batch=1, heads=1)
    output, _ = run_parts(split(qkv, lengths), normalize)
    expected = equations.linear_attention(*qkv, causal=True, normalize=normalize)
    assert relative_error(output, expected) < 1e-12


@normalizers
@settings(max_examples=15)
@given(
    counts=st.lists(st.tuples(*[st.integers(0, 12)] * 3), min_size=1, max_size=5),
)
def test_ragged_rows_continue_from_their_own_lengths(normalize, counts):
    totals = torch.tensor(counts).sum(0)
    qkv = draw_qkv(max(int(totals.max()), 1), batch=3)
    starts, state = [0, 0, 0], None
    expected = equations.linear_attention(*qkv, causal=True, normalize=normalize)
    for part in counts:
        tensors, mask = ragged_part(qkv, starts, part)
        output, state = linear_attention(
            *tensors,
            causal=True,
            normalize=normalize,
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


@backends
@normalizers
@pytest.mark.parametrize("lengths", [(5, 1, 1, 9), (64, 1, 70)])
def test_gradients_flow_through_states(lengths, normalize, backend):
    qkv = draw_qkv(sum(lengths))
    weight = torch.randn(2, sum(lengths), 2, 4, dtype=torch.float64)
    computed = gradients(
        lambda *t: run_parts(split(t, lengths), normalize, backend=backend)[0],
        qkv,
        weight,
    )
    expected = gradients(
        lambda *t: equations.linear_attention(*t, causal=True, normalize=normalize),
        qkv,
        weight,
    )
    for gradient, wanted in zip(computed, expected, strict=True):
        torch.testing.assert_close(gradient, wanted, rtol=1e-9, atol=1e-9)


@backends
@normalizers
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@torch.no_grad()
def test_sums_are_float32_and_do_not_grow(dtype, normalize, backend):
    qkv = draw_qkv(90, dtype=dtype)
    sizes = set()
    state = None
    for part in split(qkv, (30, *[1] * 60)):
        _, state = linear_attention(
            *part,
            causal=True,
            normalize=normalize,
            initial_state=state,
            return_state=True,
            backend=backend,
        )
        assert state.key_value.dtype == torch.float32
        sizes.add(state_bytes(state))
    assert len(sizes) == 1
    key_value = torch.einsum("bnhd,bnhe->bhde", *(x.double() for x in qkv[1:]))
    assert relative_error(state.key_value, key_value) < 1e-6


def one_more_token(normalize, lay_out):
    """The last output of 6 tokens, the state before and after it, and all tokens.

    lay_out: of each tensor of the state after 5 of them.
    """
    qkv = draw_qkv(6, value_width=5)
    options = {"causal": True, "normalize": normalize}
    first, last = split(qkv, (5, 1))
    _, state = linear_attention(*first, **options, return_state=True)
    state = state._replace(
        key_value=lay_out(state.key_value),
        key_sum=lay_out(state.key_sum) if normalize else None,
    )
    output, after = linear_attention(
        *last, **options, initial_state=state, return_state=True
    )
    expected = equations.linear_attention(*qkv, **options)[:, -1:]
    torch.testing.assert_close(output, expected)
    return state, after, qkv


def as_heads_first(x):
    return x.transpose(0, 1).contiguous().transpose(0, 1)


def as_columns_first(x):
    return x.transpose(-1, -2).contiguous().transpose(-1, -2)


def as_a_part(x):
    """Every second head of a larger tensor."""
    room = x.new_zeros(len(x), 2 * x.shape[1], *x.shape[2:])
    room[:, ::2] = x
    return room[:, ::2]


@normalizers
@pytest.mark.parametrize(
    "lay_out", [lambda x: x, as_heads_first, as_columns_first, as_a_part]
)
@torch.no_grad()
def test_one_token_is_added_in_place(lay_out, normalize):
    state, after, (_, key, value) = one_more_token(normalize, lay_out)
    key_value = torch.einsum("bnhd,bnhe->bhde", key, value)
    torch.testing.assert_close(state.key_value, key_value)
    assert after.key_value.data_ptr() == state.key_value.data_ptr()
    assert after.key_value.stride() == state.key_value.stride()
    if normalize:
        torch.testing.assert_close(state.key_sum, key.sum(1))
        assert after.key_sum.data_ptr() == state.key_sum.data_ptr()


@normalizers
@torch.no_grad()
def test_a_token_is_not_added_where_rows_share_memory(normalize):
    tensors = draw_qkv(1)
    options = {"causal": True, "normalize": normalize}
    _, state = linear_attention(*tensors, **options, return_state=True)
    parts = ["key_value", "key_sum"] if normalize else ["key_value"]
    for part in parts:
        kept = state.key_value.clone()
        shared = getattr(state, part)[:1].expand(2, *[-1] * (4 - parts.index(part) - 1))
        with refuses(ValueError, "initial_state", "expanded", shared.stride()):
            linear_attention(
                *tensors, **options, initial_state=state._replace(**{part: shared})
            )
        assert torch.equal(state.key_value, kept)


def test_a_state_with_gradients_is_not_written_to():
    qkv = [x.requires_grad_() for x in draw_qkv(6)]
    first, last = split(qkv, (5, 1))
    _, state = run_parts([first], False)
    kept = state.key_value.detach().clone()
    linear_attention(*last, causal=True, initial_state=state, return_state=True)
    assert torch.equal(state.key_value.detach(), kept)


@torch.no_grad()
@torch.no_grad()
def test_many_tokens_leave_the_state_that_they_continue():
    inputs = draw_qkv(70, dtype=torch.float32)
    _, state = linear_attention(*inputs, causal=True, return_state=True)
    kept = state.key_value.clone()
    linear_attention(*inputs, causal=True, initial_state=state)
    assert torch.equal(state.key_value, kept)


def test_a_state_that_the_caller_may_keep_is_no_view_of_all_chunks():
    qkv = draw_qkv(1024, batch=1, heads=1)
    _, state = run_parts([qkv], False)
    used = state.key_value.untyped_storage().nbytes()
    assert used == state.key_value.numel() * state.key_value.element_size()


def test_reorder_takes_rows_and_leaves_what_is_not_there():
    state = LinearAttentionState(torch.randn(3, 2, 4, 5), None, torch.tensor([7, 8, 9]))
    after = reorder_state(state, torch.tensor([2, 0, 0, 1]))
    assert type(after) is LinearAttentionState and after.key_sum is None
    assert torch.equal(after.key_value, state.key_value[[2, 0, 0, 1]])
    assert after.length.tolist() == [9, 7, 7, 8]


def test_bytes_of_a_state():
    state = LinearAttentionState(
        torch.zeros(2, 3, 4, 5), torch.zeros(2, 3, 4), torch.zeros(2, dtype=torch.int64)
    )
    assert state_bytes(state) == 4 * (2 * 3 * 4 * 5 + 2 * 3 * 4) + 8 * 2
