"""fairseq's Adam by torch's fused kernel, which goes over the weights once an update.

fairseq's own does so in seven kernels, for each parameter. The update, the fields and
the checkpoints are the same, so that a run may change from the one to the other.
"""

import math
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import torch
from fairseq.dataclass import FairseqDataclass
from fairseq.optim import FairseqOptimizer, register_optimizer
from fairseq.optim.adam import Adam, FairseqAdam
from omegaconf import II
from torch import Tensor
from torch.optim.adamw import adamw

HALF = (torch.float16, torch.bfloat16)
SUMS = ("exp_avg", "exp_avg_sq")
OPTIONS = ("lr", "betas", "eps", "weight_decay")
# weights, gradient, and the two sums
Row = tuple[Tensor, Tensor, Tensor, Tensor]


@dataclass
class FusedAdamConfig(FairseqDataclass):
    """Fields named as Adam's, so that a configuration changes its optimizer's name."""

    adam_betas: Any = field(default="(0.9, 0.999)", metadata={"help": "betas"})
    adam_eps: float = field(default=1e-8, metadata={"help": "epsilon"})
    weight_decay: float = field(default=0.0, metadata={"help": "decoupled decay"})
    lr: list[float] = II("optimization.lr")


class FusedAdam(Adam):
    """fairseq's Adam: its groups and its state, and another ``step``.

    Weights are float32 or float64, of any shape, and their sums have their dtype.
    float16 and bfloat16 weights (fairseq's memory-efficient ones) have float32 sums and
    are updated in float32, one after another. The kernel could divide gradients by a
    loss scale; it is not asked to, since fairseq keeps the scale of an update for the
    next one then, with --bf16.

    Raises:
        ValueError: torch has no fused kernel for the device of a weight.
    """

    def __init__(self, params, **options):
        super().__init__(params, **options)
        devices = {p.device for group in self.param_groups for p in group["params"]}
        for device in sorted(devices, key=str):
            check_device(device)

    @torch.no_grad()
    def step(self, closure=None):
        """One update.

        Args:
            closure: computes the loss again, with its gradients.

        Returns:
            the closure's loss, or None.

        Raises:
            ValueError: a gradient is sparse.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            options = {name: group[name] for name in OPTIONS}
            together = defaultdict(list)
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                step = self._count(parameter)
                tensors = self._tensors(parameter)
                if tensors[0] is parameter:
                    together[step, parameter.device].append(tensors)
                else:
                    fused_update([tensors], step=step, **options)
                    parameter.copy_(tensors[0])
            for (step, _), rows in together.items():
                fused_update(rows, step=step, **options)
        return loss

    def _count(self, parameter: Tensor) -> int:
        """The updates of a parameter, this one too; its sums are made in the first."""
        state = self.state[parameter]
        dtype = torch.float32 if parameter.dtype in HALF else parameter.dtype
        if not state:
            state["step"] = 0
            state |= {name: torch.zeros_like(parameter, dtype=dtype) for name in SUMS}
        state["step"] += 1
        # fairseq may have loaded them as they were saved
        state["exp_avg"] = state["exp_avg"].to(parameter.device, dtype)
        state["exp_avg_sq"] = _like(state["exp_avg"], state["exp_avg_sq"])
        return state["step"]

    def _tensors(self, parameter: Tensor) -> Row:
        """What the kernel is given; it ignores strides, so copies where they differ."""
        if parameter.grad.is_sparse:
            raise ValueError(
                "optimizer._name=fused_adam: a gradient is sparse; allowed: dense ones"
            )
        first, second = (self.state[parameter][name] for name in SUMS)
        return _like(first, parameter), _like(first, parameter.grad), first, second


@register_optimizer("fused_adam", dataclass=FusedAdamConfig)
class FairseqFusedAdam(FairseqAdam):
    """``--optimizer fused_adam``."""

    def __init__(self, cfg: FusedAdamConfig, params):
        FairseqOptimizer.__init__(self, cfg)  # FairseqAdam's would make its own
        self._optimizer = FusedAdam(params, **self.optimizer_config)


# fairseq notes it in checkpoints and resumes from those alone that have the same one;
# this is Adam
FairseqFusedAdam.__name__ = FairseqAdam.__name__


def fused_update(
    rows: list[Row],
    *,
    lr: float,
    betas: tuple[float, float],
    eps: float,
    weight_decay: float,
    step: int,
) -> None:
    """Adam's update as fairseq writes it, in place:

        w - lr weight_decay w - lr sqrt(1 - b2^t) / (1 - b1^t) m / (sqrt(v) + eps)

    torch adds eps to the corrected root of v, where it weighs less in the first
    updates. So the kernel is told of an infinite step, where there is nothing to
    correct, and the corrections are in the rate. Nothing waits for the device.

    Args:
        rows: (w, gradient, m, v) of each parameter; its tensors have one dtype and
            layout. All are on one device.
        step: t, from 1.
    """
    correction = math.sqrt(1 - betas[1] ** step) / (1 - betas[0] ** step)
    device = rows[0][0].device
    infinite = torch.full((), math.inf, dtype=torch.float32, device=device)
    weights, gradients, first, second = ([*each] for each in zip(*rows, strict=True))
    adamw(
        *(weights, gradients, first, second, [], [infinite] * len(rows)),
        fused=True,
        amsgrad=False,
        beta1=betas[0],
        beta2=betas[1],
        lr=lr * correction,
        weight_decay=weight_decay / correction,  # the kernel's is times its rate
        eps=eps,
        maximize=False,
    )


def check_device(device: torch.device) -> None:
    """Try the kernel on one number.

    Raises:
        ValueError: torch has none for this device.
    """
    row = tuple(torch.zeros(1, device=device) for _ in range(4))
    try:
        fused_update([row], lr=0, betas=(0.9, 0.999), eps=1, weight_decay=0, step=1)
    except RuntimeError as error:
        raise ValueError(
            f"optimizer._name=fused_adam: torch {torch.__version__} has no such kernel "
            f"for {device}; allowed there: optimizer._name=adam"
        ) from error


def _like(model: Tensor, tensor: Tensor) -> Tensor:
    """A tensor, or its copy in dtype, layout and device of another one."""
    fits = (
        tensor.dtype == model.dtype
        and tensor.stride() == model.stride()
        and tensor.device == model.device
    )
    return tensor if fits else torch.empty_like(model).copy_(tensor)
