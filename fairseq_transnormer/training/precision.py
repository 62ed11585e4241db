"""fp16, bf16 and amp: what fairseq's optimizers leave out of a checkpoint.

The weights in float32, which a start would make of rounded ones, and the loss scaler's
counters. ``adopt`` makes an optimizer of fairseq one of these classes, which have the
names of fairseq's: checkpoints hold the name.
"""

import logging

import torch
from fairseq.optim import amp_optimizer, fp16_optimizer

logger = logging.getLogger(__name__)

# their places in the optimizer's state
WEIGHTS = "fp32_weights"
SCALER = "loss_scaler"
AMP_SCALER = "amp_scaler"
HALF = (torch.float16, torch.bfloat16)
# dynamic_loss_scaler.py: what decides when the scale grows again
SCALER_FIELDS = (
    "_iter",
    "_last_overflow_iter",
    "_last_rescale_iter",
    "_overflows_since_rescale",
)


class _SavesScaler:
    """The counters of fairseq's loss scaler, where there is one."""

    def state_dict(self):
        state = super().state_dict()
        if self.scaler is not None:
            state[SCALER] = {each: getattr(self.scaler, each) for each in SCALER_FIELDS}
        return state

    def load_state_dict(self, state_dict, optimizer_overrides=None):
        super().load_state_dict(state_dict, optimizer_overrides)
        if self.scaler is not None:
            vars(self.scaler).update(state_dict.get(SCALER, {}))


class MemoryEfficientFP16Optimizer(
    _SavesScaler, fp16_optimizer.MemoryEfficientFP16Optimizer
):
    """fairseq's, with its loss scaler in checkpoints."""


class AMPOptimizer(amp_optimizer.AMPOptimizer):
    """fairseq's, with its loss scaler in checkpoints."""

    def state_dict(self):
        return {**super().state_dict(), AMP_SCALER: self.scaler.state_dict()}

    def load_state_dict(self, state_dict, optimizer_overrides=None):
        super().load_state_dict(state_dict, optimizer_overrides)
        # none in what another precision, or fairseq alone, has saved
        if state_dict.get(AMP_SCALER):
            self.scaler.load_state_dict(state_dict[AMP_SCALER])


class FP16Optimizer(_SavesScaler, fp16_optimizer.FP16Optimizer):
    """fairseq's for fp16 and bf16, with the weights in float32 in checkpoints."""

    def state_dict(self):
        state = super().state_dict()
        state[WEIGHTS] = [weights.detach() for weights in self._in_float32()]
        return state

    def load_state_dict(self, state_dict, optimizer_overrides=None):
        super().load_state_dict(state_dict, optimizer_overrides)
        ours, saved = self._in_float32(), state_dict.get(WEIGHTS)
        if saved is None:
            return
        if [each.shape for each in ours] != [each.shape for each in saved]:
            logger.warning(
                "fp32_weights of the checkpoint are of another size: rounded ones are "
                "used"
            )
        elif not self._are_of_model(saved):
            logger.warning(
                "fp32_weights of the checkpoint are not those of its model, which was "
                "averaged, or changed in another way: the model's are used"
            )
        else:
            with torch.no_grad():
                for weights, loaded in zip(ours, saved, strict=True):
                    weights.copy_(loaded)

    def _in_float32(self) -> list[torch.Tensor]:
        weights = self.fp32_params
        return list(weights.values()) if isinstance(weights, dict) else list(weights)

    def _copied(self) -> list[list[torch.Tensor]]:
        """The model's parameters that each of ``_in_float32`` has, in its order."""
        parameters, weights = list(self.fp16_params), self.fp32_params
        if not isinstance(weights, dict):
            return [[each] for each in parameters]
        if len(weights) == 1:
            return [parameters]
        return [[p for p in parameters if p.device.index == each] for each in weights]

    def _are_of_model(self, saved: list[torch.Tensor]) -> bool:
        """To the last bit: an average of late checkpoints is within a hundredth."""
        pairs = list(zip(self._copied(), saved, strict=True))
        # a run may have changed from the one half precision to the other
        return any(
            all(_are_rounded(*each, before) for each in pairs)
            for before in (None, *HALF)
        )


# fairseq's class -> ours
KINDS = {kind.__bases__[-1]: kind for kind in
         (FP16Optimizer, MemoryEfficientFP16Optimizer, AMPOptimizer)}  # fmt: skip


def adopt(optimizer) -> None:
    """Let an optimizer of fairseq keep in checkpoints what these classes keep."""
    optimizer.__class__ = KINDS.get(type(optimizer), type(optimizer))


def _are_rounded(
    parameters: list[torch.Tensor], weights: torch.Tensor, before: torch.dtype | None
) -> bool:
    """Whether ``weights``, of all in one, are the parameters in float32."""
    parts = weights.reshape(-1).split([each.numel() for each in parameters])
    for parameter, part in zip(parameters, parts, strict=True):
        part = part.to(parameter.device)
        if before and parameter.dtype in HALF:  # LRPE's stay in float32
            part = part.to(before)
        if not torch.equal(parameter.reshape(-1), part.to(parameter.dtype)):
            return False
    return True
