"""RAdam (Liu et al., 2020), with which "Transformers are RNNs" trains."""

from ast import literal_eval
from collections.abc import Collection
from dataclasses import dataclass

import torch
from fairseq.optim import FairseqOptimizer, register_optimizer

from .fused_adam import FusedAdamConfig


@dataclass
class RAdamConfig(FusedAdamConfig):
    """Fields named as Adam's, so that a configuration changes its optimizer's name."""


@register_optimizer("radam", dataclass=RAdamConfig)
class RAdam(FairseqOptimizer):
    """torch's RAdam; it needs no warm-up."""

    def __init__(self, cfg: RAdamConfig, params):
        super().__init__(cfg)
        self._optimizer = torch.optim.RAdam(
            params, decoupled_weight_decay=True, **self.optimizer_config
        )

    @property
    def optimizer_config(self) -> dict:
        """torch's keywords; fairseq puts them over what a checkpoint has."""
        betas = self.cfg.adam_betas
        lr = self.cfg.lr
        return {
            "lr": lr[0] if isinstance(lr, Collection) else lr,
            "betas": literal_eval(betas) if isinstance(betas, str) else tuple(betas),
            "eps": self.cfg.adam_eps,
            "weight_decay": self.cfg.weight_decay,
        }
