"""fairseq's ``Trainer``, extended to resume a run bit for bit."""

import logging
import os
import socket
from types import SimpleNamespace
from typing import Any

import torch
from fairseq import trainer as fairseq_trainer
from fairseq import utils
from fairseq.distributed.utils import get_global_rank
from fairseq.logging import meters, metrics
from fairseq.models.ema.ema import EMA
from torch import Tensor
from torch.optim.lr_scheduler import ReduceLROnPlateau

from ..checkpoints.files import write_checkpoint
from ..checkpoints.identity import DATA_KEY
from ..plugin.loading import identity, training_data
from . import positions, precision
from .same_run import check_checkpoint, check_workers
from .workers import Heartbeat, call_on_first_rank, of_all_workers

logger = logging.getLogger(__name__)

CRASH = "crash.pt"  # written by fairseq's train_step after an error
# in the extra_state of a checkpoint
EMA_COUNTER = "ema_update_freq_counter"
# in the state of reduce_lr_on_plateau: torch's scheduler
PLATEAU_FIELDS = ("num_bad_epochs", "cooldown_counter")
# of an optimizer's group of weights, what stays as it was saved: the last rate of nag;
# whether adafactor has a first moment
KEPT = ("params", "lr", "lr_old", "beta1")


class Trainer(fairseq_trainer.Trainer):
    """fairseq's trainer, for one task, model and criterion."""

    # the training split, opened again for validation
    _validated_training_data = None

    def name_data(self) -> None:
        """Compute the data's fingerprint before training opens them, once a machine.

        Raises:
            ValueError: the training split has changed since the first call.
        """
        before = vars(self).pop("training_data", None)
        place = socket.gethostname(), os.getcwd(), getattr(self.cfg.task, "data", None)
        first = of_all_workers(place).index(place)
        reads = get_global_rank() == first
        found = of_all_workers(training_data(self) if reads else None)
        self.training_data = found[first]
        check_workers(self.cfg, self.training_data)
        if before and before.get(DATA_KEY) != self.training_data.get(DATA_KEY):
            raise ValueError(
                f"{place[-1]}: the training data have changed since training began; "
                "allowed: the same files, with which the same command resumes"
            )

    # batches

    def get_train_iterator(
        self, epoch, load_dataset=True, disable_iterator_cache=False
    ):
        """The batches of an epoch, always drawn as for the first epoch.

        fairseq draws them (with language_modeling) by the first epoch of a process.
        """
        name = self.cfg.dataset.train_subset
        if load_dataset:
            logger.info("loading train data for epoch %d", epoch)
            if name in self.task.datasets:  # the next of several folders
                self.name_data()
            self.task.load_dataset(
                name, epoch=epoch, combine=True, data_selector=None, tpu=self.tpu
            )
        dataset = self.task.dataset(name)
        once = (  # by fairseq's task
            not disable_iterator_cache
            and not getattr(self.cfg.dataset, "update_epoch_batch_itr", False)
            and not getattr(self.task.cfg, "rebuild_batches", False)
            and self.task.can_reuse_epoch_itr(dataset)
        )
        epochs = super().get_train_iterator(
            1 if once else epoch,
            load_dataset=False,
            disable_iterator_cache=disable_iterator_cache,
        )
        if once and hasattr(dataset, "set_epoch"):
            dataset.set_epoch(epoch)  # for draws of each epoch, such as masks
        positions.load_each_epoch_anew(epochs)
        return epochs

    def get_valid_iterator(self, subset):
        """The batches of a split for validation.

        A split that also trains is opened twice. fairseq keeps one iterator per
        dataset, so a validation on training data would end the epoch.
        """
        datasets = self.task.datasets
        training = datasets.get(subset)
        if subset == self.cfg.dataset.train_subset:
            if self._validated_training_data is None:
                self.task.load_dataset(subset, combine=False, epoch=1)
                self._validated_training_data = datasets[subset]
            datasets[subset] = self._validated_training_data
        epochs = super().get_valid_iterator(subset)
        datasets[subset] = training
        positions.load_each_epoch_anew(epochs)
        return epochs

    def _prepare_sample(self, sample, is_dummy=False):
        """Call a criterion's ``look_at_batch(sample)`` while the batch is on the host.

        So nothing waits for the GPU; nor does the copy from pinned memory.
        """
        if isinstance(sample, dict) and sample:
            look = getattr(self.get_criterion(), "look_at_batch", None)
            if look is not None:
                sample = {**sample, **look(sample)}
            if self.cuda:
                sample = utils.apply_to_sample(_pinned, sample)
        return super()._prepare_sample(sample, is_dummy)

    def train_step(self, samples, raise_oom=False):
        """Drop batches that only pad an update.

        fairseq would count the gradients of a worker's other batches, but not their
        tokens. FSDP keeps them: its workers need equally many passes to fetch shards.
        """
        if not self.is_fsdp:
            samples = [sample for sample in samples if sample] or samples[:1]
        return super().train_step(samples, raise_oom)

    # objects made once

    @property
    def model(self):
        if self._wrapped_model is None:
            training = self.cfg.distributed_training
            seconds, training.heartbeat_timeout = training.heartbeat_timeout, -1
            wrapped, training.heartbeat_timeout = super().model, seconds
            if self.use_distributed_wrapper and seconds > 0:
                self._wrapped_model = Heartbeat(wrapped, seconds)
        return self._wrapped_model

    def _build_optimizer(self) -> None:
        super()._build_optimizer()
        precision.adopt(self._optimizer)
        self._settings = [
            {key: x for key, x in group.items() if key not in KEPT}
            for group in self._optimizer.param_groups
        ]

    def _build_ema(self) -> None:
        if self.cfg.ema.store_ema:
            self._ema = Average(self._model, self.cfg.ema, self.device)

    # checkpoints

    def state_dict(self) -> dict[str, Any]:
        """fairseq's state with its missing parts, and the identity of the data."""
        state = super().state_dict()
        state["optimizer_history"][-1]["lr_scheduler_state"] |= self.plateau_state()
        if self.cfg.ema.store_ema:
            state["extra_state"][EMA_COUNTER] = self.ema.update_freq_counter
        state["extra_state"].update(identity(self))
        return state

    def save_checkpoint(self, filename, extra_state):
        """Write a complete checkpoint, or none.

        Raises:
            FloatingPointError: weights are NaN or infinite.
            OSError: the disk is full.
        """
        crashed = os.path.basename(filename) == CRASH
        if not crashed:
            self._check_weights(filename)
        if not self.should_save_checkpoint_on_current_rank:
            return None
        state = utils.move_to_cpu(self.state_dict())
        state["extra_state"].update(extra_state)
        try:
            write_checkpoint(filename, state)
        except OSError as error:
            if not crashed:
                raise
            logger.error(error.strerror)  # the original error follows
        return os.path.abspath(filename)

    def _check_weights(self, filename: str) -> None:
        names, weights = zip(*self.get_model().named_parameters(), strict=True)
        finite = torch.stack([each.detach().isfinite().all() for each in weights])
        if not finite.all():
            name = names[int((~finite).nonzero()[0])]
            raise FloatingPointError(
                f"weights are NaN or infinite after update {self.get_num_updates()}, "
                f"{name} first; {filename} is not written, and earlier checkpoints stay"
            )

    def load_checkpoint(
        self, filename, reset_optimizer, reset_lr_scheduler, overrides, reset_meters
    ):
        """Check a checkpoint, then load it; see ``same_run.check_checkpoint``.

        Raises:
            ValueError: it is not of this training.
        """
        begins_average = call_on_first_rank(
            self, check_checkpoint, self, filename, reset_optimizer
        )
        # fairseq would begin an average with weights that it no longer has
        self.cfg.ema.store_ema &= not begins_average
        extra_state = super().load_checkpoint(
            filename, reset_optimizer, reset_lr_scheduler, overrides, reset_meters
        )
        if extra_state and "metrics" in extra_state and not reset_meters:
            if extra_state["train_iterator"]["iterations_in_epoch"] == 0:
                # fairseq forgets those of train_inner with the epoch's
                metrics.load_state_dict(extra_state["metrics"])
                metrics.reset_meters("train")
                for meter in metrics.get_meters("default"):
                    if isinstance(meter, meters.TimeMeter):
                        meter.reset()
        if begins_average:
            self.cfg.ema.store_ema = True
            self._build_ema()
        if extra_state and self._optim_history and not reset_optimizer:
            # the loaded state has brought those of the checkpoint
            groups = self.optimizer.param_groups
            for group, own in zip(groups, self._settings, strict=True):
                group.update({key: overrides.get(key, x) for key, x in own.items()})
            if not reset_lr_scheduler:
                self.load_plateau(self._optim_history[-1]["lr_scheduler_state"])
            if self.cfg.ema.store_ema and not reset_meters:
                self.ema.update_freq_counter = extra_state.get(EMA_COUNTER, 0)
        return extra_state

    def plateau_state(self) -> dict[str, Any]:
        """The state of reduce_lr_on_plateau: the best loss, and the epochs since."""
        plateau = self._plateau()
        return {each: getattr(plateau, each) for each in PLATEAU_FIELDS if plateau}

    def load_plateau(self, state: dict[str, Any]) -> None:
        """Load the result of ``plateau_state``, if the schedule is of this kind."""
        if plateau := self._plateau():
            vars(plateau).update({k: state[k] for k in PLATEAU_FIELDS if k in state})

    def forget_validations(self) -> None:
        """Reset the schedule's best loss, which is of another figure."""
        if plateau := self._plateau():
            plateau._reset()

    def _plateau(self) -> ReduceLROnPlateau | None:
        found = getattr(self.lr_scheduler, "lr_scheduler", None)
        return found if isinstance(found, ReduceLROnPlateau) else None


