"""The fused Adam against Adam's equations in float64, and beside fairseq's own."""

import copy
import math

import pytest
import torch
from fairseq.dataclass.configs import FairseqConfig
from fairseq.optim import build_optimizer
from fairseq.optim.adam import FairseqAdamConfig
from fairseq.optim.fp16_optimizer import FP16Optimizer, MemoryEfficientFP16Optimizer
from omegaconf import OmegaConf

from fairseq_transnormer.optimizers import fused_adam
from fairseq_transnormer.optimizers.fused_adam import FusedAdamConfig
from tests.messages import refuses

CONFIGS = {"adam": FairseqAdamConfig, "fused_adam": FusedAdamConfig}
LR, BETAS, DECAY = 0.05, (0.9, 0.98), 0.1


def settings(name, eps=1e-8):
    fields = {"adam_betas": str(BETAS), "adam_eps": eps, "lr": [LR]}
    fields |= {"tpu": False} if name == "adam" else {}
    return CONFIGS[name](_name=name, weight_decay=DECAY, **fields)


def built(name, parameters, eps=1e-8):
    """The optimizer as fairseq makes it of a configuration."""
    return build_optimizer(OmegaConf.structured(settings(name, eps)), parameters)


def copies(parameters):
    return [copy.deepcopy(each) for each in parameters]


def weights(dtype=torch.float32):
    """Three, one of which is stored by columns."""
    shapes = (4, 5), (7,), ()
    made = [torch.randn(shape, dtype=torch.float64).to(dtype) for shape in shapes]
    return [torch.nn.Parameter(each) for each in (made[0].t(), *made[1:])]


def give_gradients(*models, scale=1.0):
    """The same random ones to each; by rows, whatever the weights are stored by."""
    for same in zip(*models, strict=True):
        gradient = torch.randn(same[0].shape, dtype=torch.float64) * scale
        for each in same:
            each.grad = gradient.to(each.dtype)


def written_out(x, gradients, rates, eps):
    """fairseq's update of one number."""
    first = second = 0.0
    for t, (g, rate) in enumerate(zip(gradients, rates, strict=True), 1):
        first = BETAS[0] * first + (1 - BETAS[0]) * g
        second = BETAS[1] * second + (1 - BETAS[1]) * g * g
        rise = math.sqrt(1 - BETAS[1] ** t) / (1 - BETAS[0] ** t)
        x -= rate * DECAY * x + rate * rise * first / (math.sqrt(second) + eps)
    return x


@pytest.mark.parametrize("eps", [1e-8, 0.1])
def test_steps_are_the_equations(eps):
    parameter = torch.nn.Parameter(torch.tensor([1.5], dtype=torch.float64))
    optimizer = built("fused_adam", [parameter], eps=eps)
    gradients = torch.randn(30, dtype=torch.float64).tolist()
    rates = [0.0, *(LR / t for t in range(1, 30))]
    for gradient, rate in zip(gradients, rates, strict=True):
        optimizer.set_lr(rate)
        parameter.grad = torch.tensor([gradient], dtype=torch.float64)
        optimizer.step()
    expected = written_out(1.5, gradients, rates, eps)
    assert parameter.item() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("eps", [1e-8, 0.1])
@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [
        (torch.float64, 1e-12),
        (torch.float32, 2e-6),
        # rounded each time: a step of the dtype, where the two differ at all
        (torch.bfloat16, 2**-7),
        (torch.float16, 2**-10),
    ],
    ids=str,
)
def test_steps_are_fairseqs(dtype, tolerance, eps):
    """... with a rate that moves, and weights that some steps have no gradient for."""
    ours = weights(dtype)
    theirs = copies(ours)
    fused, fairseqs = built("fused_adam", ours, eps=eps), built("adam", theirs, eps=eps)
    for step in range(25):
        give_gradients(ours, theirs)
        if step % 3 == 1:
            ours[1].grad = theirs[1].grad = None
        for optimizer in (fused, fairseqs):
            optimizer.set_lr(LR / (1 + step))
            optimizer.step()
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other, rtol=tolerance, atol=tolerance)
        states = fused.optimizer.state[mine], fairseqs.optimizer.state[other]
        assert states[0]["step"] == states[1]["step"]
        for name in ("exp_avg", "exp_avg_sq"):
            sums = [state[name] for state in states]
            assert sums[0].dtype == sums[1].dtype == max(dtype, torch.float32, key=size)
            torch.testing.assert_close(*sums, rtol=1e-5, atol=1e-7)


def size(dtype):
    return dtype.itemsize


def test_weights_with_gaps_between_them():
    """A slice; the kernel alone would write what lies between."""
    memory = torch.ones(6, 4)
    parameter = torch.nn.Parameter(memory[:, :2])
    other = torch.nn.Parameter(torch.ones(6, 2))
    fused, fairseqs = built("fused_adam", [parameter]), built("adam", [other])
    for _ in range(3):
        give_gradients([parameter], [other])
        fused.step()
        fairseqs.step()
    torch.testing.assert_close(parameter, other)
    assert (memory[:, 2:] == 1).all()


def test_weights_of_no_number():
    """A worker's share of a sharded model can be empty."""
    empty, full = torch.nn.Parameter(torch.ones(0)), torch.nn.Parameter(torch.ones(2))
    optimizer = built("fused_adam", [empty, full])
    give_gradients([empty, full])
    optimizer.step()
    assert (full != 1).all()
    assert optimizer.optimizer.state[empty]["step"] == 1


