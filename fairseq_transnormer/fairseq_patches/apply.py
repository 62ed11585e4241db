"""All that changes fairseq, in one table: which function, by what, and why.

``apply`` works the table off once, before the models are registered; nothing else in
this package changes fairseq, torch or numpy. Rows of one function lie around each
other, the last one outermost.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from ..checkpoints import safe_loading
from . import (
    batches,
    binary_data,
    command_help,
    compatibility,
    data_parallel,
    labelled_texts,
    literal_values,
    loading,
    mixed_precision,
    model_archives,
    output_loss,
    saving,
    setting_changes,
    setting_limits,
    stopping,
    training_log,
    training_start,
    training_state,
    whole_words,
    workers,
)


class Patch(NamedTuple):
    """A function that does something of ours around what it does.

    Attributes:
        owner: the module or class that has it.
        name: of the function, method or static method.
        around: takes the original and its arguments.
        why: what fairseq does without it.
    """

    owner: str
    name: str
    around: Callable
    why: str


def begin_training(load_checkpoint, cfg, trainer, **arguments):
    """Around ``load_checkpoint``, with which training begins: the second table."""
    for patch in AT_TRAINING_START:
        for owner in _owners_in_training(patch.owner, trainer):
            wrap(owner, patch.name, patch.around)
    return training_start.begin(load_checkpoint, cfg, trainer, **arguments)


CHECKPOINTS = "fairseq.checkpoint_utils"
DISTRIBUTED = "fairseq.distributed.utils"
EPOCHS = "fairseq.data.iterators.EpochBatchIterator"
TASK = "fairseq.tasks.fairseq_task.FairseqTask"
HALF = "fairseq.optim.fp16_optimizer._FP16OptimizerMixin"
HALF_ALONE = "fairseq.optim.fp16_optimizer._MemoryEfficientFP16OptimizerMixin"
AMP = "fairseq.optim.amp_optimizer.AMPOptimizer"
PLATEAU = "fairseq.optim.lr_scheduler.reduce_lr_on_plateau.ReduceLROnPlateauLRSchedule"

AT_IMPORT = (
    # commands and configurations
    Patch(
        "fairseq.options", "parse_args_and_arch", compatibility.train_bf16_without_tpu,
        "--bf16 asks for torch_xla on every machine",
    ),
    Patch(
        "fairseq.options", "parse_args_and_arch", command_help.parse_or_show_all,
        "--help ends before the options of model, task and criterion are there",
    ),
    Patch(
        "hydra._internal.config_repository.CachingConfigRepository", "__init__",
        compatibility.share_config_store,
        "each composition copies every setting that fairseq has ever registered",
    ),
    Patch(
        DISTRIBUTED, "call_main", stopping.call_main,
        "a signal ends the process that has started the workers before they can save",
    ),
    Patch(
        DISTRIBUTED, "call_main", setting_limits.check_settings_and_call,
        "settings without sense are found out late, or never",
    ),
    Patch(
        "fairseq.tasks", "setup_task", setting_limits.check_task_and_set_up,
        "fairseq-hydra-train imports this package after call_main",
    ),
    # distributed training
    Patch(
        DISTRIBUTED, "_infer_torch_distributed_launch_init",
        data_parallel.infer_torchrun_on_cpus,
        "torchrun without GPUs: a division by their number",
    ),
    Patch(
        DISTRIBUTED, "_infer_slurm_init", data_parallel.infer_slurm_in_batch_script,
        "a batch script of one process asks Slurm for tasks that it has not",
    ),
    Patch(
        DISTRIBUTED, "distributed_init", workers.limit_rendezvous,
        "a worker that dies before the group is formed is waited for half an hour",
    ),
    # data
    Patch(
        "fairseq.data.indexed_dataset.MMapIndexedDataset", "_do_init",
        binary_data.check_index_and_open,
        "a damaged index is met where a batch has it, days later maybe",
    ),
    Patch(
        "fairseq.data.dictionary.Dictionary", "add_from_file",
        binary_data.note_dictionary_file,
        "messages about token ids name the file of the dictionary",
    ),
    Patch(
        "fairseq.data.data_utils", "load_indexed_dataset",
        binary_data.check_ids_and_load,
        "a token id beyond the dictionary is met where a batch has it",
    ),
    Patch(
        "fairseq.tasks", "setup_task", labelled_texts.check_folder_and_set_up,
        "scores that are read as classes miss label/dict.txt, and no more is said",
    ),
    Patch(
        "fairseq.tasks.sentence_prediction.SentencePredictionTask", "load_dataset",
        labelled_texts.check_labels_and_load,
        "a score that is NaN trains; a word among them is told without its file",
    ),
    Patch(
        "fairseq.tasks.masked_lm.MaskedLMTask", "load_dataset",
        whole_words.find_units_and_load,
        "--mask-whole-words ends with an AttributeError",
    ),
    Patch(
        "fairseq.data.fasta_dataset.FastaDataset", "_build_index",
        binary_data.check_name_for_shell,
        "the name of a file is part of a shell's command",
    ),
    Patch(
        "fairseq.data.data_utils", "batch_by_size", batches.keep_last_batch,
        "the last batch of every split is dropped if it is no multiple of 8",
    ),
    Patch(
        TASK, "get_batch_iterator", data_parallel.keep_first_epoch_batches,
        "a run that resumes in a later epoch draws other batches",
    ),
    Patch(
        TASK, "get_batch_iterator", setting_limits.check_batch_limits,
        "a batch size of 0 or less takes a whole split at once",
    ),
    Patch(
        "fairseq.tasks.fairseq_task.FairseqTask", "filter_indices_by_size",
        setting_limits.check_left_out,
        "blocks that are all longer than the model's positions are left out",
    ),
    Patch(
        EPOCHS, "state_dict", data_parallel.save_world_size,
        "a position in an epoch is that of one worker's share",
    ),
    Patch(
        EPOCHS, "__init__", data_parallel.load_each_epoch_anew,
        "processes of the first epoch load all: masks of a later one are not drawn",
    ),
    Patch(
        EPOCHS, "load_state_dict", data_parallel.rescale_epoch_position,
        "with another world size the position is another one",
    ),
    Patch(
        "torch.utils.data.dataloader._MultiProcessingDataLoaderIter", "__init__",
        stopping.start_loaders,
        "data workers take the signal that their trainer waits for",
    ),
    # models
    Patch(
        "fairseq.models.fairseq_model.FairseqLanguageModel", "forward",
        output_loss.forward_language_model,
        "the loss is made of all logits, outside of the model",
    ),
    Patch(
        "fairseq.models.roberta.model.RobertaModel", "forward",
        output_loss.forward_roberta,
        "the loss is made of all logits, outside of the model",
    ),
    Patch(
        "fairseq.criterions.adaptive_loss.AdaptiveLoss", "forward",
        output_loss.adaptive_loss,
        "a model without an adaptive softmax ends with an assertion that says nothing",
    ),
    # logs
    Patch(
        "fairseq.logging.progress_bar", "progress_bar", training_log.record_and_show,
        "records are only where --log-format has them; the bar is of an epoch",
    ),
    # checkpoints
    Patch(
        CHECKPOINTS, "load_checkpoint_to_cpu", loading.check_and_load,
        "torch refuses fairseq's own objects; settings are evaluated as Python",
    ),
    Patch(
        CHECKPOINTS, "load_model_ensemble_and_task", loading.check_loaded_models,
        "another dictionary of equal size passes",
    ),
    Patch(
        "fairseq.file_utils", "load_archive_file", model_archives.load_archive,
        "archives are unpacked without a filter, then removed",
    ),
    Patch(
        CHECKPOINTS, "load_checkpoint", begin_training,
        "training begins here: checks, resuming, and the table below",
    ),
    Patch(
        CHECKPOINTS, "save_checkpoint", saving.save_all_asked_for,
        "a checkpoint at an epoch's end, or of the N best, is left out",
    ),
    Patch(
        CHECKPOINTS, "save_checkpoint", stopping.note_saving,
        "a signal while a checkpoint is written",
    ),
    Patch(
        CHECKPOINTS, "save_checkpoint", saving.check_finite_loss,
        "after a validation that is NaN, any is the best",
    ),
    Patch(
        CHECKPOINTS, "checkpoint_paths", saving.find_negative_scores,
        "the best checkpoints by a negative correlation are all kept",
    ),
    Patch(
        CHECKPOINTS, "torch_persistent_save", saving.save_whole,
        "a full disk or a kill leaves half a checkpoint",
    ),
    Patch(
        "fairseq.file_io.PathManager", "copy", saving.copy_over,
        "a kill leaves half of checkpoint_last.pt",
    ),
    *(
        Patch(owner, name, around, "the loss scaler's counters are not saved")
        for owner in (HALF, HALF_ALONE)
        for name, around in (
            ("state_dict", mixed_precision.save_loss_scaler),
            ("load_state_dict", mixed_precision.load_loss_scaler),
        )
    ),
    *(
        Patch(AMP, name, around, "--amp begins with its first loss scale at each start")
        for name, around in (
            ("state_dict", mixed_precision.save_amp_scaler),
            ("load_state_dict", mixed_precision.load_amp_scaler),
        )
    ),
    Patch(
        HALF, "state_dict", mixed_precision.save_fp32_weights,
        "the weights that the optimizer updates are made anew of rounded ones",
    ),
    Patch(
        HALF, "load_state_dict", mixed_precision.load_fp32_weights,
        "and rounded ones are loaded"
    ),
    Patch(
        "fairseq.models.ema.ema.EMA", "_step_internal",
        training_state.average_each_once,
        "tied weights are averaged with the square of the decay, integers end it",
    ),
    Patch(
        "fairseq.models.ema.ema.EMA", "restore", training_state.restore_with_versions,
        "the average of fairseq's transformer_lm loses the last LayerNorm",
    ),
    Patch(
        PLATEAU, "state_dict", training_state.save_plateau_counters,
        "for how long there has been no better loss is not saved",
    ),
    Patch(
        PLATEAU, "load_state_dict", training_state.load_plateau_counters,
        "and begins anew"
    ),
)  # fmt: skip

# classes that training has made by then: a trainer's, and the program's of the command
TRAINER = "fairseq.trainer.Trainer"
PROGRAM = "fairseq_cli.train"
AT_TRAINING_START = (
    Patch(
        TRAINER, "state_dict", loading.save_identity,
        "checkpoints do not name their dictionary and data",
    ),
    Patch(
        TRAINER, "load_checkpoint", setting_changes.check_and_load,
        "another model, other settings or a missing file pass, or fail late",
    ),
    Patch(
        TRAINER, "get_valid_iterator", batches.validate_apart_from_training,
        "a validation on the training data ends the epoch that it interrupts",
    ),
    Patch(
        TRAINER, "_prepare_sample", batches.look_and_prepare,
        "a look at a batch on the GPU, or its copy there, waits for the GPU",
    ),
    Patch(
        TRAINER, "train_step", mixed_precision.skip_overflows_on_cpu,
        "fp16 on a CPU ends at the first overflow",
    ),
    Patch(
        TRAINER, "train_step", data_parallel.drop_padding_batches,
        "an update whose last batch is padding loses its other batches' tokens",
    ),
    Patch(
        TRAINER, "save_checkpoint", saving.check_finite_weights,
        "weights that are NaN overwrite the last good checkpoint",
    ),
    Patch(
        TRAINER, "save_checkpoint", training_state.save_training_state,
        "--patience and the EMA's counter begin anew at each start",
    ),
    Patch(
        PROGRAM, "validate_and_save", stopping.validate_and_save,
        "a signal is acted on nowhere",
    ),
    Patch(
        PROGRAM, "train", training_start.train_epoch,
        "a worker that is lost leaves the others waiting",
    ),
)  # fmt: skip


def apply() -> None:
    """Work the first table off; asked again, nothing changes."""
    safe_loading.allow_fairseq_objects()
    compatibility.restore_numpy_compat()
    literal_values.install()
    workers.install_heartbeat()
    for patch in AT_IMPORT:
        wrap(resolve(patch.owner), patch.name, patch.around)


def resolve(owner: str) -> Any:
    """The module or class of a dotted name."""
    module, _, name = owner.rpartition(".")
    if name[:1].isupper() or name.startswith("_"):
        return getattr(importlib.import_module(module), name)
    return importlib.import_module(owner)


def wrap(owner: Any, name: str, around: Callable) -> None:
    """Make ``owner.name(...)`` call ``around(original, ...)``; once, if asked again.

    Args:
        owner: a module or a class that has ``name``.
        name: of a function, a method or a static method.
        around: takes the original and the arguments.
    """
    original = getattr(owner, name)
    there = getattr(original, "wrapped_in", ())
    if around in there:
        return

    @functools.wraps(original)
    def wrapped(*arguments, **keywords):
        return around(original, *arguments, **keywords)

    wrapped.wrapped_in = (*there, around)
    is_static = isinstance(vars(owner).get(name), staticmethod)
    setattr(owner, name, staticmethod(wrapped) if is_static else wrapped)


def _owners_in_training(owner: str, trainer) -> Iterator[Any]:
    """What a name of the second table stands for in this process."""
    if owner == TRAINER:
        yield type(trainer)
    else:
        yield from training_state.training_programs()
