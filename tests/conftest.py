"""What all tests share: the same random numbers in each run."""

import pytest
import torch
from hypothesis import settings

settings.register_profile("reproducible", deadline=None, derandomize=True)
settings.load_profile("reproducible")


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)
