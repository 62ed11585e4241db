"""What fairseq does between the passes of two updates: its own code, to be traced."""

from __future__ import annotations

from collections.abc import Iterable
from unittest import mock

import fairseq_transnormer.plugin  # noqa: F401 (registers fused_adam)

# isort: split
import torch
from fairseq.dataclass.configs import FairseqConfig
from fairseq.optim import build_optimizer
from fairseq.optim.fp16_optimizer import FP16Optimizer
from omegaconf import DictConfig, OmegaConf
from torch import Tensor

ADAM = {"adam_betas": "(0.9, 0.98)", "adam_eps": 1e-8, "weight_decay": 0.01}


class Update:
    """Adam's step with what fairseq does before and after it.

    Half precision has float32 copies: one flat one with --fp16, one of each parameter
    with --bf16.

    Args:
        parameters: trained ones, all of them.
        name: "adam" or "fused_adam".
        dtype: of most of them.
    """

    def __init__(self, parameters: Iterable[Tensor], name: str, dtype: torch.dtype):
        self.weights = [*parameters]
        settings = _settings(name, dtype)
        self.is_half = dtype != torch.float32
        if self.is_half:
            # the flat copy is made for the current GPU; without one, for None
            with mock.patch.object(torch.cuda, "current_device", lambda: None):
                self.optimizer = FP16Optimizer.build_optimizer(settings, self.weights)
        else:
            self.optimizer = build_optimizer(settings.optimizer, self.weights)
        # Adam makes its sums in its first step: by gradients that are zero
        self.optimizer.zero_grad()
        if not self.is_half:
            for p in self.weights:
                p.grad = torch.zeros_like(p)
        self()

    def backward(self, loss: Tensor) -> None:
        """A backward pass, of a scaled loss with --fp16."""
        self.optimizer.backward(loss)

    def __call__(self) -> None:
        """Update the weights by their gradients, and give those back."""
        self.optimizer.multiply_grads(0.5)  # workers over tokens
        self.optimizer.clip_grad_norm(0.0)
        self.optimizer.step()
        self.optimizer.zero_grad()

    def held(self) -> list[Tensor]:
        """Weights, Adam's sums, and copies of half precision with their gradients."""
        inner = self.optimizer
        tensors = [*self.weights]
        if self.is_half:
            inner = inner.fp32_optimizer
            copies = [p for group in inner.param_groups for p in group["params"]]
            tensors += [*copies, *(p.grad for p in copies)]
        state = inner.optimizer.state.values()
        sums = (x for s in state for x in s.values() if isinstance(x, Tensor))
        return [*tensors, *sums]


def _settings(name: str, dtype: torch.dtype) -> DictConfig:
    """fairseq's whole configuration, whose parts refer to each other."""
    settings = OmegaConf.structured(FairseqConfig())
    OmegaConf.set_struct(settings, False)
    settings.common.bf16 = dtype == torch.bfloat16
    settings.common.fp16 = dtype == torch.float16
    settings.optimization.lr = [5e-4]
    settings.optimizer = {"_name": name, **ADAM}
    return settings
