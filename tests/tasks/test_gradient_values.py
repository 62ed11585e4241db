"""Values are clipped as the gradient is, not as it is scaled or stored."""

import pytest
import torch
from fairseq.optim.adam import FairseqAdam
from fairseq.optim.fp16_optimizer import FP16Optimizer, MemoryEfficientFP16Optimizer
from omegaconf import OmegaConf

from fairseq_transnormer.plugin.tasks.long_range_arena import clip_gradient_values

TRUE = torch.tensor([[3.0, -0.25, 0.5], [-7.0, 0.125, 1.0]])
CLIPPED = TRUE.clamp(-1, 1)
SCALE, SAMPLES = 128.0, 4


def configuration(precision):
    common = {
        "fp16": precision == "fp16", "bf16": precision == "bf16", "tpu": False,
        "fp16_init_scale": SCALE, "fp16_scale_window": 1, "fp16_scale_tolerance": 0.0,
        "threshold_loss_scale": None, "min_loss_scale": 1e-4,
        "fp16_no_flatten_grads": True, "memory_efficient_bf16": False,
        "on_cpu_convert_precision": False,
    }  # fmt: skip
    optimizer = {
        "_name": "adam", "adam_betas": "(0.9, 0.999)", "adam_eps": 1e-8, "tpu": False,
        "weight_decay": 0.0, "use_old_adam": False, "fp16_adam_stats": False,
        "lr": [0.1],
    }  # fmt: skip
    return OmegaConf.create(
        {
            "common": common,
            "optimizer": optimizer,
            "optimization": {"update_freq": [1]},
            "distributed_training": {"distributed_world_size": 1},
        }
    )


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
    optimizer = FairseqAdam(configuration("fp32").optimizer, [parameter])
    accumulate(parameter, optimizer)
    clip_gradient_values(optimizer, 1.0)
    torch.testing.assert_close(parameter.grad, CLIPPED)


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_in_half_precision_with_float32_copies(precision):
    cfg = configuration(precision)
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
    cfg = configuration("fp16")
    parameter = torch.nn.Parameter(torch.zeros(2, 3, dtype=torch.float16))
    optimizer = MemoryEfficientFP16Optimizer.build_optimizer(cfg, [parameter])
    accumulate(parameter, optimizer)
    # what the clipping has to see through
    assert parameter.grad.abs().max() == 7 * SAMPLES * SCALE
    clip_gradient_values(optimizer, 1.0)
    torch.testing.assert_close(parameter.grad, CLIPPED.half())
