"""fp16 and bf16: the weights in float32 are saved, so that no start rounds them.

And what asks for half precision is computed in it, or refused.
"""

import logging
from unittest import mock

import torch

logger = logging.getLogger(__name__)

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


def check_precision(common, cuda: bool) -> None:
    """Refuse what fairseq would compute in another precision than is asked for.

    Args:
        common: fairseq's configuration of that name.
        cuda: whether the model is on a GPU.

    Raises:
        ValueError: fields contradict each other, or cannot be done on a CPU.
    """
    chosen = [name for name in ("fp16", "bf16", "amp") if common[name]]
    if len(chosen) > 1:
        raise ValueError(
            f"common.{' and common.'.join(chosen)} are true; allowed: one of them"
        )
    for name in ("fp16", "bf16"):
        # fairseq-train sets the one with the other, fairseq-hydra-train does not
        if common[f"memory_efficient_{name}"] and not common[name]:
            raise ValueError(
                f"common.memory_efficient_{name}=true and common.{name}=false would "
                f"not train in {name}; allowed: common.{name}=true besides"
            )
    if common.amp and not cuda:
        raise ValueError(
            "common.amp=true on a CPU: fairseq's is for GPUs alone, and would train in "
            "fp32; allowed: common.bf16=true, or none"
        )
    flat = common.fp16 and not (
        common.memory_efficient_fp16 or common.fp16_no_flatten_grads
    )
    if flat and not _a_gpu_has_a_number():
        raise ValueError(
            "common.fp16=true on a CPU: fairseq makes the flat copy of the weights on "
            "GPUs alone; allowed: common.fp16_no_flatten_grads=true "
            "(--fp16-no-flatten-grads) besides, or common.bf16=true"
        )


def skip_overflows_on_cpu(train_step, trainer, *arguments, **keywords):
    """Around trainer.py, train_step: at an overflow of fp16 it moves a zero to a GPU.

    Without one that would end the run where it is to continue with a smaller scale.
    """
    if trainer.cuda or not trainer.cfg.common.fp16:
        return train_step(trainer, *arguments, **keywords)
    with mock.patch.object(torch.Tensor, "cuda", lambda tensor: tensor):
        return train_step(trainer, *arguments, **keywords)


def _a_gpu_has_a_number() -> bool:
    """optim/fp16_optimizer.py, build_fp32_params, asks for it, with --cpu, too."""
    try:
        torch.cuda.current_device()
    except (AssertionError, RuntimeError):
        return False
    return True


def save_loss_scaler(state_dict, optimizer):
    state = state_dict(optimizer)
    if optimizer.scaler is not None:
        state[SCALER] = {
            each: getattr(optimizer.scaler, each) for each in SCALER_FIELDS
        }
    return state


def load_loss_scaler(load, optimizer, state_dict, optimizer_overrides=None):
    load(optimizer, state_dict, optimizer_overrides)
    if optimizer.scaler is not None:
        vars(optimizer.scaler).update(state_dict.get(SCALER, {}))


def save_amp_scaler(state_dict, optimizer):
    return {**state_dict(optimizer), AMP_SCALER: optimizer.scaler.state_dict()}


def load_amp_scaler(load, optimizer, state_dict, optimizer_overrides=None):
    load(optimizer, state_dict, optimizer_overrides)
    # none in what another precision, or fairseq alone, has saved
    if state_dict.get(AMP_SCALER):
        optimizer.scaler.load_state_dict(state_dict[AMP_SCALER])


def save_fp32_weights(state_dict, optimizer):
    state = state_dict(optimizer)
    state[WEIGHTS] = [weights.detach() for weights in _weights(optimizer)]
    return state


def load_fp32_weights(load, optimizer, state_dict, optimizer_overrides=None):
    load(optimizer, state_dict, optimizer_overrides)
    ours, saved = _weights(optimizer), state_dict.get(WEIGHTS)
    if saved is None:
        return
    if [each.shape for each in ours] != [each.shape for each in saved]:
        logger.warning(
            "fp32_weights of the checkpoint are of another size: rounded ones are used"
        )
        return
    of_model = list(zip(_copied(optimizer), saved, strict=True))
    with torch.no_grad():
        if not any(
            all(_are_rounded(*each, before) for each in of_model)
            # a run may have changed from the one to the other
            for before in (None, *HALF)
        ):
            logger.warning(
                "fp32_weights of the checkpoint are not those of its model, which was "
                "averaged, or changed in another way: the model's are used"
            )
            return
        for weights, loaded in zip(ours, saved, strict=True):
            weights.copy_(loaded)


def _copied(optimizer) -> list[list[torch.Tensor]]:
    """The model's parameters that each of ``_weights`` has in float32, in its order."""
    parameters, weights = list(optimizer.fp16_params), optimizer.fp32_params
    if not isinstance(weights, dict):
        return [[each] for each in parameters]
    if len(weights) == 1:
        return [parameters]
    return [[p for p in parameters if p.device.index == each] for each in weights]


def _are_rounded(
    parameters: list[torch.Tensor], weights: torch.Tensor, before: torch.dtype | None
) -> bool:
    """Whether ``weights``, of all in one, are the parameters in float32.

    To the last bit: an average of late checkpoints is within a hundredth of the last.
    """
    parts = weights.reshape(-1).split([each.numel() for each in parameters])
    for parameter, part in zip(parameters, parts, strict=True):
        part = part.to(parameter.device)
        if before and parameter.dtype in HALF:  # LRPE's stay in float32
            part = part.to(before)
        if not torch.equal(parameter.reshape(-1), part.to(parameter.dtype)):
            return False
    return True


def _weights(optimizer) -> list[torch.Tensor]:
    weights = optimizer.fp32_params
    return list(weights.values()) if isinstance(weights, dict) else list(weights)