@pytest.mark.parametrize(
    ("writer", "reader"), [("adam", "fused_adam"), ("fused_adam", "adam")]
)
def test_states_are_fairseqs(writer, reader):
    """A state goes to the other optimizer to the last bit, and on from there."""
    ours = weights()
    first = built(writer, ours)
    for _ in range(3):
        give_gradients(ours)
        first.step()
    state = first.state_dict()
    theirs = copies(ours)
    second = built(reader, theirs)
    second.load_state_dict(copy.deepcopy(state), second.optimizer_config)
    again = second.state_dict()
    assert again["param_groups"] == state["param_groups"]
    assert {*again["state"]} == {*state["state"]}
    for key, sums in state["state"].items():
        found = again["state"][key]
        assert type(found["step"]) is type(sums["step"]) is int
        assert {*found} == {*sums} and found["step"] == sums["step"] == 3
        for name in ("exp_avg", "exp_avg_sq"):
            assert torch.equal(found[name], sums[name])
    for _ in range(5):
        give_gradients(ours, theirs)
        first.step()
        second.step()
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-6, atol=1e-6)


@pytest.fixture
def half_precision(monkeypatch):
    """half_precision(name, class, precision, parameters): fairseq's, around Adam."""
    monkeypatch.setattr("torch.cuda.current_device", lambda: None)

    def make(name, cls, precision, parameters):
        cfg = FairseqConfig()
        setattr(cfg.common, precision, True)
        cfg.common.fp16_init_scale, cfg.common.fp16_scale_window = 128, 4
        cfg.optimizer = settings(name)
        return cls.build_optimizer(OmegaConf.structured(cfg), parameters)

    return make


def train(optimizer, parameters, batches):
    """An update as fairseq's trainer makes it; whether the gradient overflowed."""
    optimizer.zero_grad()
    for batch in batches:
        losses = [(p.float() * x).sum() for p, x in zip(parameters, batch, strict=True)]
        optimizer.backward(sum(losses))
    optimizer.multiply_grads(1 / len(batches))
    try:
        optimizer.clip_grad_norm(0.5)
        optimizer.step()
    except OverflowError:
        optimizer.zero_grad()
        return True
    return False


@pytest.mark.parametrize("cls", [FP16Optimizer, MemoryEfficientFP16Optimizer])
@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_mixed_precision_is_fairseqs(cls, precision, half_precision):
    """Accumulated batches, a norm that is clipped, an overflow, and a start again.

    --fp16 makes one flat float32 copy of the weights, --bf16 one of each.
    """
    dtype = torch.float16 if precision == "fp16" else torch.bfloat16
    ours = weights(dtype)[1:]
    theirs = copies(ours)
    fused = half_precision("fused_adam", cls, precision, ours)
    fairseqs = half_precision("adam", cls, precision, theirs)
    overflows = []
    for update in range(12):
        batches = [[torch.randn(p.shape) for p in ours] for _ in range(2)]
        if update == 5:
            batches[0][0][0] = 1e6
        if update == 8:  # each from the other one's checkpoint
            states = copy.deepcopy([fairseqs.state_dict(), fused.state_dict()])
            fused = half_precision("fused_adam", cls, precision, ours)
            fairseqs = half_precision("adam", cls, precision, theirs)
            for optimizer, state in zip((fused, fairseqs), states, strict=True):
                optimizer.load_state_dict(state, optimizer.optimizer_config)
        for optimizer, parameters in ((fused, ours), (fairseqs, theirs)):
            if train(optimizer, parameters, batches):
                overflows.append(update)
    assert overflows == ([5, 5] if precision == "fp16" else [])
    step = torch.finfo(dtype).eps
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other, rtol=step, atol=step)
    for state in fused.optimizer.state.values():
        assert {state[name].dtype for name in fused_adam.SUMS} == {torch.float32}


@pytest.fixture
def calls(monkeypatch):
    """How many tensors each call of the kernel has."""
    made, original = [], fused_adam.adamw

    def adamw(weights, *others, **options):
        made.append(len(weights))
        original(weights, *others, **options)

    monkeypatch.setattr(fused_adam, "adamw", adamw)
    return made


def test_the_flat_copy_is_one_call(half_precision, calls):
    parameters = weights(torch.float16)[1:]
    optimizer = half_precision("fused_adam", FP16Optimizer, "fp16", parameters)
    calls.clear()
    train(optimizer, parameters, [[torch.ones(p.shape) for p in parameters]])
    assert calls == [1]


def test_weights_in_float32_are_one_call(calls):
    parameters = [torch.nn.Parameter(torch.ones(3)) for _ in range(5)]
    optimizer = built("fused_adam", parameters)
    give_gradients(parameters)
    calls.clear()
    optimizer.step()
    assert calls == [5]


def test_sparse_gradients_are_refused():
    parameter = torch.nn.Parameter(torch.ones(3))
    optimizer = built("fused_adam", [parameter])
    parameter.grad = torch.ones(3).to_sparse()
    with refuses(ValueError, "optimizer._name=fused_adam", "sparse", "dense"):
        optimizer.step()


def test_devices_without_the_kernel_are_refused(monkeypatch):
    def missing(*tensors, **options):
        raise NotImplementedError("aten::_fused_adamw_")

    monkeypatch.setattr(fused_adam, "adamw", missing)
    parameter = torch.nn.Parameter(torch.ones(3))
    with refuses(ValueError, "fused_adam", "cpu", "optimizer._name=adam"):
        built("fused_adam", [parameter])
