"""Where training begins: fairseq-train, Hydra, scripts and the runner all come by."""

from . import (
    binary_data,
    data_parallel,
    labelled_texts,
    loading,
    mixed_precision,
    resuming,
    setting_limits,
    stopping,
    training_log,
    workers,
)


def begin(load_checkpoint, cfg, trainer, **arguments):
    """Around checkpoint_utils.py, load_checkpoint: checks, then resume or start.

    Raises:
        ValueError: settings, data or the checkpoint are not what training can begin
            with; nothing has been changed.
    """
    stopping.note_signals()
    setting_limits.check_settings(trainer.cfg)
    binary_data.check_training_data(trainer)
    mixed_precision.check_precision(trainer.cfg.common, trainer.cuda)
    workers.limit_waiting(trainer)
    stopping.stop_before_training(cfg, trainer)
    if not cfg.no_save:
        trainer.training_data = workers.call_on_first_rank(
            trainer, loading.training_data, trainer
        )

    def load(cfg, trainer, **keywords):
        data_parallel.prepare(trainer)
        state, epochs = load_checkpoint(cfg, trainer, **keywords)
        labelled_texts.check_labelled(trainer.task)
        setting_limits.check_epoch(trainer.cfg, epochs)
        data_parallel.begin_with_whole_update(trainer, epochs)
        setting_limits.check_best_metric(trainer)
        return state, epochs

    return workers.report_lost_worker(
        lambda: resuming.load_checkpoint(load, cfg, trainer, **arguments), trainer
    )


def train_epoch(train, cfg, trainer, task, epoch_itr):
    """Around fairseq_cli/train.py, train."""
    with training_log.of_run(trainer):
        return workers.report_lost_worker(
            lambda: stopping.train_epoch(train, cfg, trainer, task, epoch_itr), trainer
        )
