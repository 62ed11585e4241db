"""How batches are cut and shared, and what is done with one while on the host."""

from __future__ import annotations

from fairseq import utils
from torch import Tensor


def validate_apart_from_training(
    get_valid_iterator, trainer, subset: str, *arguments, **keywords
):
    """Around ``Trainer.get_valid_iterator``: a split that also trains is opened twice.

    fairseq keeps one iterator a dataset. A validation on training data would take the
    place of the training in it: the epoch would end there, and its masks be others.
    """
    datasets, name = trainer.task.datasets, trainer.cfg.dataset.train_subset
    if subset != name:
        return get_valid_iterator(trainer, subset, *arguments, **keywords)
    training = datasets[subset]
    if not hasattr(trainer, "validated_training_data"):
        trainer.task.load_dataset(subset, combine=False, epoch=1)
        trainer.validated_training_data = datasets[subset]
    datasets[subset] = trainer.validated_training_data
    try:
        return get_valid_iterator(trainer, subset, *arguments, **keywords)
    finally:
        datasets[subset] = training


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
