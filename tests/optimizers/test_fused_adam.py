"""The fused Adam against AdamW's equations in float64, and beside fairseq's Adam."""

import copy

import pytest
import torch
from fairseq.optim import build_optimizer
from fairseq.optim.adam import Adam, FairseqAdamConfig
from fairseq.optim.fp16_optimizer import FP16Optimizer, MemoryEfficientFP16Optimizer
from omegaconf import OmegaConf

from fairseq_transnormer.plugin.optimizers import (
    HALF,
    SUMS,
    FusedAdamConfig,
    FusedAdamW,
)

from .building import configuration

CONFIGS = {"adam": FairseqAdamConfig, "fused_adam": FusedAdamConfig}
LR, BETAS, DECAY = 0.05, (0.9, 0.98), 0.1


def settings(name, eps):
    fields = {"adam_betas": str(BETAS), "adam_eps": eps, "lr": [LR]}
    fields |= {"tpu": False} if name == "adam" else {}
    return CONFIGS[name](_name=name, weight_decay=DECAY, **fields)


def built(name, parameters, eps=0.0):
    """The optimizer as fairseq makes it of a configuration."""
    return build_optimizer(OmegaConf.structured(settings(name, eps)), parameters)


def weights(dtype=torch.float32):
    shapes = (4, 5), (7,), (), (0,)
    made = [torch.randn(shape, dtype=torch.float64).to(dtype) for shape in shapes]
    return [torch.nn.Parameter(each) for each in made]


def give_gradients(*models):
    """The same random ones to each; by rows, whatever the weights are stored by."""
    for same in zip(*models, strict=True):
        gradient = torch.randn(same[0].shape, dtype=torch.float64)
        for each in same:
            each.grad = gradient.to(each.dtype)


def written_out(x, gradients, rates, eps, first=0.0, second=0.0, done=0):
    """AdamW's updates of a tensor (Loshchilov and Hutter, 2019, algorithm 2)."""
    for t, (g, rate) in enumerate(zip(gradients, rates, strict=True), done + 1):
        first = BETAS[0] * first + (1 - BETAS[0]) * g
        second = BETAS[1] * second + (1 - BETAS[1]) * g * g
        root = torch.sqrt(second / (1 - BETAS[1] ** t))
        step = first / (1 - BETAS[0] ** t) / (root + eps)
        x = x - rate * DECAY * x - rate * step
    return x


@pytest.mark.parametrize("eps", [1e-8, 0.1])
def test_steps_are_the_equations(eps):
    parameter = torch.nn.Parameter(torch.tensor([1.5, -2.0], dtype=torch.float64))
    optimizer = built("fused_adam", [parameter], eps)
    gradients = torch.randn(30, 2, dtype=torch.float64)
    rates = [0.0, *(LR / t for t in range(1, 30))]
    expected = written_out(parameter.detach(), gradients, rates, eps)
    for gradient, rate in zip(gradients, rates, strict=True):
        optimizer.set_lr(rate)
        parameter.grad = gradient.clone()
        optimizer.step()
    torch.testing.assert_close(parameter.detach(), expected, rtol=1e-12, atol=0)


def by_columns(parameters):
    parameters[0].data = parameters[0].data.t().contiguous().t()


def with_gaps(parameters):
    parameters[0].data = torch.ones(4, 9)[:, :5]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, *HALF])
@pytest.mark.parametrize("store", [list, by_columns, with_gaps])
def test_steps_are_fairseqs_without_eps(dtype, store):
    """... with a rate that moves, and weights that some steps have no gradient for."""
    ours = weights(dtype)
    store(ours)
    theirs = copy.deepcopy(ours)
    fused, fairseqs = built("fused_adam", ours), built("adam", theirs)
    fits = dtype not in HALF and store is list
    assert type(fused.optimizer) is (FusedAdamW if fits else Adam)
    for step in range(25):
        give_gradients(ours, theirs)
        if step % 3 == 1:
            ours[1].grad = theirs[1].grad = None
        for optimizer in (fused, fairseqs):
            optimizer.set_lr(LR / (1 + step))
            optimizer.step()
    limit = 1e-12 if dtype == torch.float64 else 2e-6
    torch.testing.assert_close(ours, theirs, rtol=limit, atol=limit)
    states = fused.optimizer.state.values()
    sums = {state[name].dtype for state in states for name in SUMS}
    assert sums and not sums & {*HALF}  # which would lose small steps


