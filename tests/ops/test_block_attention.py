"""ops.block_attention beside its laws: dropout, and where blocks end."""

import pytest
import torch

from fairseq_transnormer.ops import block_attention

from .drawing import CPU_BACKENDS, draw_signed

backends = pytest.mark.parametrize("backend", CPU_BACKENDS)
forms = pytest.mark.parametrize(
    ("causal", "activation"),
    [(False, "softmax"), (False, "relu"), (True, "softmax"), (True, "relu")],
)


@backends
@forms
def test_dropout_of_weights(causal, activation, backend):
    """Each weight is dropped or divided by 1 - p, so that the mean does not change."""
    rows, length, p = 400, 32, 0.25
    query, key, _ = draw_signed(length, batch=1, heads=1)
    query, key = (x.expand(rows, -1, -1, -1) for x in (query, key))
    # with the unit matrix as values the output is the matrix of weights
    value = torch.eye(length, dtype=torch.float64)[None, :, None]
    value = value.expand(rows, -1, -1, -1)
    options = {"block_size": 16, "causal": causal, "activation": activation}
    options["backend"] = backend
    weights = block_attention(query, key, value, **options)[0]
    dropped = block_attention(query, key, value, dropout_p=p, **options)[0]
    kept = dropped != 0
    torch.testing.assert_close(dropped[kept], (weights / (1 - p))[kept])
    weights, mean = weights[0], dropped.mean(0)
    used = weights > 0.05
    # one weight's mean is off by weight * sqrt(p / (1 - p) / 400) = 3 % typically
    assert ((mean - weights)[used] / weights[used]).abs().max() < 0.15
    assert ((mean - weights).sum() / weights.sum()).abs() < 0.01
    # nothing is drawn without
    before = torch.get_rng_state()
    first, second = (
        block_attention(query, key, value, dropout_p=0.0, **options)[0] for _ in "12"
    )
    assert torch.equal(first, second) and torch.equal(before, torch.get_rng_state())


@forms
def test_blocks_do_not_see_each_other(causal, activation):
    query, key, value = draw_signed(30)
    options = {"block_size": 8, "causal": causal, "activation": activation}
    output = block_attention(query, key, value, **options)[0]
    changed = [x.clone() for x in (query, key, value)]
    for x in changed:
        x[:, 11] = torch.randn_like(x[:, 11]) + 1
    after = block_attention(*changed, **options)[0]
    first = 11 if causal else 8
    assert torch.equal(after[:, :first], output[:, :first])
    assert torch.equal(after[:, 16:], output[:, 16:])
    assert not torch.equal(after[:, 12:16], output[:, 12:16])
    assert torch.equal(after[:, 8:11], output[:, 8:11]) == causal
