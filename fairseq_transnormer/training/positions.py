"""Places in an epoch: the same batches for any number of workers, before and after.

fairseq's position counts the batches of one worker's share. These functions work on the
``EpochBatchIterator`` that fairseq's task has made.
"""

import logging
from typing import Any

from fairseq.data.iterators import EpochBatchIterator

logger = logging.getLogger(__name__)


def is_made_once(task, dataset, cfg, disable_iterator_cache: bool) -> bool:
    """Whether fairseq makes the batches of a dataset for the first epoch alone."""
    return (
        not disable_iterator_cache
        and not getattr(cfg.dataset, "update_epoch_batch_itr", False)
        and not getattr(task.cfg, "rebuild_batches", False)
        and task.can_reuse_epoch_itr(dataset)
    )


def load_each_epoch_anew(epochs) -> None:
    """fairseq keeps a loader's processes, which have the dataset of their first epoch:
    masks would be the same in all, and others after resuming."""
    epochs.reuse_dataloader = epochs.persistent_workers = False


def state_of(epochs) -> dict[str, Any]:
    """fairseq's position, and of how many workers and batches it is one."""
    state = epochs.state_dict()
    if not isinstance(epochs, EpochBatchIterator):  # a stream
        return state
    batches = len(epochs.frozen_batches)
    return {**state, "workers": epochs.num_shards, "batches_in_epoch": batches}


def restore(epochs, state: dict[str, Any]) -> None:
    """Go to a position that was saved with any number of workers.

    An update takes the same batches, in whatever shares. With another batch size the
    batches are others, and the same part of the epoch counts as done; so it does with
    --grouped-shuffling, whose groups are of as many batches as there are workers.

    Args:
        epochs: the iterator.
        state: from ``state_of``, or of fairseq, for as many workers as there are.
    """
    position, workers = state.get("iterations_in_epoch", 0), state.get("workers")
    if not position or workers is None:
        epochs.load_state_dict(state)
        return
    epochs.epoch = state["epoch"]
    batches, before = len(epochs.frozen_batches), state["batches_in_epoch"]
    done = position * workers
    if batches != before:
        done = done * batches // before
        logger.warning(
            "the epoch has %d batches, and had %d when the checkpoint was written "
            "(dataset.batch_size, the data or this package's version have changed): of "
            "epoch %d some sequences come again and others do not",
            batches,
            before,
            epochs.epoch,
        )
    elif workers != epochs.num_shards and (
        epochs.grouped_shuffling and state.get("shuffle", True)
    ):
        logger.warning(
            "dataset.grouped_shuffling orders the batches of an epoch by the number of "
            "workers, now %d and %d when the checkpoint was written: of epoch %d some "
            "sequences come again and others do not",
            epochs.num_shards,
            workers,
            epochs.epoch,
        )
    position, rest = divmod(done, epochs.num_shards)
    if workers != epochs.num_shards:
        logger.info(
            "%d workers resume where %d were: %d of %d batches of epoch %d are done%s",
            epochs.num_shards,
            workers,
            done - rest,
            batches,
            epochs.epoch,
            f" and {rest} come again" if rest else "",
        )
    epochs.load_state_dict({**state, "iterations_in_epoch": position})


def begin_with_whole_update(epochs, cfg) -> None:
    """Take the position in an epoch back to where an update of this run begins.

    fairseq groups what is left of the epoch by ``update_freq`` and counts from its
    start; where the position is no multiple, the epoch would never be at its end.

    Args:
        epochs: the iterator, at the position of a checkpoint.
        cfg: fairseq's whole configuration.
    """
    if getattr(epochs, "_next_epoch_itr", None) is None:
        return
    optimization, epoch = cfg.optimization, epochs.epoch
    update_freq = frequency(optimization, epoch)
    position, batches = epochs.iterations_in_epoch, len(epochs)
    rest = position % update_freq
    if getattr(optimization, "skip_remainder_batch", False):
        # the last batch is left out whatever its size, and then what fills no update
        batches = (batches - 1) // update_freq * update_freq
    if position - rest >= batches:
        logger.info("epoch %d has no whole update left: the next one begins", epoch)
        place = {"epoch": epoch + 1, "iterations_in_epoch": 0}
    elif rest:
        logger.info(
            "epoch %d: %d batches of each worker come again, so that an update of %d "
            "(optimization.update_freq) begins there",
            epoch,
            rest,
            update_freq,
        )
        place = {"epoch": epoch, "iterations_in_epoch": position - rest}
    else:
        return
    shuffle = place["epoch"] > cfg.dataset.curriculum
    epochs.load_state_dict({"version": 2, "shuffle": shuffle, **place})


def frequency(optimization, epoch: int) -> int:
    """Batches of a worker for an update of an epoch; the last entry holds on."""
    return optimization.update_freq[min(epoch, len(optimization.update_freq)) - 1]
