"""RAdam (Liu et al., 2020), with which "Transformers are RNNs" trains."""

import torch
from fairseq.optim import FairseqOptimizer, register_optimizer
from fairseq.optim.adam import FairseqAdam

from .fused_adam import FusedAdamConfig


@register_optimizer("radam", dataclass=FusedAdamConfig)
class RAdam(FairseqOptimizer):
    """torch's RAdam; it needs no warm-up."""

    optimizer_config = FairseqAdam.optimizer_config

    def __init__(self, cfg: FusedAdamConfig, params):
        super().__init__(cfg)
        self._optimizer = torch.optim.RAdam(
            params, decoupled_weight_decay=True, **self.optimizer_config
        )
