"""Positions in an epoch that stay valid when the number of workers changes.

fairseq's position counts the batches of one worker.
"""

import logging
from typing import Any

from fairseq.data.iterators import EpochBatchIterator

logger = logging.getLogger(__name__)


def load_each_epoch_anew(epochs) -> None:
    """Start new loader processes in each epoch.

    fairseq's loaders keep the dataset of their first epoch. So all epochs would have
    the same masks, and other masks after resuming.
    """
    epochs.reuse_dataloader = epochs.persistent_workers = False


def state_of(epochs) -> dict[str, Any]:
    """fairseq's position, with the numbers of workers and batches."""
    state = epochs.state_dict()
    if not isinstance(epochs, EpochBatchIterator):  # streamed data
        return state
    batches = len(epochs.frozen_batches)
    return {**state, "workers": epochs.num_shards, "batches_in_epoch": batches}


def restore(epochs, state: dict[str, Any]) -> None:
    """Go to a position that was saved with any number of workers.

    With another batch size the same fraction of the epoch counts as done. So it does
    with --grouped-shuffling, whose groups have one batch per worker. A ``state`` of
    fairseq is read as one of the current number of workers.
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
            "(dataset.batch_size, the data or this package's version has changed)"
        )
    elif workers != before and epochs.grouped_shuffling and state.get("shuffle", True):
        changed = (
            "dataset.grouped_shuffling orders batches by the number of workers, now "
            f"{workers} and {before} when the checkpoint was written"
        )
    if changed:
        again = f"epoch {epochs.epoch} may repeat some sequences and skip others"
        logger.warning("%s: %s", changed, again)
    position, rest = divmod(done, workers)
    if workers != before:
        logger.info(
            f"{workers} workers resume where {before} were: {done - rest} of {batches} "
            f"batches of epoch {epochs.epoch} are done; {rest} come again"
        )
    epochs.load_state_dict({**state, "iterations_in_epoch": position})


def begin_with_whole_update(epochs, cfg) -> None:
    """Move the position in an epoch back to the start of an update of this run.

    fairseq groups the rest of the epoch by ``update_freq``, but counts from its start.
    If the position is not a multiple, the epoch would never end. Without a full update
    left, the position is the start of the next epoch.
    """
    if getattr(epochs, "_next_epoch_itr", None) is None:
        return
    optimization, epoch = cfg.optimization, epochs.epoch
    update_freq = frequency(optimization, epoch)
    position, batches = epochs.iterations_in_epoch, len(epochs)
    rest = position % update_freq
    if getattr(optimization, "skip_remainder_batch", False):
        # the last batch is always dropped, then batches that do not fill an update
        batches = (batches - 1) // update_freq * update_freq
    position -= rest
    if position >= batches:
        logger.info("epoch %d has no full update left: the next one begins", epoch)
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
    """Batches per worker and update in an epoch; the last entry counts for the rest."""
    return optimization.update_freq[min(epoch, len(optimization.update_freq)) - 1]
