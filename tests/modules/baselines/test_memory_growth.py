"""No n x n matrix where a system claims so; the measure sees those that have one."""

import pytest
import torch

from tests.largest_tensor import LargestTensor
from tests.modules.building import token_mixer

PAPER = {
    "flash_key_dim": 128,
    "flash_chunk_size": 64,
    "long_short_window": 64,
    "long_short_chunk_size": 32,
    "long_short_landmarks": 32,
    "linformer_features": 128,
    "linformer_length": 4096,
    "reformer_chunk_size": 64,
    "reformer_buckets": 128,
    "nystromformer_landmarks": 128,
    "informer_factor": 16,
    "bigbird_block_size": 64,
    "skyformer_landmarks": 128,
}
# attentions of encoders, and scores that a token has in them
SCORES = {
    "bigbird": 8 * 64,
    "linformer": 128,
    "nystromformer": 128,
    "reformer": 2 * 128,
    "skyformer": 128,
}


def largest(name, length, causal):
    """Elements of the largest tensor, forward and backward."""
    layer = token_mixer(name, "t2", causal=causal, embed_dim=32, **PAPER).float()
    x = torch.randn(1, length, 32, requires_grad=True)
    pads = torch.arange(length)[None] >= length - 3
    with LargestTensor() as mode:
        layer(x, pads)[0].sum().backward()
    return mode.numel


@pytest.mark.parametrize(
    ("name", "causal"), [("flash", False), ("flash", True), ("long_short", False)]
)
def test_it_is_linear(name, causal):
    at_1024, at_4096 = (largest(name, n, causal) for n in (1024, 4096))
    assert 32 * 4096 <= at_4096 <= 4.1 * at_1024
    assert at_4096 < 4096**2


@pytest.mark.parametrize("name", SCORES)
def test_encoders_are_linear(name):
    """A tensor has at most a few scores a token and head."""
    at_1024, at_4096 = (largest(name, n, False) for n in (1024, 4096))
    assert 32 * 4096 <= at_4096 <= 4.1 * at_1024
    assert at_4096 <= 2 * 4096 * SCORES[name] < 2 * 4096**2 / 4


def test_causal_reformer_is_linear():
    """Three chunks of keys for each token and head, since chunks begin anywhere."""
    for length in (1024, 4096):
        assert largest("reformer", length, True) == 2 * length * 2 * 3 * 64
