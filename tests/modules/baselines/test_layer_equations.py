"""FLASH-quad, FLASH and Transformer-LS against their papers' equations in loops."""

import pytest
import torch

from fairseq_transnormer.modules.baselines.gated_attention_unit import bias_matrix

from . import equations
from .building import SMALL, SYSTEMS, mixer

both = pytest.mark.parametrize("causal", [False, True])
# angles and sinusoids are made in float32
CLOSE = {"rtol": 1e-5, "atol": 1e-5}
LENGTHS = (1, 4, 5, 6, 17)


def expected(name, layer, x, causal):
    if name == "long_short":
        return equations.long_short(layer, x, causal=causal)
    if name == "flash":
        chunk = layer.chunk_size
        return equations.gated_attention_unit(layer, x, causal=causal, chunk=chunk)
    n = SMALL["flash_length"] if causal else len(x)
    return equations.gated_attention_unit(layer, x, causal=causal, n=n)


CASES = [
    ("flash_quad", {}),
    ("flash_quad", {"flash_far_bias": "rope"}),
    ("flash_quad", {"flash_norm": "layer_norm", "flash_expansion": 3}),
    ("flash", {}),
    ("flash", {"flash_far_bias": "rope", "flash_chunk_size": 8}),
    ("long_short", {}),
    ("long_short", {"long_short_rank": 1, "long_short_landmarks": 1}),
    ("long_short", {"long_short_window": 1}),
    ("long_short", {"long_short_window": 4, "long_short_chunk_size": 6}),
]


@both
@pytest.mark.parametrize(("name", "changes"), CASES)
@torch.no_grad()
def test_paper(name, changes, causal):
    layer = mixer(name, causal=causal, **changes)
    for length in LENGTHS:
        x = torch.randn(2, length, 16, dtype=torch.float64)
        rows = torch.stack([expected(name, layer, row, causal) for row in x])
        torch.testing.assert_close(layer(x)[0], rows, **CLOSE)


@torch.no_grad()
def test_distances_beyond_the_table_take_the_last_bias():
    """... so that generation goes on behind the length of the training."""
    layer = mixer("flash_quad", causal=True)
    bias = layer.relative_bias
    distance = torch.tensor([3, 4, 50, -3, -50])
    last, first = bias.table[6], bias.table[0]
    expected = torch.stack((last, last, last, first, first))
    assert torch.equal(bias(60, torch.float64)[distance + 59], expected)


@pytest.mark.parametrize("far", ["clip", "rope"])
def test_the_matrix_of_biases_is_that_of_all_distances(far):
    """In values and in gradients, shorter and longer than the table."""
    layer = mixer("flash_quad", causal=True, flash_far_bias=far)
    bias = layer.relative_bias
    trained = [each for each in bias.parameters() if each.requires_grad]
    for length in LENGTHS:
        positions = torch.arange(length)
        pairs = positions[:, None] - positions
        expected = bias(length, torch.float64)[pairs + length - 1]
        matrix = bias_matrix(bias(length, torch.float64))
        assert torch.equal(matrix, expected)
        weights = torch.randn(length, length, dtype=torch.float64)
        for got, wanted in zip(
            torch.autograd.grad((matrix * weights).sum(), trained),
            torch.autograd.grad((expected * weights).sum(), trained),
            strict=True,
        ):
            torch.testing.assert_close(got, wanted)


def test_vectors_of_the_far_bias_train_only_where_they_are_used():
    for far, trained in (("clip", False), ("rope", True)):
        layer = mixer("flash_quad", causal=True, flash_far_bias=far)
        layer(torch.randn(1, 3, 16, dtype=torch.float64))[0].sum().backward()
        for vector in (layer.relative_bias.a, layer.relative_bias.b):
            # an unused parameter without a gradient would stop distributed training
            assert (vector.grad is not None) == trained == vector.requires_grad


@both
@pytest.mark.parametrize("name", SYSTEMS)
def test_dropout(name, causal):
    """Of weights in training only; with nearly all dropped nothing is mixed."""
    x = torch.randn(1, 9, 16, dtype=torch.float64)
    almost = mixer(name, causal=causal, attention_dropout=1 - 1e-12)
    dropped = almost.train()(x)[0]
    if name == "flash_quad":
        torch.testing.assert_close(dropped, x + almost.out_proj.bias)
    elif name == "long_short":
        torch.testing.assert_close(dropped, almost.out_proj.bias.expand_as(x))
    else:
        assert not torch.allclose(dropped, almost.eval()(x)[0])
    if name != "long_short":
        layer = mixer(name, causal=causal, dropout=1 - 1e-12).train()
        assert torch.equal(layer(x)[0], x)


@pytest.mark.parametrize("trained", ["base_proj", "value_proj", "relative_bias"])
@pytest.mark.parametrize("name", ["flash", "flash_quad"])
def test_single_tokens_are_differentiated_whatever_is_frozen(name, trained):
    """A step without gradients writes into its state, which these still need."""
    layer = mixer(name, causal=True).requires_grad_(False)
    parameters = [*layer.get_submodule(trained).requires_grad_().parameters()]
    parameters = (
        parameters if trained != "relative_bias" else [layer.relative_bias.table]
    )
    x, state, outputs = torch.randn(2, 9, 16, dtype=torch.float64), None, []
    expected = torch.autograd.grad(layer(x)[0].square().sum(), parameters)
    for token in x.split(1, 1):
        output, state = layer(token, state=state, return_state=True)
        outputs.append(output)
    found = torch.autograd.grad(torch.cat(outputs, 1).square().sum(), parameters)
    torch.testing.assert_close(found, expected)
