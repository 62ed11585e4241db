"""Places in an epoch: the same batches for any number of workers, before and after.

fairseq's position counts the batches of one worker's share.
"""

import logging
from typing import Any

from fairseq.data.iterators import EpochBatchIterator

logger = logging.getLogger(__name__)


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

    With another batch size the same part of the epoch counts as done; so it does with
    --grouped-shuffling, whose groups are of as many batches as there are workers. A
    ``state`` of fairseq is for as many workers as there are.
    """
    position, before = state.get("iterations_in_epoch", 0), state.get("workers")
    if not position or before is None:
        epochs.load_state_dict(state)
        return
    epochs.epoch = state["epoch"]
    batches, workers = len(epochs.frozen_batches), epochs.num_shards
    done, changed = position * before, None
    if batches != state["batches_in_epoch"]:
        done = done * batches // state["batches_in_epoch"]
        changed = (
            f"the epoch has {batches} batches, and had {state['batches_in_epoch']} "
            "(dataset.batch_size, the data or this package's version have changed)"
        )
    elif workers != before and epochs.grouped_shuffling and state.get("shuffle", True):
        changed = (
            "dataset.grouped_shuffling orders batches by the number of workers, now "
            f"{workers} and {before} when the checkpoint was written"
        )
    if changed:
        again = f"of epoch {epochs.epoch} some sequences come again and others do not"
        logger.warning("%s: %s", changed, again)
    position, rest = divmod(done, workers)
    if workers != before:
        logger.info(
            f"{workers} workers resume where {before} were: {done - rest} of {batches} "
            f"batches of epoch {epochs.epoch} are done; {rest} come again"
        )
    epochs.load_state_dict({**state, "iterations_in_epoch": position})


def begin_with_whole_update(epochs, cfg) -> None:
    """Take the position in an epoch back to where an update of this run begins.

    fairseq groups what is left of the epoch by ``update_freq`` and counts from its
    start; where the position is no multiple, the epoch would never be at its end.
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
    position -= rest
    if position >= batches:
        logger.info("epoch %d has no whole update left: the next one begins", epoch)
        epoch, position = epoch + 1, 0
    elif rest:
        logger.info(
            f"epoch {epoch}: {rest} batches of each worker come again, so that an "
            f"update of optimization.update_freq={update_freq} begins there"
        )
    else:
        return
    place = {"epoch": epoch, "iterations_in_epoch": position, "version": 2}
    epochs.load_state_dict({**place, "shuffle": epoch > cfg.dataset.curriculum})


def frequency(optimization, epoch: int) -> int:
    """Batches of a worker for an update of an epoch; the last entry holds on."""
    return optimization.update_freq[min(epoch, len(optimization.update_freq)) - 1]
