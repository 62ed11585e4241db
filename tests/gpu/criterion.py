"""How good a result on a GPU has to be: what a trial before first use asks for.

Torch's op runs on the same inputs, in the same dtype and with the same use of TF32;
errors are against its result in float64.
"""

import pytest
import torch

from fairseq_transnormer.ops.verification.trials import judge

DTYPES = [torch.bfloat16, torch.float16, torch.float32]
dtypes = pytest.mark.parametrize("dtype", DTYPES)


@pytest.fixture
def tf32():
    """Products of float32 in TF32."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    yield
    torch.set_float32_matmul_precision(before)


def assert_as_good_as_torch(computed, peer, exact, slack):
    """Lists of tensors: Triton's, torch's and those in float64."""
    results = zip(computed, peer, exact, strict=True)
    for i, (value, other, expected) in enumerate(results):
        judge(value, other, expected, slack, f"result {i}")


def assert_same_bits(first, second):
    for one, other in zip(first, second, strict=True):
        assert torch.equal(one, other)


def needs_memory(gib):
    free, _ = torch.cuda.mem_get_info()
    if free < gib * 2**30:
        pytest.skip(f"needs {gib} GiB of free GPU memory")
