"""What all tests share: the same random numbers in each run."""

import pytest
import torch
from hypothesis import settings

from tests import distribution

# tensors are small: more threads would only wait for each other
torch.set_num_threads(1)

settings.register_profile("reproducible", deadline=None, derandomize=True)
settings.load_profile("reproducible")


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def pytest_collection_modifyitems(items):
    distribution.in_order_of_length(items)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """``pytest -n N``; what else ``--dist`` may ask for is xdist's own."""
    if config.getvalue("dist") == "load":
        return distribution.scheduler(config, log)
    return None
