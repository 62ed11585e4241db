"""RAdam against the algorithm of its paper, in float64."""

import math

import pytest
import torch
from fairseq.optim import build_optimizer
from omegaconf import OmegaConf

from fairseq_transnormer.plugin.optimizers import FusedAdamConfig

LR, BETAS, EPS, DECAY = 0.05, (0.9, 0.99), 1e-8, 0.1


def written_out(x: float, gradients: list[float]) -> float:
    """Algorithm 2 of Liu et al. (2020), with decoupled decay, of one number."""
    first = second = 0.0
    longest = 2 / (1 - BETAS[1]) - 1
    for t, g in enumerate(gradients, 1):
        x *= 1 - LR * DECAY
        first = BETAS[0] * first + (1 - BETAS[0]) * g
        second = BETAS[1] * second + (1 - BETAS[1]) * g * g
        step = first / (1 - BETAS[0] ** t)
        length = longest - 2 * t * BETAS[1] ** t / (1 - BETAS[1] ** t)
        if length > 5:
            up = (length - 4) * (length - 2) * longest
            step *= math.sqrt(up / ((longest - 4) * (longest - 2) * length))
            step /= math.sqrt(second / (1 - BETAS[1] ** t))
        x -= LR * step
    return x


def built(parameters, eps=EPS):
    """The optimizer as fairseq makes it of a configuration."""
    config = OmegaConf.structured(
        FusedAdamConfig(
            adam_betas=str(BETAS), adam_eps=eps, weight_decay=DECAY, lr=[LR]
        )
    )
    config._name = "radam"
    return build_optimizer(config, parameters)


def test_steps_are_the_papers():
    parameter = torch.nn.Parameter(torch.tensor([1.5], dtype=torch.float64))
    optimizer = built([parameter])
    gradients = torch.randn(20, dtype=torch.float64).tolist()
    for gradient in gradients:
        parameter.grad = torch.tensor([gradient], dtype=torch.float64)
        optimizer.step()
    assert parameter.item() == pytest.approx(written_out(1.5, gradients), rel=1e-6)


@pytest.mark.parametrize("eps", [1e-8, 0.1])
def test_steps_are_torchs(eps):
    """... also where a schedule moves the rate, and after its state was loaded."""
    ours = [torch.nn.Parameter(torch.randn(3, 4)), torch.nn.Parameter(torch.randn(5))]
    theirs = [torch.nn.Parameter(each.detach().clone()) for each in ours]
    optimizer = built(ours, eps)
    judge = torch.optim.RAdam(
        theirs, LR, BETAS, eps, DECAY, decoupled_weight_decay=True
    )
    for step in range(12):
        if step == 7:
            state, optimizer = optimizer.state_dict(), built(ours, eps)
            optimizer.load_state_dict(state)
        rate = LR / (1 + step)
        optimizer.set_lr(rate)
        judge.param_groups[0]["lr"] = rate
        for mine, other in zip(ours, theirs, strict=True):
            mine.grad = torch.randn_like(mine)
            other.grad = mine.grad.clone()
        optimizer.step()
        judge.step()
    for mine, other in zip(ours, theirs, strict=True):
        assert torch.equal(mine, other)
