"""fp16, bf16 and amp: the state that fairseq's optimizers omit from a checkpoint.

It is the float32 weights and the counters of the loss scaler. The classes have the
names of fairseq's, since checkpoints record these names.
"""

import logging

import torch
from fairseq.optim import amp_optimizer, fp16_optimizer

logger = logging.getLogger(__name__)

# their places in the optimizer's state
WEIGHTS, SCALER, AMP_SCALER = "fp32_weights", "loss_scaler", "amp_scaler"
HALF = (torch.float16, torch.bfloat16)
# dynamic_loss_scaler.py: the values that decide when the scale grows again
SCALER_FIELDS = ("_iter", "_last_overflow_iter", "_last_rescale_iter")
SCALER_FIELDS += ("_overflows_since_rescale",)


class _SavesScaler:
    """Saves the counters of fairseq's loss scaler, if there is one."""

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
    """fairseq's optimizer, with its loss scaler in checkpoints."""


class AMPOptimizer(amp_optimizer.AMPOptimizer):
    """fairseq's optimizer, with its loss scaler in checkpoints."""

    def state_dict(self):
        return {**super().state_dict(), AMP_SCALER: self.scaler.state_dict()}

    def load_state_dict(self, state_dict, optimizer_overrides=None):
        super().load_state_dict(state_dict, optimizer_overrides)
        # missing in checkpoints of another precision, or of fairseq alone
        if state_dict.get(AMP_SCALER):
            self.scaler.load_state_dict(state_dict[AMP_SCALER])


class FP16Optimizer(_SavesScaler, fp16_optimizer.FP16Optimizer):
    """fairseq's optimizer for fp16 and bf16, with float32 weights in checkpoints."""

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
            logger.warning("fp32_weights are of another size: rounded ones are used")
        elif not self._are_of_model(saved):
            logger.warning(
                "fp32_weights are not those of the checkpoint's model, which was "
                "averaged, or changed in another way: the model's are used"
            )
        else:
            with torch.no_grad():
                for weights, loaded in zip(ours, saved, strict=True):
                    weights.copy_(loaded)

    def _in_float32(self) -> list[torch.Tensor]:
        weights = self.fp32_params
        return list(weights.values() if isinstance(weights, dict) else weights)

    def _are_of_model(self, saved: list[torch.Tensor]) -> bool:
        """Compare exactly: an average of late checkpoints is within a hundredth."""
        copied, weights = [[each] for each in self.fp16_params], self.fp32_params
        if isinstance(weights, dict):  # flat, one of each device
            copied = [
                [p for [p] in copied if p.device.index == each or len(weights) == 1]
                for each in weights
            ]
        pairs: list[tuple[torch.Tensor, torch.Tensor]] = []
        for parameters, weight in zip(copied, saved, strict=True):
            parts = weight.reshape(-1).split([each.numel() for each in parameters])
            pairs += zip(parameters, parts, strict=True)
        # a run may have changed between fp16 and bf16
        dtypes = (None, *HALF)
        return any(all(_is_rounded(*each, dtype) for each in pairs) for dtype in dtypes)


def adopt(optimizer) -> None:
    """Let an optimizer of fairseq save the state that these classes save."""
    for kind in (FP16Optimizer, MemoryEfficientFP16Optimizer, AMPOptimizer):
        if type(optimizer) is kind.__bases__[-1]:
            optimizer.__class__ = kind


def _is_rounded(
    parameter: torch.Tensor, weights: torch.Tensor, before: torch.dtype | None
) -> bool:
    """Whether a parameter is ``weights`` in float32, rounded to a half precision."""
    if before and parameter.dtype in HALF:  # LRPE's stay in float32
        weights = weights.to(before)
    rounded = weights.to(parameter.device, parameter.dtype)
    return torch.equal(parameter.reshape(-1), rounded)
