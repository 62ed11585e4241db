"""A decoding step as a CUDA graph says what the same step says without one."""

import pytest
import torch

from benchmarks.generation.decoders import GraphedTransNormer, StatefulTransNormer
from benchmarks.harness.language_models import build_transnormer

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
    graphed, stepping = GraphedTransNormer(model), StatefulTransNormer(model)
    with torch.no_grad():
        for decoder in (graphed, stepping):
            decoder.prefill(tokens[:, :60])
        for token in tokens[:, 60:].split(1, 1):
            torch.testing.assert_close(graphed.step(token), stepping.step(token))
    for ours, expected in zip(graphed.states, stepping.states, strict=True):
        assert ours.length.equal(expected.length)
