"""Half precision resumes bit for bit: weights in float32, and the loss scaler."""

import pytest
import torch
from fairseq.optim.adam import FairseqAdamConfig

from fairseq_transnormer.training.precision import (
    HALF,
    AMPOptimizer,
    FP16Optimizer,
    MemoryEfficientFP16Optimizer,
)
from tests.optimizers.building import configuration

ADAM = FairseqAdamConfig(_name="adam", lr=[0.1])


@pytest.fixture
def make(monkeypatch):
    """make(class, weights, dtype, more, flat): an optimizer of three weights in half
    precision, and of more parameters; flat: in one tensor."""
    monkeypatch.setattr("torch.cuda.current_device", lambda: 0)

    def build(cls, weights=(1.0, 1.0, 1.0), dtype=torch.float16, more=(), flat=True):
        weights = torch.nn.Parameter(torch.tensor(weights, dtype=dtype))
        cfg = configuration(ADAM, fp16=True, fp16_no_flatten_grads=not flat)
        return cls.build_optimizer(cfg, [weights, *map(torch.nn.Parameter, more)])

    return build


def test_weights_in_float32_are_saved_to_the_last_bit(make):
    values = [1 + 2**-20, 1 / 3, torch.pi]
    first, second = make(FP16Optimizer, values), make(FP16Optimizer, values)
    (weights,), (loaded,) = (each.fp32_params.values() for each in (first, second))
    with torch.no_grad():
        weights.copy_(torch.tensor(values))
    second.load_state_dict(first.state_dict())
    assert torch.equal(loaded, weights)


@pytest.mark.parametrize("average", [1.25, 1 + 2**-10])
def test_averaged_weights_are_kept(make, caplog, average):
    """A checkpoint whose model is an average has the optimizer of one training.

    Of late checkpoints it may be one step of fp16 from the last.
    """
    first, second = make(FP16Optimizer), make(FP16Optimizer, (1.0, 1.0, average))
    (loaded,) = second.fp32_params.values()
    second.load_state_dict(first.state_dict())
    assert loaded.tolist() == [1.0, 1.0, average]
    assert "averaged" in caplog.text


@pytest.mark.parametrize("before", HALF)
@pytest.mark.parametrize("dtype", HALF)
def test_a_run_may_change_from_fp16_to_bf16(make, caplog, before, dtype):
    values = torch.tensor([1 / 3, torch.pi, 2**-20 / 3])
    first = make(FP16Optimizer, values.tolist())
    rounded = values.to(before).to(dtype)
    second = make(FP16Optimizer, rounded.tolist(), dtype)
    (weights,), (loaded,) = (each.fp32_params.values() for each in (first, second))
    with torch.no_grad():
        weights.copy_(values)
    second.load_state_dict(first.state_dict())
    assert torch.equal(loaded, values) and not caplog.text


@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize("dtype", HALF)
def test_a_parameter_that_stays_in_float32_is_rounded_by_nobody(
    make, caplog, dtype, flat
):
    """As LRPE's angles, in a model that is in half precision."""
    values, angles = torch.tensor([1 / 3, torch.pi, 2**-20 / 3]), torch.tensor([1 / 3])
    options = {"dtype": dtype, "more": [angles], "flat": flat}
    first, second = (make(FP16Optimizer, values.tolist(), **options) for _ in "ab")
    weights, loaded = (each._in_float32() for each in (first, second))
    with torch.no_grad():
        weights[0].reshape(-1)[:3] = values
    second.load_state_dict(first.state_dict())
    assert all(map(torch.equal, loaded, weights)) and not caplog.text


@pytest.mark.parametrize("memory_efficient", [False, True])
def test_the_loss_scalers_counters_resume(memory_efficient, make):
    cls = MemoryEfficientFP16Optimizer if memory_efficient else FP16Optimizer
    first, second = make(cls), make(cls)
    first.scaler._iter, first.scaler._last_overflow_iter = 70, 60
    second.load_state_dict(first.state_dict())
    assert (second.scaler._iter, second.scaler._last_overflow_iter) == (70, 60)


def test_the_loss_scale_of_amp_resumes():
    """fairseq begins with --fp16-init-scale at each start."""

    def made(scale):
        cfg = configuration(ADAM, fp16_init_scale=scale)
        weights = torch.nn.Parameter(torch.ones(2))
        optimizer = AMPOptimizer.build_optimizer(cfg, [weights])
        # fairseq's is of GPUs alone
        optimizer._grad_scaler = torch.amp.GradScaler("cpu", init_scale=scale)
        return optimizer, weights

    (first, weights), (second, _) = made(128), made(128)
    first.backward((weights * torch.inf).sum())
    first.clip_grad_norm(1.0)
    first.step()
    first.zero_grad()
    first.backward(weights.sum())
    first.step()
    expected = first.scaler.state_dict()
    assert expected["scale"] == 64 and expected["_growth_tracker"] == 1
    saved = first.state_dict()
    second.load_state_dict(saved)
    assert second.scaler.state_dict() == expected
    # fairseq's own checkpoint, or one in another precision, has none
    del saved["amp_scaler"]
    third, _ = made(32)
    third.load_state_dict(saved)
    assert third.scaler.get_scale() == 32
