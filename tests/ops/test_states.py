"""States beside their laws: what a step writes to, rows that move, rows that join."""

import pytest
import torch

from fairseq_transnormer.ops import (
    BlockAttentionState,
    KeyValueState,
    LinearAttentionState,
    PairState,
    block_attention,
    join_states,
    linear_attention,
    reorder_state,
    state_bytes,
)
from tests.messages import refuses

from . import equations
from .drawing import draw_qkv, draw_signed
from .splits import split

normalizers = pytest.mark.parametrize("normalize", [False, True])
activations = pytest.mark.parametrize("activation", ["softmax", "relu"])


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
    _, state = linear_attention(*first, causal=True, return_state=True)
    kept = state.key_value.detach().clone()
    linear_attention(*last, causal=True, initial_state=state, return_state=True)
    assert torch.equal(state.key_value.detach(), kept)


@torch.no_grad()
def test_many_tokens_leave_the_state_that_they_continue():
    inputs = draw_qkv(70, dtype=torch.float32)
    _, state = linear_attention(*inputs, causal=True, return_state=True)
    kept = state.key_value.clone()
    linear_attention(*inputs, causal=True, initial_state=state)
    assert torch.equal(state.key_value, kept)


def test_a_state_that_the_caller_may_keep_is_no_view_of_all_chunks():
    qkv = draw_qkv(1024, batch=1, heads=1)
    _, state = linear_attention(*qkv, causal=True, return_state=True)
    used = state.key_value.untyped_storage().nbytes()
    assert used == state.key_value.numel() * state.key_value.element_size()


def test_reorder_takes_rows_and_leaves_what_is_not_there():
    state = LinearAttentionState(torch.randn(3, 2, 4, 5), None, torch.tensor([7, 8, 9]))
    after = reorder_state(state, torch.tensor([2, 0, 0, 1]))
    assert type(after) is LinearAttentionState and after.key_sum is None
    assert torch.equal(after.key_value, state.key_value[[2, 0, 0, 1]])
    assert after.length.tolist() == [9, 7, 7, 8]


@activations
@pytest.mark.parametrize("length", [1, 5])
def test_gradcheck_in_the_state(length, activation):
    _, state = block_attention(
        *draw_signed(6, batch=1, heads=1, width=2), block_size=4, causal=True,
        activation=activation, return_state=True,
    )  # fmt: skip
    qkv = draw_signed(length, batch=1, heads=1, width=2)
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


@torch.no_grad()
def test_one_token_is_written_in_place():
    first, last = split(draw_signed(6), (5, 1))
    _, state = block_attention(*first, block_size=8, causal=True, return_state=True)
    _, after = block_attention(
        *last, block_size=8, causal=True, initial_state=state, return_state=True
    )
    assert after.key.data_ptr() == state.key.data_ptr()
    assert after.value.data_ptr() == state.value.data_ptr()


@torch.no_grad()
def test_what_an_earlier_block_left_in_its_slots_is_not_seen():
    first, last = split(draw_signed(13), (12, 1))
    _, state = block_attention(*first, block_size=8, causal=True, return_state=True)
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
    )[0]
    for x in dirty[:2]:
        x[:, 4:] = torch.nan
    two = block_attention(*tokens, block_size=8, causal=True, initial_state=dirty)[0]
    assert torch.equal(one, clean)
    torch.testing.assert_close(two[:, :1], clean)


@torch.no_grad()
@activations
def test_a_step_has_the_dtype_of_the_whole_in_float16(activation):
    """ReLU's weights have no bound, so that its sums come in float32."""
    qkv = [x.half() for x in draw_signed(6)]
    given = {"block_size": 8, "causal": True, "activation": activation}
    whole = block_attention(*qkv, **given)[0]
    first, last = split(qkv, (5, 1))
    _, state = block_attention(*first, return_state=True, **given)
    step = block_attention(*last, initial_state=state, **given)[0]
    assert step.dtype == whole.dtype
    torch.testing.assert_close(step, whole[:, 5:], rtol=1e-2, atol=1e-2)


STATES = [
    LinearAttentionState(torch.rand(3, 2, 4, 5), None, torch.arange(3)),
    LinearAttentionState(
        torch.rand(3, 2, 4, 5), torch.rand(3, 2, 4), torch.tensor([4, 0, 9])
    ),
    BlockAttentionState(
        torch.rand(3, 8, 2, 4), torch.rand(3, 8, 2, 5), torch.arange(3)
    ),
    KeyValueState(
        torch.rand(3, 7, 2, 4),
        torch.rand(3, 7, 2, 5),
        torch.rand(3, 7) < 0.5,
        torch.arange(3),
    ),
]
STATES.append(PairState(STATES[0], STATES[3]))


def tensors(state):
    for part in state:
        if isinstance(part, tuple):
            yield from tensors(part)
        else:
            yield part


@pytest.mark.parametrize("state", STATES)
def test_rows_of_a_state_join_to_it(state):
    rows = [reorder_state(state, torch.tensor(i)) for i in ([0], [1, 2])]
    joined = join_states(rows)
    assert type(joined) is type(state)
    for ours, original in zip(tensors(joined), tensors(state), strict=True):
        if original is None:
            assert ours is None
        else:
            assert torch.equal(ours, original)


def test_what_grew_differently_gets_empty_slots():
    rows = [
        KeyValueState(
            torch.ones(1, slots, 2, 4),
            torch.ones(1, slots, 2, 5),
            torch.ones(1, slots, dtype=torch.bool),
            torch.tensor([slots]),
        )
        for slots in (3, 7, 5)
    ]
    for states in (rows, [PairState(row, row) for row in rows]):
        joined = join_states(states)
        joined = joined if states is rows else joined.second
        assert joined.key.shape == (3, 7, 2, 4) and joined.value.shape == (3, 7, 2, 5)
        for b, slots in enumerate((3, 7, 5)):
            assert joined.seen[b].tolist() == [True] * slots + [False] * (7 - slots)
            assert (joined.key[b, :slots] == 1).all()
            assert (joined.key[b, slots:] == 0).all()
        assert joined.length.tolist() == [3, 7, 5]


@pytest.mark.parametrize("state", STATES)
def test_bytes(state):
    expected = sum(
        t.numel() * t.element_size() for t in tensors(state) if t is not None
    )
    assert state_bytes(state) == expected


def test_states_of_one_kind_join():
    plain, with_sum, block = STATES[:3]
    for states, parts in (
        ([], ["none"]),
        ([plain, block], ["LinearAttentionState", "BlockAttentionState"]),
        # its sum of keys would be lost
        ([plain, with_sum], ["LinearAttentionState", "None"]),
        ([with_sum, plain], ["LinearAttentionState", "None"]),
    ):
        with refuses(ValueError, *parts, "one kind"):
            join_states(states)
