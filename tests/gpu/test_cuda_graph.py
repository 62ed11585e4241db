"""A decoding step as a CUDA graph says what the same step says without one."""

import pytest
import torch

from benchmarks.generation import by_graph, by_states
from benchmarks.models import build_transnormer

pytestmark = pytest.mark.gpu
VOCABULARY = 60


@pytest.mark.parametrize("backend", ["torch", "triton"])
@pytest.mark.parametrize("variant", ["T1", "T2"])
def test_graph_follows_the_steps(variant, backend):
    """Over the beginning of a block of 64."""
    size = dict(width=128, heads=2, layers=2, vocabulary=VOCABULARY)
    model = build_transnormer(**size, variant=variant, backend=backend)
    model = model.to("cuda", torch.bfloat16)
    tokens = torch.randint(4, VOCABULARY, (1, 140), device="cuda")
    token = tokens[:, 60:61].clone()
    with torch.no_grad():
        (graph, _), (step, _) = (
            make(model, tokens[:, :60], token) for make in (by_graph, by_states)
        )
        for each in tokens[:, 60:].split(1, 1):
            token.copy_(each)
            torch.testing.assert_close(graph(), step())
