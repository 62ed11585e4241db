"""Transformer-LS carries nothing from batch to batch unless it is asked to."""

import pytest
import torch

from .building import mixer


def batches(*lengths):
    return torch.randn(2, sum(lengths), 16, dtype=torch.float64).split(lengths, 1)


@pytest.mark.parametrize("training", [True, False])
@torch.no_grad()
def test_by_default_a_batch_gives_the_same_again(training):
    layer = mixer("long_short", causal=True).train(training)
    first, second = batches(9, 9)
    expected = layer(second)[0]
    layer(first)
    assert torch.equal(layer(second)[0], expected)


@torch.no_grad()
def test_evaluation_neither_uses_nor_changes_the_memory():
    layer = mixer("long_short", causal=True, long_short_memory=True)
    first, second, third = batches(9, 9, 9)
    expected = layer(second)[0]
    layer.train()(first)
    assert torch.equal(layer.eval()(second)[0], expected)
    continued = layer.train()(third)[0]
    other = mixer("long_short", causal=True, long_short_memory=True).train()
    other.load_state_dict(layer.state_dict())
    other(first)
    assert torch.equal(other(third)[0], continued)


def test_training_continues_the_batch_before():
    """Exactly, as long as the window reaches all of it; and without its gradient."""
    layer = mixer("long_short", causal=True, long_short_memory=True)
    first, second = batches(7, 13)
    expected = layer(torch.cat((first, second), 1))[0][:, 7:]
    layer.train()
    first.requires_grad_()
    layer(first)
    output = layer(second)[0]
    torch.testing.assert_close(output, expected)
    output.sum().backward()
    assert first.grad is None


@torch.no_grad()
def test_the_memory_is_what_a_window_sees():
    """Windows of 6 reach into two chunks of 4 in front of the open one."""
    layer = mixer("long_short", causal=True, long_short_memory=True)
    long, second = batches(30, 13)
    expected = layer(torch.cat((long[:, 20:], second), 1))[0][:, 10:]
    # the keys of the window are those of the layer's inputs: nothing older enters
    layer.train()(long)
    torch.testing.assert_close(layer(second)[0], expected)


@torch.no_grad()
def test_a_batch_of_other_size_begins_anew():
    layer = mixer("long_short", causal=True, long_short_memory=True)
    first, second = batches(9, 9)
    expected = layer(second[:1])[0]
    layer.train()(first)
    torch.testing.assert_close(layer(second[:1])[0], expected)
