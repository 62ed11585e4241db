"""What all tests share: the same random numbers in each run, and tiny checkpoints."""

import logging
import resource
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from hypothesis import settings

from tests.paths import gpt2_files

# tensors are small: more threads would only wait for each other
torch.set_num_threads(1)

settings.register_profile("reproducible", deadline=None, derandomize=True)
settings.load_profile("reproducible")


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)
    yield
    assert not logging.root.manager.disable  # the process's next tests would lack it


@pytest.fixture
def full_disk():
    """full_disk(size): a context in which no file gets longer, as on a full disk."""

    @contextmanager
    def limit(size: int):
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)

    return limit


@pytest.fixture(scope="session")
def gpt2_dir() -> Path:
    return gpt2_files()


@pytest.fixture(scope="session")
def zoo(tmp_path_factory):
    """The checkpoints of ``tests/zoo.py``, which imports fairseq."""
    from tests.zoo import Zoo

    return Zoo(tmp_path_factory.mktemp("zoo"))


@pytest.fixture(scope="session")
def t1(zoo):
    """A word-level T1."""
    return zoo.trained["t1"]


@pytest.fixture(scope="session")
def t2(zoo):
    """A word-level T2, where the variant does not matter."""
    return zoo.trained["t2"]


@pytest.fixture(scope="session")
def pieces(zoo):
    """A T2 with sentencepiece and byte fallback."""
    return zoo.trained["pieces"]
