"""softmax_attention against the equation, row by row over its real tokens."""

import math

import pytest
import torch

from fairseq_transnormer.ops import softmax_attention


def drawn(length=9, batch=3):
    return (torch.randn(batch, length, 2, 4, dtype=torch.float64) for _ in range(3))


@pytest.mark.parametrize("causal", [False, True])
def test_pads_anywhere_whatever_is_in_them(causal):
    query, key, value = drawn()
    pads = torch.zeros(3, 9, dtype=torch.bool)
    pads[0, [0, 1, 5]] = pads[1, 6:] = pads[2] = True
    key[pads], value[pads] = math.nan, math.inf
    output = softmax_attention(query, key, value, causal=causal, key_padding_mask=pads)[
        0
    ]
    for b in range(3):
        for i in range(9):
            seen = [j for j in range(9) if not pads[b, j] and (j <= i or not causal)]
            if not seen:
                assert (output[b, i] == 0).all()
                continue
            scores = torch.einsum("hd,jhd->hj", query[b, i], key[b, seen]) / 2
            weights = scores.exp() / scores.exp().sum(-1, keepdim=True)
            expected = torch.einsum("hj,jhd->hd", weights, value[b, seen])
            torch.testing.assert_close(output[b, i], expected)


def test_no_query_that_sees_nothing_spoils_the_gradients():
    query, key, value = (x.requires_grad_() for x in drawn())
    pads = torch.ones(3, 9, dtype=torch.bool)
    pads[0, 4:] = False
    output = softmax_attention(query, key, value, causal=True, key_padding_mask=pads)[0]
    output.square().sum().backward()
    for x in (query, key, value):
        assert x.grad.isfinite().all() and (x.grad[1:] == 0).all()
        assert (x.grad[0, :4] == 0).all()


def test_dropout_drops_weights():
    query, key, value = drawn()
    torch.manual_seed(1)
    dropped = softmax_attention(query, key, value, causal=True, dropout_p=0.5)[0]
    # the first query has one weight: dropped, or doubled
    first = dropped[:, 0] / value[:, 0]
    assert set(first.round().flatten().tolist()) == {0, 2}


def test_dropout_drops_weights_where_a_batch_has_pads():
    query, key, value = drawn()
    pads = torch.ones(3, 9, dtype=torch.bool)
    pads[:, 4] = False
    given = {"causal": False, "key_padding_mask": pads, "dropout_p": 0.5}
    dropped = softmax_attention(query, key, value, **given)[0]
    # each query has one weight: dropped, or doubled
    assert set((dropped / value[:, 4:5]).round().flatten().tolist()) == {0, 2}
