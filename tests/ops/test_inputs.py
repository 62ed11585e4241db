"""Inputs that do not fit: one error that names the tensor and what is allowed."""

import pytest
import torch

from fairseq_transnormer.ops import block_attention, linear_attention
from fairseq_transnormer.ops.softmax_attention import softmax_attention
from tests.messages import refuses

OPS = {
    "linear": lambda q, k, v, **o: linear_attention(q, k, v, **({"causal": True} | o)),
    "block": lambda q, k, v, **o: block_attention(
        q, k, v, **({"causal": True, "block_size": 4} | o)
    ),
    "softmax": lambda q, k, v, **o: softmax_attention(
        q, k, v, **({"causal": True} | o)
    ),
}
ops = pytest.mark.parametrize("op", OPS.values(), ids=OPS)


def draw(*shape, dtype=torch.float32):
    return torch.zeros(shape or (2, 6, 3, 4), dtype=dtype)


@ops
@pytest.mark.parametrize("which", [0, 1, 2])
def test_each_tensor_has_four_dimensions_and_one_float_dtype(which, op):
    name = ("query", "key", "value")[which]
    tensors = [draw() for _ in range(3)]
    tensors[which] = draw(2, 6, 12)
    with refuses(ValueError, name, (2, 6, 12), "batch", "length", "heads", "width"):
        op(*tensors)
    if which:
        tensors[which] = draw().double()
        with refuses(ValueError, name, "torch.float64", "query", "torch.float32"):
            op(*tensors)
    for dtype in (torch.int64, torch.float8_e4m3fn):
        with refuses(ValueError, "query", dtype, "floating-point", "bfloat16"):
            op(*(draw().to(dtype) for _ in range(3)))


@ops
@pytest.mark.parametrize("shape", [(2, 6, 0, 4), (2, 6, 3, 0)], ids=["heads", "width"])
def test_there_are_heads_and_they_have_a_width(shape, op):
    with refuses(ValueError, "query", shape, "1 or more"):
        op(*[draw(*shape)] * 3)


@ops
def test_states_are_those_of_the_op(op):
    state_of = {
        name: other(*[draw()] * 3, return_state=True)[1] for name, other in OPS.items()
    }
    _, own = op(*[draw()] * 3, return_state=True)
    for state in (*state_of.values(), draw(), tuple(own)):
        if type(state) is not type(own):
            names = (f"state of {type(state).__name__}", type(own).__name__)
            with refuses(ValueError, *names):
                op(*[draw()] * 3, initial_state=state)


@ops
@pytest.mark.parametrize(
    "shape", [(1, 6, 3, 4), (2, 6, 2, 4), (2, 6, 3, 5)], ids=["batch", "heads", "width"]
)
def test_keys_fit_queries(shape, op):
    with refuses(ValueError, "key", shape, "query", (2, 6, 3, 4), "heads"):
        op(draw(), draw(*shape), draw())


@ops
@pytest.mark.parametrize(
    "shape",
    [(1, 6, 3, 4), (2, 5, 3, 4), (2, 6, 2, 4)],
    ids=["batch", "length", "heads"],
)
def test_values_fit_keys(shape, op):
    with refuses(ValueError, "value", shape, "key", (2, 6, 3, 4), "heads"):
        op(draw(), draw(), draw(*shape))


@ops
def test_there_is_at_least_one_token(op):
    with refuses(ValueError, "query", "key", "length 0", "1 or more"):
        op(*(draw(2, 0, 3, 4) for _ in range(3)))


@ops
def test_lengths_agree_when_causal(op):
    with refuses(ValueError, "query", 5, "key", 6, "equal"):
        op(draw(2, 5, 3, 4), draw(), draw())


def test_lengths_agree_in_blocks_always():
    with refuses(ValueError, "query", 5, "key", 6, "equal"):
        block_attention(draw(2, 5, 3, 4), draw(), draw(), block_size=4, causal=False)


@ops
@pytest.mark.parametrize(
    "mask",
    [torch.zeros(2, 6), torch.zeros(6, 2).bool(), torch.zeros(2, 7).bool()],
    ids=["dtype", "transposed", "length"],
)
def test_the_mask_is_bool_of_batch_and_key_length(mask, op):
    found = (mask.dtype, tuple(mask.shape))
    with refuses(ValueError, "key_padding_mask", *found, "torch.bool", (2, 6)):
        op(draw(), draw(), draw(), key_padding_mask=mask)


