"""Inputs that do not fit: one error that names the tensor and what is allowed."""

import pytest
import torch

from fairseq_transnormer.ops import block_attention, linear_attention

OPS = {
    "linear": lambda q, k, v, **o: linear_attention(q, k, v, **({"causal": True} | o)),
    "block": lambda q, k, v, **o: block_attention(
        q, k, v, **({"causal": True, "block_size": 4} | o)
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
    with pytest.raises(ValueError, match=rf"{name}.*\(2, 6, 12\).*allowed.*batch"):
        op(*tensors)
    if which:
        tensors[which] = draw().double()
        with pytest.raises(ValueError, match=f"{name}.*float64.*float32.*allowed"):
            op(*tensors)
    with pytest.raises(ValueError, match="query has dtype torch.int64"):
        op(*(draw(dtype=torch.int64) for _ in range(3)))


@ops
@pytest.mark.parametrize(
    "shape", [(1, 6, 3, 4), (2, 6, 2, 4), (2, 6, 3, 5)], ids=["batch", "heads", "width"]
)
def test_keys_fit_queries(shape, op):
    with pytest.raises(ValueError, match=r"key has shape.*beside query.*must agree"):
        op(draw(), draw(*shape), draw())


@ops
@pytest.mark.parametrize(
    "shape",
    [(1, 6, 3, 4), (2, 5, 3, 4), (2, 6, 2, 4)],
    ids=["batch", "length", "heads"],
)
def test_values_fit_keys(shape, op):
    with pytest.raises(ValueError, match=r"value has shape.*beside key.*must agree"):
        op(draw(), draw(), draw(*shape))


@ops
def test_there_is_at_least_one_token(op):
    with pytest.raises(ValueError, match="length 0; allowed: 1 or more"):
        op(*(draw(2, 0, 3, 4) for _ in range(3)))


@ops
def test_lengths_agree_when_causal(op):
    with pytest.raises(ValueError, match="query has length 5 and key 6"):
        op(draw(2, 5, 3, 4), draw(), draw())


def test_lengths_agree_in_blocks_always():
    with pytest.raises(ValueError, match="query has length 5 and key 6"):
        block_attention(draw(2, 5, 3, 4), draw(), draw(), block_size=4, causal=False)


@ops
@pytest.mark.parametrize(
    "mask",
    [torch.zeros(2, 6), torch.zeros(6, 2).bool(), torch.zeros(2, 7).bool()],
    ids=["dtype", "transposed", "length"],
)
def test_the_mask_is_bool_of_batch_and_key_length(mask, op):
    message = r"key_padding_mask is torch.*allowed: torch.bool.*\(2, 6\)"
    with pytest.raises(ValueError, match=message):
        op(draw(), draw(), draw(), key_padding_mask=mask)


@ops
def test_states_are_causal(op):
    _, state = op(draw(), draw(), draw(), return_state=True)
    for options in ({"return_state": True}, {"initial_state": state}):
        with pytest.raises(ValueError, match="causal=False.*states with causal=True"):
            op(draw(), draw(), draw(), causal=False, **options)


def test_a_normalised_call_needs_a_normalised_state():
    _, state = linear_attention(*[draw()] * 3, causal=True, return_state=True)
    with pytest.raises(ValueError, match="key_sum=None with normalize=True; allowed"):
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
    with pytest.raises(ValueError, match=r"initial_state.key\w* has shape.*allowed"):
        op(*tensors, initial_state=state)
    query, value = draw(2, length, 3, 4), draw(2, length, 3, 1)
    with pytest.raises(ValueError, match=r"initial_state.\w*value has shape.*allowed"):
        op(query, query, value, initial_state=state)


def test_the_reference_of_block_attention_says_that_it_keeps_no_state():
    with pytest.raises(NotImplementedError, match="allowed backend: torch"):
        block_attention(
            *[draw()] * 3,
            block_size=4,
            causal=True,
            return_state=True,
            backend="reference",
        )


def test_block_attention_names_its_options():
    for p in (-0.1, 1.0):
        with pytest.raises(ValueError, match=f"dropout_p={p}; allowed: 0 <= p < 1"):
            block_attention(*[draw()] * 3, block_size=4, causal=True, dropout_p=p)
    with pytest.raises(ValueError, match="block_size=0; allowed: 1 or more"):
        block_attention(*[draw()] * 3, block_size=0, causal=True)
    with pytest.raises(ValueError, match="activation='elu'; allowed: softmax, relu"):
        block_attention(*[draw()] * 3, block_size=4, causal=True, activation="elu")
    _, state = block_attention(
        *[draw()] * 3, block_size=4, causal=True, return_state=True
    )
    with pytest.raises(ValueError, match="blocks of 4; allowed: block_size=8"):
        block_attention(*[draw()] * 3, block_size=8, causal=True, initial_state=state)
