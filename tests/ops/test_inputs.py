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


MASK = torch.zeros(2, 6)
WRONG = {
    "two dimensions": (("query", (2, 6, 12)), [(2, 6, 12), (2, 6, 3, 4), (2, 6, 3, 4)]),
    "no heads": (("query", (2, 6, 0, 4)), [(2, 6, 0, 4)] * 3),
    "no tokens": (("query", "length 0"), [(2, 0, 3, 4)] * 3),
    "keys' batch": (("key", (1, 6, 3, 4)), [(2, 6, 3, 4), (1, 6, 3, 4), (2, 6, 3, 4)]),
    "keys' heads": (("key", (2, 6, 2, 4)), [(2, 6, 3, 4), (2, 6, 2, 4), (2, 6, 3, 4)]),
    "keys' width": (("key", (2, 6, 3, 5)), [(2, 6, 3, 4), (2, 6, 3, 5), (2, 6, 3, 4)]),
    "values' rows": (("value", (1, 6, 3, 4)), [(2, 6, 3, 4)] * 2 + [(1, 6, 3, 4)]),
    "values' tokens": (("value", (2, 5, 3, 4)), [(2, 6, 3, 4)] * 2 + [(2, 5, 3, 4)]),
    "lengths": (("query", 5, "key", 6, "equal"), [(2, 5, 3, 4)] + [(2, 6, 3, 4)] * 2),
}


@ops
@pytest.mark.parametrize(("parts", "shapes"), WRONG.values(), ids=WRONG)
def test_shapes_that_do_not_fit(parts, shapes, op):
    with refuses(ValueError, *parts):
        op(*(draw(*shape) for shape in shapes))


@ops
def test_dtypes_that_do_not_fit(op):
    with refuses(ValueError, "key", "torch.float64", "query", "torch.float32"):
        op(draw(), draw().double(), draw())
    with refuses(ValueError, "query", torch.int64):
        op(*(draw().long() for _ in range(3)))


@ops
@pytest.mark.parametrize(
    "mask", [MASK, MASK.T.bool(), MASK[:, 1:].bool()], ids=["dtype", "shape", "length"]
)
def test_the_mask_is_bool_of_batch_and_key_length(mask, op):
    with refuses(ValueError, "key_padding_mask", mask.dtype, tuple(mask.shape)):
        op(draw(), draw(), draw(), key_padding_mask=mask)


@ops
def test_states_are_causal_and_those_of_the_op(op):
    states = [each(*[draw()] * 3, return_state=True)[1] for each in OPS.values()]
    _, own = op(*[draw()] * 3, return_state=True)
    for state in states:
        if type(state) is not type(own):
            with refuses(ValueError, f"state of {type(state).__name__}"):
                op(*[draw()] * 3, initial_state=state)
    for asked in ({"initial_state": own}, {"return_state": True}):
        with refuses(ValueError, "causal=False", "state", "causal=True"):
            op(*[draw()] * 3, causal=False, **asked)


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
@pytest.mark.parametrize("dropout_p", [-0.1, 1])
def test_dropout_is_a_probability(dropout_p, op):
    with refuses(ValueError, f"dropout_p={dropout_p}", "0 <= p < 1"):
        op(draw(), draw(), draw(), dropout_p=dropout_p)


def test_block_attention_names_its_options():
    _, state = OPS["block"](*[draw()] * 3, return_state=True)
    for wrong in ({"block_size": 0}, {"activation": "elu"}, {"initial_state": state}):
        options = {"block_size": 8, "causal": True} | wrong
        with refuses(ValueError, next(iter(wrong))):
            block_attention(*[draw()] * 3, **options)
