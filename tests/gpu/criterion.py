"""What tests on a GPU share."""

import pytest
import torch

DTYPES = [torch.bfloat16, torch.float16, torch.float32]
dtypes = pytest.mark.parametrize("dtype", DTYPES)


@pytest.fixture
def tf32():
    """Products of float32 in TF32."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    yield
    torch.set_float32_matmul_precision(before)


def assert_same_bits(first, second):
    for one, other in zip(first, second, strict=True):
        assert torch.equal(one, other)


def needs_memory(gib):
    free, _ = torch.cuda.mem_get_info()
    if free < gib * 2**30:
        pytest.skip(f"needs {gib} GiB of free GPU memory")
