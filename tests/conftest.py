"""What all tests share: the same random numbers in each run."""

import pytest
import torch
from hypothesis import settings

# tensors are small: more threads would only wait for each other
torch.set_num_threads(1)

settings.register_profile("reproducible", deadline=None, derandomize=True)
settings.load_profile("reproducible")


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)
