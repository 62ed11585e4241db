"""Values are clipped as the gradient is, not as it is scaled or stored."""

import pytest
import torch
from fairseq.optim.adam import FairseqAdam, FairseqAdamConfig
from fairseq.optim.fp16_optimizer import FP16Optimizer, MemoryEfficientFP16Optimizer

from fairseq_transnormer.plugin.tasks.long_range_arena import clip_gradient_values
from tests.optimizers.building import configuration

TRUE = torch.tensor([[3.0, -0.25, 0.5], [-7.0, 0.125, 1.0]])
CLIPPED = TRUE.clamp(-1, 1)
SCALE, SAMPLES = 128, 4
ADAM = FairseqAdamConfig(_name="adam", lr=[0.1])


def in_precision(precision):
    common = {"fp16_init_scale": SCALE, "fp16_no_flatten_grads": True}
    return configuration(ADAM, **{precision: True}, **common)


def accumulate(parameter, optimizer):
    """Two batches whose gradients sum to SAMPLES times the true one; the trainer's
    calls behind them. In fp16 ``backward`` multiplies the loss by SCALE."""
    optimizer.zero_grad()
    for _ in range(2):
        optimizer.backward((parameter.float() * TRUE * SAMPLES / 2).sum())
    optimizer.multiply_grads(1 / SAMPLES)
    optimizer.clip_grad_norm(0)


def test_in_single_precision():
    parameter = torch.nn.Parameter(torch.zeros(2, 3))
    optimizer = FairseqAdam(configuration(ADAM).optimizer, [parameter])
    accumulate(parameter, optimizer)
    clip_gradient_values(optimizer, 1.0)
    torch.testing.assert_close(parameter.grad, CLIPPED)


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_in_half_precision_with_float32_copies(precision):
    cfg = in_precision(precision)
    dtype = torch.float16 if precision == "fp16" else torch.bfloat16
    parameter = torch.nn.Parameter(torch.zeros(2, 3, dtype=dtype))
    optimizer = FP16Optimizer.build_optimizer(cfg, [parameter])
    accumulate(parameter, optimizer)
    clip_gradient_values(optimizer, 1.0)
    copies = optimizer.fp32_params
    copies = copies.values() if isinstance(copies, dict) else copies
    found = torch.cat([copy.grad.flatten() for copy in copies])
    torch.testing.assert_close(found, CLIPPED.flatten())
    optimizer.step()
    # Adam's running mean is what the step was made with
    states = optimizer.optimizer.state.values()
    used = torch.cat([state["exp_avg"].flatten() for state in states])
    torch.testing.assert_close(used, 0.1 * CLIPPED.flatten())


def test_in_memory_efficient_half_precision():
    cfg = in_precision("fp16")
    parameter = torch.nn.Parameter(torch.zeros(2, 3, dtype=torch.float16))
    optimizer = MemoryEfficientFP16Optimizer.build_optimizer(cfg, [parameter])
    accumulate(parameter, optimizer)
    # what the clipping has to see through
    assert parameter.grad.abs().max() == 7 * SAMPLES * SCALE
    clip_gradient_values(optimizer, 1.0)
    torch.testing.assert_close(parameter.grad, CLIPPED.half())
