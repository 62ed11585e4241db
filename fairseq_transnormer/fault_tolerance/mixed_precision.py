"""fp16 and bf16: the weights in float32 are saved, so that no start rounds them."""

import logging

import torch
from fairseq.optim.fp16_optimizer import _FP16OptimizerMixin

from .wrapping import wrap

logger = logging.getLogger(__name__)

WEIGHTS = "fp32_weights"
SCALER = "loss_scaler"
# dynamic_loss_scaler.py: what decides when the scale grows again
SCALER_FIELDS = (
    "_iter",
    "_last_overflow_iter",
    "_last_rescale_iter",
    "_overflows_since_rescale",
)


def install() -> None:
    """Add them to what fairseq saves and loads.

    optim/fp16_optimizer.py, state_dict: it has the loss scale alone. The weights that
    the optimiser updates are made anew of the model's rounded ones, so that each start
    changes the run. The memory-efficient optimisers have no such weights.
    """
    wrap(_FP16OptimizerMixin, "state_dict", _with_weights)
    wrap(_FP16OptimizerMixin, "load_state_dict", _load_weights)


def _with_weights(state_dict, optimizer):
    state = state_dict(optimizer)
    state[WEIGHTS] = [weights.detach() for weights in _weights(optimizer)]
    if optimizer.scaler is not None:
        state[SCALER] = {
            each: getattr(optimizer.scaler, each) for each in SCALER_FIELDS
        }
    return state


def _load_weights(load, optimizer, state_dict, optimizer_overrides=None):
    load(optimizer, state_dict, optimizer_overrides)
    ours, saved = _weights(optimizer), state_dict.get(WEIGHTS)
    if optimizer.scaler is not None:
        vars(optimizer.scaler).update(state_dict.get(SCALER, {}))
    if saved is None:
        return
    if [each.shape for each in ours] != [each.shape for each in saved]:
        logger.warning(
            "fp32_weights of the checkpoint are of another size: rounded ones are used"
        )
        return
    with torch.no_grad():
        for weights, loaded in zip(ours, saved, strict=True):
            weights.copy_(loaded)


def _weights(optimizer) -> list[torch.Tensor]:
    weights = optimizer.fp32_params
    return list(weights.values()) if isinstance(weights, dict) else list(weights)
