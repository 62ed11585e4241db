"""torch's product of matrices by which weights get their gradient.

On an H100 and an H200 (torch 2.11, CUDA 13.0) that of three weights under each other
leaves 6 of 50,694 tokens out in half precision, in its first 128 rows.
"""

import pytest
import torch

from fairseq_transnormer.ops.trials import judge, slack_of

TOKENS, CHANNELS = 50_694, 128


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("packed", [True, False])
def test_every_token_counts(dtype, packed):
    """Of three weights under each other in one product, and of one alone."""
    torch.manual_seed(0)
    width = (3 if packed else 1) * CHANNELS
    grads = torch.randn(TOKENS, width, device="cuda").to(dtype)
    rows = torch.randn(TOKENS, CHANNELS, device="cuda").to(dtype)
    exact = grads.double().t() @ rows.double()
    rounded = exact.to(dtype)
    found = grads.t() @ rows
    judge(found, rounded, exact, slack_of(dtype, products=True), "the gradient")
