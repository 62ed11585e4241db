"""The residual connections with torch: what F.dropout, + and rms_norm compute."""

import pytest
import torch
import torch.nn.functional as F

from fairseq_transnormer.ops import add_and_norm, add_dropped, norm_beside
from tests.messages import refuses

from . import equations
from .drawing import CPU_BACKENDS, gradients

backends = pytest.mark.parametrize("backend", CPU_BACKENDS)
dtypes = pytest.mark.parametrize(
    "dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16]
)


def draw(dtype=torch.float64):
    return [torch.randn(3, 5, 16, dtype=torch.float64).to(dtype) for _ in "xy"]


@backends
def test_equations_and_gradients(backend):
    """A third function of both results, so that both gradients count."""

    def ours(x, y):
        x, z = norm_beside(x, eps=0.1, backend=backend)
        x, z = add_and_norm(x, z * y, eps=0.1, backend=backend)
        return add_dropped(x, z * z, backend=backend)

    def expected(x, y):
        x = x + equations.rms_norm(x, eps=0.1) * y
        return x + equations.rms_norm(x, eps=0.1) ** 2

    tensors, weight = draw(), torch.randn(3, 5, 16, dtype=torch.float64)
    torch.testing.assert_close(ours(*tensors), expected(*tensors))
    for gradient, wanted in zip(
        gradients(ours, tensors, weight),
        gradients(expected, tensors, weight),
        strict=True,
    ):
        torch.testing.assert_close(gradient, wanted)


@dtypes
def test_dropout_is_torchs_to_the_bit(dtype):
    x, y = draw(dtype)
    results = []
    for op in (add_dropped, lambda *a, **k: add_and_norm(*a, **k)[0]):
        torch.manual_seed(3)
        results.append(op(x, y, dropout_p=0.3, backend="torch"))
    torch.manual_seed(3)
    expected = x + F.dropout(y, 0.3)
    assert all(torch.equal(result, expected) for result in results)


def test_what_does_not_fit_is_named():
    x, y = draw()
    for op in (add_dropped, add_and_norm):
        with refuses(ValueError, "y", (3, 4, 16), "x", (3, 5, 16), "agree"):
            op(x, y[:, :4])
        with refuses(ValueError, "dropout_p=1.5", "0 <= p <= 1"):
            op(x, y, dropout_p=1.5)
