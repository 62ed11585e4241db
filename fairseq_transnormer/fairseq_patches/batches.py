"""What is done with a batch while it is still on the host."""

from __future__ import annotations

from fairseq import utils
from torch import Tensor


def look_and_prepare(prepare, trainer, sample, *arguments, **keywords):
    """Around ``Trainer._prepare_sample``, which moves a batch to the device.

    A criterion that has ``look_at_batch(sample)`` is asked what a step needs to know of
    it: on a GPU the same look would wait until all that came before is done. From
    pinned memory the copy to the GPU waits for nothing either.
    """
    if isinstance(sample, dict) and sample:
        look = getattr(trainer.get_criterion(), "look_at_batch", None)
        if look is not None:
            sample = {**sample, **look(sample)}
        if trainer.cuda:
            sample = utils.apply_to_sample(_pinned, sample)
    return prepare(trainer, sample, *arguments, **keywords)


def _pinned(tensor: Tensor) -> Tensor:
    return tensor if tensor.is_cuda or not tensor.numel() else tensor.pin_memory()