def test_a_gradient_may_lie_otherwise_in_memory():
    """torch's kernel for CPUs takes numbers as they lie."""
    weight = torch.nn.Parameter(torch.zeros(2, 3))
    optimizer = FusedAdamW([weight], lr=1.0, weight_decay=0.0)
    weight.grad = torch.tensor(3 * [[1.0, -1.0]]).t()
    optimizer.step()
    torch.testing.assert_close(weight.data, torch.tensor([3 * [-1.0], 3 * [1.0]]))


def test_a_state_of_before_goes_on():
    """By hand, as fairseq's Adam and this one before wrote them; sums by columns and in
    half precision are put right."""
    first, second = torch.randn(2, 3).half(), torch.rand(2, 3).half()
    state = {
        "state": {0: {"step": 3, "exp_avg": first.t().contiguous().t()}},
        "param_groups": [
            {
                "lr": 9.0,
                "betas": (0.5, 0.5),
                "eps": 1.0,
                "weight_decay": 0.0,
                "amsgrad": False,
                "params": [0],
            }
        ],
    }
    state["state"][0]["exp_avg_sq"] = second.t().contiguous().t()
    parameter = torch.nn.Parameter(torch.randn(2, 3, dtype=torch.float64))
    optimizer = built("fused_adam", [parameter], eps=0.1)
    optimizer.load_state_dict(state, optimizer.optimizer_config)
    assert optimizer.param_groups[0]["fused"]
    gradients = torch.randn(4, 2, 3, dtype=torch.float64)
    sums = first.double(), second.double()
    expected = written_out(parameter.detach(), gradients, [LR] * 4, 0.1, *sums, done=3)
    for gradient in gradients:
        parameter.grad = gradient.clone()
        optimizer.step()
    torch.testing.assert_close(parameter.detach(), expected, rtol=1e-12, atol=1e-12)


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
    theirs = copy.deepcopy(ours)
    second = built(reader, theirs)
    second.load_state_dict(copy.deepcopy(state), second.optimizer_config)
    again = second.state_dict()["state"]
    assert {*again} == {*state["state"]}
    for key, saved in state["state"].items():
        assert type(again[key]["step"]) is type(saved["step"]) is int
        assert {*again[key]} == {*saved} and again[key]["step"] == saved["step"] == 3
        assert all(torch.equal(again[key][name], saved[name]) for name in SUMS)
    for _ in range(5):
        give_gradients(ours, theirs)
        first.step()
        second.step()
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-6)


@pytest.fixture
def half_precision(monkeypatch):
    """half_precision(name, class, precision, parameters): fairseq's, around Adam."""
    monkeypatch.setattr("torch.cuda.current_device", lambda: None)

    def make(name, cls, precision, parameters):
        common = {precision: True, "fp16_init_scale": 128, "fp16_scale_window": 4}
        cfg = configuration(settings(name, 1e-8), **common)
        return cls.build_optimizer(cfg, parameters)

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
@pytest.mark.parametrize(
    ("precision", "dtype"),
    [
        ("fp16", torch.float16),
        ("bf16", torch.bfloat16),
        ("fp16", torch.float32),  # fully_sharded's weights, which nothing overflows
    ],
)
def test_mixed_precision_is_fairseqs(cls, precision, dtype, half_precision):
    """Accumulated batches, a norm that is clipped, an overflow, and a start again.

    --fp16 makes one flat float32 copy of the weights, --bf16 one of each.
    """
    ours = weights(dtype)
    theirs = copy.deepcopy(ours)
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
    assert overflows == ([5, 5] if dtype == torch.float16 else [])
    step = max(torch.finfo(dtype).eps, 1e-6)
    torch.testing.assert_close(ours, theirs, rtol=step, atol=step)
    for state in fused.optimizer.state.values():
        assert {state[name].dtype for name in SUMS} == {torch.float32}
