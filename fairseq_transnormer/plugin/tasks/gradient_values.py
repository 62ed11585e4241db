"""Clipping of each gradient value by itself; fairseq clips the norm only."""

from fairseq.optim import FairseqOptimizer
from torch import nn


def clip_gradient_values(optimizer: FairseqOptimizer, limit: float) -> None:
    """Bring every number of the gradient into [-limit, limit].

    To be called where fairseq steps the optimizer: gradients are then summed over
    workers and accumulated batches and divided by the sample size. fairseq's fp16 and
    bf16 optimizers still have the loss scale in them, and that division before them, in
    a factor, which is applied first.

    Args:
        optimizer: fairseq's.
        limit: above 0.
    """
    apply_factor = getattr(optimizer, "_unscale_grads", None)
    if apply_factor is not None:
        apply_factor()
    # of the fp16 optimizer the float32 copies, which it steps with
    groups = optimizer.optimizer.param_groups
    nn.utils.clip_grad_value_([p for group in groups for p in group["params"]], limit)
