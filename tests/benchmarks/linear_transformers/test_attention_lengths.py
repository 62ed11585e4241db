"""What the contestants of attention_lengths compute."""

import torch

from benchmarks.linear_transformers.attention_lengths import (
    FUSED,
    MATRIX,
    contestants,
)

HEADS, WIDTH, LENGTH = 2, 8, 70


def output(name, q, k, v):
    contestant = contestants(HEADS, WIDTH, torch.device("cpu"))[name].contestant
    if contestant.length_first:
        return contestant.attend(q, k, v)
    swapped = (x.transpose(1, 2) for x in (q, k, v))
    return contestant.attend(*swapped).transpose(1, 2)


def draw():
    return torch.randn(3, 2, LENGTH, HEADS, WIDTH, dtype=torch.float64)


def weighted(weights, v):
    return torch.einsum("bhij,bjhd->bihd", weights, v)


def test_softmax_attention():
    q, k, v = draw()
    scores = torch.einsum("bihd,bjhd->bhij", q, k) / WIDTH**0.5
    past = torch.ones(LENGTH, LENGTH).tril() > 0
    expected = weighted(scores.masked_fill(~past, -torch.inf).softmax(-1), v)
    for name in (MATRIX, FUSED):
        torch.testing.assert_close(output(name, q, k, v), expected)


def test_linear_attention_is_divided_by_its_sum():
    q, k, v = draw()
    features = (torch.nn.functional.elu(x) + 1 for x in (q, k))
    scores = torch.einsum("bihd,bjhd->bhij", *features).tril()
    expected = weighted(scores / scores.sum(-1, keepdim=True), v)
    torch.testing.assert_close(output("1+elu", q, k, v), expected)


def test_all_are_causal():
    given = draw()
    changed = given.clone()
    changed[:, :, 50:] = torch.randn_like(changed[:, :, 50:])
    for name in contestants(HEADS, WIDTH, torch.device("cpu")):
        torch.manual_seed(0)  # of the hashes
        before = output(name, *given)
        torch.manual_seed(0)
        after = output(name, *changed)
        torch.testing.assert_close(before[:, :50], after[:, :50], rtol=1e-12, atol=0)
        assert not torch.equal(before[:, 50:], after[:, 50:]), name
