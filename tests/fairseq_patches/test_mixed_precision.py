"""What asks for half precision is computed in it, or refused."""

import pytest
import torch
from fairseq.dataclass.configs import CommonConfig, FairseqConfig
from fairseq.optim.adam import FairseqAdamConfig
from fairseq.optim.amp_optimizer import AMPOptimizer
from fairseq.optim.fp16_optimizer import FP16Optimizer, MemoryEfficientFP16Optimizer
from omegaconf import OmegaConf

from fairseq_transnormer.fairseq_patches.mixed_precision import (
    HALF,
    _weights,
    check_precision,
)
from tests.messages import lines_naming, refuses


def common(**values):
    return OmegaConf.structured(CommonConfig(**values))


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"bf16": True},
        {"bf16": True, "memory_efficient_bf16": True},
        {"fp16": True, "fp16_no_flatten_grads": True},
        {"fp16": True, "memory_efficient_fp16": True},
    ],
)
def test_what_a_cpu_can_do_is_allowed(values):
    check_precision(common(**values), cuda=False)


@pytest.mark.parametrize(
    ("values", "cuda", "parts"),
    [
        ({"fp16": True, "bf16": True}, True, ["common.fp16", "common.bf16", "true"]),
        ({"bf16": True, "amp": True}, True, ["common.bf16", "common.amp", "true"]),
        # --bf16 --memory-efficient-fp16
        (
            {"fp16": True, "bf16": True, "memory_efficient_fp16": True},
            True,
            ["common.fp16", "common.bf16", "true"],
        ),
        (
            {"memory_efficient_fp16": True},
            True,
            ["common.memory_efficient_fp16=true", "fp16", "common.fp16=true"],
        ),
        (
            {"memory_efficient_bf16": True},
            False,
            ["common.memory_efficient_bf16=true", "bf16", "common.bf16=true"],
        ),
        ({"amp": True}, False, ["common.amp=true", "CPU", "fp32"]),
    ],
)
def test_what_would_be_another_precision_is_refused(values, cuda, parts):
    with refuses(ValueError, *parts):
        check_precision(common(**values), cuda)


def test_amp_is_for_gpus():
    check_precision(common(amp=True), cuda=True)


def test_flat_float16_weights_need_a_gpu(monkeypatch):
    monkeypatch.setattr("torch.cuda.current_device", lambda: 0)
    check_precision(common(fp16=True), cuda=False)

    def none():
        raise AssertionError("Torch not compiled with CUDA enabled")

    monkeypatch.setattr("torch.cuda.current_device", none)
    with refuses(ValueError, "common.fp16", "common.fp16_no_flatten_grads=true"):
        check_precision(common(fp16=True), cuda=False)


def test_a_training_ends_at_its_start(training):
    run = training(1, ("--amp",))
    assert run.run() == [1]
    assert lines_naming(run.text(), "ValueError", "common.amp=true", "CPU")


@pytest.fixture
def make(monkeypatch):
    """make(class, weights, dtype, more, flat): an optimizer of three weights in half
    precision, and of more parameters; flat: in one tensor."""
    monkeypatch.setattr("torch.cuda.current_device", lambda: 0)
    cfg = FairseqConfig()
    cfg.common.fp16 = cfg.common.fp16_no_flatten_grads = True
    cfg.optimizer = FairseqAdamConfig(_name="adam", lr=[0.1])
    cfg = OmegaConf.structured(cfg)

    def build(cls, weights=(1.0, 1.0, 1.0), dtype=torch.float16, more=(), flat=True):
        weights = torch.nn.Parameter(torch.tensor(weights, dtype=dtype))
        cfg.common.fp16_no_flatten_grads = not flat
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
    weights, loaded = (_weights(each) for each in (first, second))
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
        cfg = OmegaConf.create({"optimizer": OmegaConf.structured(FairseqAdamConfig())})
        cfg.optimizer._name, cfg.optimizer.lr = "adam", [0.1]
        cfg.common = OmegaConf.structured(CommonConfig(fp16_init_scale=scale))
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
