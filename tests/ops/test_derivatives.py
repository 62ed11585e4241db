"""Second derivatives: right, or an error, and never zeros without one."""

import pytest
import torch
from torch.autograd.functional import hvp

from fairseq_transnormer.modules import (
    GLU,
    DiagAttention,
    LanguageModelConfig,
    NormAttention,
)
from fairseq_transnormer.ops import (
    block_attention,
    linear_attention,
    linear_cross_entropy,
    lrpe,
    rms_norm,
)

SMALL = {"embed_dim": 8, "num_heads": 2, "block_size": 4}


def draw(*shape):
    generator = torch.Generator().manual_seed(1)
    return torch.randn(*shape, dtype=torch.float64, generator=generator)


def rotated(x, backend):
    theta, reflection, positions = draw(2), draw(4), torch.arange(x.shape[1])
    both = lrpe(x, x, theta, reflection, positions, feature_map="elu", backend=backend)
    return torch.stack(both)


OPS = {
    "rms_norm": lambda x, backend: rms_norm(x, backend=backend),
    "lrpe": rotated,
    "causal": lambda x, backend: linear_attention(
        x, x, x, causal=True, feature_map="elu", backend=backend
    )[0],
    "bidirectional": lambda x, backend: linear_attention(
        x, x, x, causal=False, feature_map="elu", backend=backend
    )[0],
    "relu in blocks": lambda x, backend: block_attention(
        x, x, x, block_size=4, causal=True, activation="relu", backend=backend
    )[0],
}
ops = pytest.mark.parametrize("op", OPS.values(), ids=OPS)


def outcome(call):
    """What a call returns, or the message of its error."""
    try:
        return call()
    except RuntimeError as error:
        assert "second derivative" in str(error)
        return str(error)


@ops
def test_products_with_the_hessian(op):
    x, v = draw(2, 6, 2, 4), draw(2, 6, 2, 4)

    def product(backend):
        return hvp(lambda x: op(x, backend).pow(3).sum(), x, v)[1]

    expected, found = product("reference"), outcome(lambda: product("auto"))
    assert expected.abs().max() > 1e-3
    if not isinstance(found, str):
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize(
    "make",
    [
        lambda **o: NormAttention(LanguageModelConfig(**SMALL, **o), causal=True),
        lambda **o: DiagAttention(LanguageModelConfig(**SMALL, **o), causal=True),
        lambda **o: GLU(8, 20, **o),
    ],
    ids=["norm", "diag", "glu"],
)
def test_penalties_of_gradients(make):
    penalties = []
    for backend in ("reference", "auto"):
        torch.manual_seed(1)
        module = make(backend=backend).double().eval()
        x = draw(2, 6, 8).requires_grad_()

        def penalty(module=module, x=x):
            output = module(x)
            output = output[0] if isinstance(output, tuple) else output
            (gradient,) = torch.autograd.grad(output.sum(), x, create_graph=True)
            (gradient.pow(2).sum() + 0 * output.mean()).backward()
            return x.grad

        penalties.append(outcome(penalty))
    expected, found = penalties
    assert expected.abs().max() > 1e-6
    if not isinstance(found, str):
        torch.testing.assert_close(found, expected)


@ops
def test_a_graph_of_first_derivatives_alone_changes_nothing(op):
    x = draw(2, 6, 2, 4).requires_grad_()
    plain, kept = (
        torch.autograd.grad(op(x, "auto").pow(3).sum(), x, create_graph=create)[0]
        for create in (False, True)
    )
    assert torch.equal(plain, kept.detach())


def test_the_loss_keeps_no_way_to_its_inputs_and_says_so():
    features, weight = draw(5, 4).requires_grad_(), draw(7, 4)
    loss, _ = linear_cross_entropy(features, weight, torch.arange(5))
    with pytest.raises(RuntimeError, match="second derivative of LinearCrossEntropy"):
        torch.autograd.grad(loss, features, create_graph=True)
