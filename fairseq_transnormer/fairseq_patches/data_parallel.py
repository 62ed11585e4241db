"""Any number of workers trains alike: what fairseq's data parallelism lacks for that.

The batch of an update is counted and, if asked for, worked out; batches that only pad
the end of an epoch weigh nothing; a run resumes in the batches that it began with, with
any number of workers; torchrun can start workers without GPUs.
docs/distributed_training.md shows all of it.
"""

import logging
import os

from ..training.update_layout import check_shared_updates, set_update_layout

logger = logging.getLogger(__name__)



def prepare(trainer) -> None:
    """Check the device, and work out the batches of an update.

    Raises:
        ValueError: the device, or the sequences of an update, cannot be as asked for.
    """
    workers = trainer.data_parallel_world_size
    check_device(trainer.cfg.common, trainer.cuda)
    check_shared_updates(trainer.cfg, workers)
    set_update_layout(trainer.cfg, workers)
    # get_batch_iterator is given the sum of seed and epoch then
    trainer.task.adds_epoch_to_seed = trainer.cfg.dataset.update_ordered_indices_seed


def check_device(common, cuda: bool) -> None:
    """Raise ValueError where fairseq would train on a CPU that nobody asked for.

    Args:
        common: fairseq's configuration of that name.
        cuda: whether the model is on a GPU.
    """
    if not (cuda or common.cpu or common.tpu):
        raise ValueError(
            "common.cpu=false, and torch finds no GPU on this machine; allowed here: "
            "common.cpu=true (--cpu), which trains on the CPU"
        )


def drop_padding_batches(train_step, trainer, samples, *arguments, **keywords):
    """Around trainer.py, train_step, which ignores all of a worker's batches of an
    update if the last is padding: their gradients count then, and their tokens do not.

    Where each pass fetches the shards of the model, workers must make equally many.
    """
    if not trainer.is_fsdp:
        samples = [sample for sample in samples if sample] or samples[:1]
    return train_step(trainer, samples, *arguments, **keywords)


def save_world_size(state_dict, iterator):
    """Around data/iterators.py, state_dict: a position is that of a worker's share."""
    return {
        **state_dict(iterator),
        "workers": iterator.num_shards,
        "batches_in_epoch": len(iterator.frozen_batches),
    }


def rescale_epoch_position(load_state_dict, iterator, state):
    """Around load_state_dict: with another number of workers another position.

    An update takes the same batches, in whatever shares. With another batch size the
    batches are others, and the same part of the epoch counts as done; so it does with
    --grouped-shuffling, whose groups are of as many batches as there are workers.
    """
    position, workers = state.get("iterations_in_epoch", 0), state.get("workers")
    if not position or workers is None:
        return load_state_dict(iterator, state)
    iterator.epoch = state["epoch"]
    batches, before = len(iterator.frozen_batches), state["batches_in_epoch"]
    done = position * workers
    if batches != before:
        done = done * batches // before
        logger.warning(
            "the epoch has %d batches, and had %d when the checkpoint was written "
            "(dataset.batch_size, the data or this package's version have changed): of "
            "epoch %d some sequences come again and others do not",
            batches,
            before,
            iterator.epoch,
        )
    elif (
        workers != iterator.num_shards
        and iterator.grouped_shuffling
        and state.get("shuffle", True)
    ):
        logger.warning(
            "dataset.grouped_shuffling orders the batches of an epoch by the number of "
            "workers, now %d and %d when the checkpoint was written: of epoch %d some "
            "sequences come again and others do not",
            iterator.num_shards,
            workers,
            iterator.epoch,
        )
    position, rest = divmod(done, iterator.num_shards)
    if workers != iterator.num_shards:
        logger.info(
            "%d workers resume where %d were: %d of %d batches of epoch %d are done%s",
            iterator.num_shards,
            workers,
            done - rest,
            batches,
            iterator.epoch,
            f" and {rest} come again" if rest else "",
        )
    return load_state_dict(iterator, {**state, "iterations_in_epoch": position})


def keep_first_epoch_batches(
    get_batch_iterator,
    task,
    dataset,
    *arguments,
    epoch=1,
    disable_iterator_cache=False,
    update_epoch_batch_itr=False,
    **keywords,
):
    """Around tasks/fairseq_task.py, which makes batches once and keeps them.

    They are drawn by the epoch that a process begins with: a run that resumes in a
    later epoch would have others (with language_modeling), and its position in them
    would leave out some of the data and repeat some.
    """
    made_once = (
        not disable_iterator_cache
        and not update_epoch_batch_itr
        and not getattr(task.cfg, "rebuild_batches", False)
        and task.can_reuse_epoch_itr(dataset)
    )
    if made_once and getattr(task, "adds_epoch_to_seed", False):
        keywords["seed"] += 1 - epoch
    found = get_batch_iterator(
        task,
        dataset,
        *arguments,
        epoch=1 if made_once else epoch,
        disable_iterator_cache=disable_iterator_cache,
        update_epoch_batch_itr=update_epoch_batch_itr,
        **keywords,
    )
    if made_once and hasattr(dataset, "set_epoch"):
        # what is drawn anew for each epoch, as masks are
        dataset.set_epoch(epoch)
    return found


def load_each_epoch_anew(init, iterator, *arguments, **keywords):
    """Around data/iterators.py, EpochBatchIterator, which keeps a loader's processes.

    They have the dataset as it was in their first epoch: masks would be the same in
    all, and a run that resumes would have those of the epoch that it begins with.
    """
    anew = {"reuse_dataloader": False, "persistent_workers": False}
    return init(iterator, *arguments, **{**keywords, **anew})


def begin_with_whole_update(trainer, epochs) -> None:
    """Take the position in an epoch back to where an update of this run begins.

    fairseq groups what is left of the epoch by ``update_freq`` and counts from its
    start; where the position is no multiple, the epoch would never be at its end.

    Args:
        epochs: the iterator, after the checkpoint has been loaded.
    """
    if getattr(epochs, "_next_epoch_itr", None) is None:
        return
    optimization, epoch = trainer.cfg.optimization, epochs.epoch
    frequencies = optimization.update_freq
    update_freq = frequencies[min(epoch, len(frequencies)) - 1]
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
    shuffle = place["epoch"] > trainer.cfg.dataset.curriculum
    epochs.load_state_dict({"version": 2, "shuffle": shuffle, **place})


def infer_torchrun_on_cpus(infer, training):
    """Around distributed/utils.py, which divides by the number of GPUs."""
    import torch

    if torch.cuda.device_count():
        return infer(training)
    training.distributed_init_method = "env://"
    training.distributed_world_size = int(os.environ["WORLD_SIZE"])
    training.distributed_rank = int(os.environ["RANK"])
    training.device_id = 0
    training.distributed_no_spawn = True


def infer_slurm_in_batch_script(infer, training, pipelines_of_a_node):
    """Around distributed/utils.py, which asks Slurm how many tasks a job has.

    A script of sbatch that asks for none is no task, and has this node's GPUs.
    """
    asked_for = {"SLURM_NTASKS", "SLURM_NTASKS_PER_NODE"} & os.environ.keys()
    if not asked_for and training.distributed_port <= 0:
        return False
    return infer(training, pipelines_of_a_node)