@ops
def test_states_are_causal(op):
    _, state = op(draw(), draw(), draw(), return_state=True)
    for options in ({"return_state": True}, {"initial_state": state}):
        with refuses(ValueError, "causal=False", "state", "causal=True"):
            op(draw(), draw(), draw(), causal=False, **options)


def test_a_normalised_call_needs_a_normalised_state():
    _, state = linear_attention(*[draw()] * 3, causal=True, return_state=True)
    with refuses(ValueError, "initial_state.key_sum=None", "normalize=True"):
        linear_attention(
            *[draw()] * 3, causal=True, normalize=True, initial_state=state
        )


@ops
@pytest.mark.parametrize("length", [1, 6])
@pytest.mark.parametrize(
    "shape", [(1, 3, 4), (2, 1, 4), (2, 3, 1)], ids=["batch", "heads", "width"]
)
@torch.no_grad()
def test_states_of_other_sizes_are_not_broadcast(shape, length, op):
    batch, heads, width = shape
    _, state = op(draw(), draw(), draw(), return_state=True)
    tensors = [draw(batch, length, heads, width)] * 3
    if hasattr(state, "key_value"):
        for_keys = ("key_value", (2, 3, 4, 4), (batch, heads, width, width))
        for_values = ("key_value", (2, 3, 4, 4), (2, 3, 4, 1))
    else:
        slots = state.key.shape[1]
        for_keys = ("key", (2, slots, 3, 4), (batch, slots, heads, width))
        for_values = ("value", (2, slots, 3, 4), (2, slots, 3, 1))
    with refuses(ValueError, f"initial_state.{for_keys[0]}", *for_keys[1:]):
        op(*tensors, initial_state=state)
    query, value = draw(2, length, 3, 4), draw(2, length, 3, 1)
    with refuses(ValueError, f"initial_state.{for_values[0]}", *for_values[1:]):
        op(query, query, value, initial_state=state)


@ops
@pytest.mark.parametrize("length", [1, 6])
@torch.no_grad()
def test_states_of_another_precision_are_not_mixed(length, op):
    _, state = op(draw(), draw(), draw(), return_state=True)
    tensors = [draw(2, length, 3, 4, dtype=torch.float64)] * 3
    with refuses(ValueError, "initial_state", "float32", "float64"):
        op(*tensors, initial_state=state)


@ops
@pytest.mark.parametrize("length", [1, 6])
@torch.no_grad()
def test_a_state_has_a_length_for_each_row(length, op):
    _, state = op(draw(), draw(), draw(), return_state=True)
    state = state._replace(length=state.length[:1])
    with refuses(ValueError, "initial_state.length", (1,), (2,)):
        op(*[draw(2, length, 3, 4)] * 3, initial_state=state)


@pytest.mark.parametrize("op", [OPS["block"], OPS["softmax"]])
@pytest.mark.parametrize("dropout_p", [-0.1, 1, 1.5])
def test_dropout_is_a_probability(dropout_p, op):
    with refuses(ValueError, f"dropout_p={dropout_p}", "0 <= p < 1"):
        op(draw(), draw(), draw(), dropout_p=dropout_p)


def test_the_reference_of_block_attention_says_that_it_keeps_no_state():
    with refuses(NotImplementedError, "backend='reference'", "state", "torch"):
        block_attention(
            *[draw()] * 3,
            block_size=4,
            causal=True,
            return_state=True,
            backend="reference",
        )


def test_block_attention_names_its_options():
    for p in (-0.1, 1.0):
        with refuses(ValueError, f"dropout_p={p}", "0 <=", "< 1"):
            block_attention(*[draw()] * 3, block_size=4, causal=True, dropout_p=p)
    with refuses(ValueError, "block_size=2.0", "integers"):
        block_attention(*[draw()] * 3, block_size=2.0, causal=True)
    with refuses(ValueError, "block_size=0", "1 or more"):
        block_attention(*[draw()] * 3, block_size=0, causal=True)
    with refuses(ValueError, "activation='elu'", "softmax", "relu"):
        block_attention(*[draw()] * 3, block_size=4, causal=True, activation="elu")
    _, state = block_attention(
        *[draw()] * 3, block_size=4, causal=True, return_state=True
    )
    with refuses(ValueError, "initial_state", 4, "block_size=8"):
        block_attention(*[draw()] * 3, block_size=8, causal=True, initial_state=state)