class Average(EMA):
    """fairseq's moving average, with tied weights and integers handled."""

    def _step_internal(self, new_model, updates=None):
        """Average each tensor once.

        Tied weights have two names; fairseq averages them twice, with the square of the
        decay. Integers, such as Informer's draws, are copied from the model.
        """
        averages = self.fp32_params if self.config.ema_fp32 else self.model.state_dict()
        first_names = {}
        for name, average in averages.items():
            if not isinstance(average, dict):  # fairseq skips these
                first_names.setdefault((average.data_ptr(), average.shape), name)
        repeated = averages.keys() - set(first_names.values())
        once = {k: x for k, x in new_model.state_dict().items() if k not in repeated}
        tensors = {k: x for k, x in once.items() if not isinstance(x, dict)}
        self.skip_keys = {*self.skip_keys} | {
            k
            for k, x in tensors.items()
            if not (x.is_floating_point() or x.is_complex())
        }
        super()._step_internal(SimpleNamespace(state_dict=lambda: once), updates)

    def restore(self, state_dict, build_fp32_params=False):
        """Load an average, which has no ``version``.

        fairseq's transformer takes weights without a version for old ones, without a
        LayerNorm after the last layer.
        """
        own = self.model.state_dict().items()
        versions = {name: x for name, x in own if "version" in name}
        super().restore({**versions, **state_dict}, build_fp32_params)


def _pinned(tensor: Tensor) -> Tensor:
    return tensor if tensor.is_cuda or not tensor.numel() else tensor.pin_memory()
