"""A run of fairseq's Adam resumes with the fused one, and the other way round."""

import pytest
import torch

from tests.messages import lines_naming

HALF = 4
# of weights: a rate of at most 0.003 has moved them
TOLERANCE = {(): 1e-5, ("--fp16",): 2**-11}


@pytest.mark.parametrize(
    "flags", [(), pytest.param(("--fp16",), marks=pytest.mark.slow)]
)
def test_a_run_goes_on_with_the_other_optimizer(training, undisturbed, flags):
    whole = undisturbed(1, flags)
    run = training(1, flags, **{"optimizer": "adam", "max-update": HALF})
    assert run.run() == [0], run.text()
    losses = run.losses()
    run.options |= {"optimizer": "fused_adam", "max-update": max(whole.losses())}
    assert run.run() == [0], run.text()
    assert run.went_on_at() == HALF
    assert lines_naming(run.text(), "optimizer._name='fused_adam'", "'adam'")
    assert "fp32_weights" not in run.text()  # no warning: they are the model's
    losses |= run.losses()
    assert list(losses) == list(whole.losses())
    for update, expected in whole.losses().items():
        found, wanted = ([*map(float, each)] for each in (losses[update], expected))
        assert found == pytest.approx(wanted, rel=2e-3), update
    weights, expected = run.state()["model"], whole.state()["model"]
    for name, tensor in expected.items():
        limit = {"rtol": 0, "atol": TOLERANCE[flags]}
        torch.testing.assert_close(weights[name], tensor, **limit)
