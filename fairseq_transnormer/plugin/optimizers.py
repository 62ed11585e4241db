"""torch's fused AdamW, one kernel over the weights, and its RAdam, for fairseq.

Weight decay is decoupled from the gradient in both. torch's AdamW adds eps to the
bias-corrected root of the second moment, fairseq's Adam to the uncorrected one.
"""

from dataclasses import dataclass
from typing import Any

import torch
from fairseq.dataclass import FairseqDataclass
from fairseq.optim import FairseqOptimizer, register_optimizer
from fairseq.optim.adam import Adam, FairseqAdam
from omegaconf import II

from ..modules.options import described

HALF = (torch.float16, torch.bfloat16)
SUMS = ("exp_avg", "exp_avg_sq")


@dataclass
class FusedAdamConfig(FairseqDataclass):
    """Fields named as Adam's, so that a configuration changes its optimizer's name."""

    adam_betas: Any = described("(0.9, 0.999)", "betas")
    adam_eps: float = described(1e-8, "epsilon")
    weight_decay: float = described(0.0, "decoupled decay")
    lr: list[float] = II("optimization.lr")


class FusedAdamW(torch.optim.AdamW):
    """torch's AdamW, with fairseq's flags and the state format of fairseq's Adam.

    Weights must be contiguous: on a CPU the kernel reads memory in order.
    """

    supports_flat_params = True
    supports_memory_efficient_fp16 = True
    # MemoryEfficientFP16Optimizer, which fully_sharded puts around float32 weights,
    # would overwrite the loaded state with the saved one
    disable_mem_eff_fp16_loading_hack = True

    def __init__(self, params, **options):
        super().__init__(params, fused=True, **options)

    def step(self, closure=None):
        """One update. Gradients get the memory layout of their weights."""
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None and p.grad.stride() != p.stride():
                    p.grad = torch.empty_like(p).copy_(p.grad)
        return super().step(closure)

    def state_dict(self) -> dict[str, Any]:
        """torch's state, with the number of updates as an int, as in fairseq's Adam."""
        saved = super().state_dict()
        for key, state in saved["state"].items():
            saved["state"][key] = state | {"step": int(state["step"])}
        return saved

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a state of this class or of fairseq's Adam, which has no "fused"."""
        groups = [group | {"fused": True} for group in state_dict["param_groups"]]
        states = {
            key: state | {name: state[name].contiguous() for name in SUMS}
            for key, state in state_dict["state"].items()
        }
        super().load_state_dict(state_dict | {"param_groups": groups, "state": states})


@register_optimizer("fused_adam", dataclass=FusedAdamConfig)
class FairseqFusedAdam(FairseqAdam):
    """``--optimizer fused_adam``.

    torch's kernel needs moments in the dtype of the weights. So fairseq's Adam, whose
    moments are float32, updates half-precision weights (fairseq's memory-efficient
    options) and models with a weight that is not contiguous.
    """

    def __init__(self, cfg: FusedAdamConfig, params):
        FairseqOptimizer.__init__(self, cfg)  # FairseqAdam's would make its own
        params = [*params]
        fit = all(p.dtype not in HALF and p.is_contiguous() for p in params)
        kind = FusedAdamW if fit else Adam
        self._optimizer = kind(params, **self.optimizer_config)


# fairseq notes it in checkpoints and resumes from those alone that have the same one;
# either reads the other's states
FairseqFusedAdam.__name__ = FairseqAdam.__name__


@register_optimizer("radam", dataclass=FusedAdamConfig)
class RAdam(FairseqOptimizer):
    """torch's (Liu et al., 2020), which needs no warm-up."""

    optimizer_config = FairseqAdam.optimizer_config

    def __init__(self, cfg: FusedAdamConfig, params):
        super().__init__(cfg)
        self._optimizer = torch.optim.RAdam(
            params, decoupled_weight_decay=True, **self.optimizer_config
        )
