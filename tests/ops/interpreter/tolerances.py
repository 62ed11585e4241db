"""How far a result may be from float64, relative, in the interpreter.

It cuts bfloat16 off where a GPU rounds, hence the last.
"""

import pytest
import torch

TOLERANCES = {torch.float32: 1e-5, torch.float16: 1e-3, torch.bfloat16: 2e-2}
dtypes = pytest.mark.parametrize(("dtype", "tolerance"), TOLERANCES.items())


def assert_near(tensor, expected):
    """The mean of independent 0 and 1, within five standard deviations."""
    deviation = (expected * (1 - expected) / tensor.numel()) ** 0.5
    assert abs(tensor.double().mean().item() - expected) < 5 * deviation
