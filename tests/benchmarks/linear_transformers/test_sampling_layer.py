"""Every sampler gives the last token's attention."""

import pytest
import torch

from benchmarks.linear_transformers import sampling_layer
from fairseq_transnormer.ops import reference


@pytest.mark.parametrize("context", [2, 9])
def test_samplers(context):
    inputs = torch.randn(3, 1, context, 2, 8, dtype=torch.float64)
    linear = reference.linear_attention(*inputs, causal=True)[:, -1]
    q, k, v = inputs[:, 0]
    scores = torch.einsum("hd,nhd->hn", q[-1], k) * 8**-0.5
    softmax = torch.einsum("hn,nhd->hd", scores.softmax(-1), v)[None]
    with torch.no_grad():
        for name, sampler in sampling_layer.samplers(inputs).items():
            expected = linear if name.startswith("linear") else softmax
            torch.testing.assert_close(sampler.step(), expected, msg=name)
