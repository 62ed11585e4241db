"""The stand-in for tensor cores: fp16 products summed in fp32 and rounded once."""

import os
import subprocess
import sys

from tests.paths import ROOT

FOLDER = ROOT / "benchmarks" / "fp16_products"
# numpy knows nothing of what is changed in torch
SCRIPT = """
import sys
from pathlib import Path

import numpy as np
import torch

import sitecustomize

assert Path(sitecustomize.__file__).parent == Path(sys.argv[1])
generator = torch.Generator().manual_seed(0)


def normal(*shape, dtype):
    return torch.randn(shape, generator=generator).to(dtype)


for dtype in (torch.float16, torch.float32):
    bias = normal(3, 1, 7, dtype=dtype)
    left, right = normal(3, 5, 300, dtype=dtype), normal(3, 300, 7, dtype=dtype)
    exact = np.matmul(left.double().numpy(), right.double().numpy())
    results = {
        "mm": torch.stack([torch.mm(a, b) for a, b in zip(left, right)]),
        "bmm": torch.bmm(left, right),
        "addmm": torch.stack(
            [
                torch.addmm(c, a, b, beta=0.5, alpha=2)
                for c, a, b in zip(bias, left, right)
            ]
        ),
        "baddbmm": torch.baddbmm(bias, left, right, beta=0.5, alpha=2),
    }
    of_bias = 0.5 * bias.double().numpy() + 2 * exact
    for name, result in results.items():
        assert result.dtype == dtype, name
        expected = of_bias if "add" in name else exact
        # half a unit in the last place of fp16, and the fp32 sums' own error
        allowed = np.abs(expected) * 2.0**-11 if dtype == torch.float16 else 0
        off = np.abs(result.double().numpy() - expected)
        assert (off <= allowed + 2e-4).all(), (name, dtype, off.max())

weight = normal(4, 300, dtype=torch.float16).requires_grad_()
inputs = normal(6, 300, dtype=torch.float16)
torch.nn.functional.linear(inputs, weight).float().sum().backward()
expected = inputs.double().sum(0).expand(4, -1)
assert torch.allclose(weight.grad.double(), expected, rtol=2.0**-10, atol=1e-3)
"""


def test_products_and_their_gradients():
    path = os.pathsep.join(filter(None, [str(FOLDER), os.environ.get("PYTHONPATH")]))
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(FOLDER)],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert run.returncode == 0, run.stderr
