"""What can be made to happen to a training process, from inside, at a given update.

Loaded by the process that the trainings are forked off.
"""

import multiprocessing
import os
import signal
import time
from pathlib import Path

import torch

WAITING = "ACCIDENT: waiting"


def before_update(number, action):
    """Call ``action(trainer)`` once, before update ``number`` is computed."""
    from fairseq.trainer import Trainer

    original = Trainer.train_step

    def train_step(trainer, *arguments, **keywords):
        if trainer.get_num_updates() == number - 1:
            action(trainer)
        return original(trainer, *arguments, **keywords)

    Trainer.train_step = train_step


def replaced_before(number: int, old: str, new: str) -> None:
    """Files of a folder take the place of those in another."""

    def replace(trainer):
        for path in Path(new).iterdir():
            os.replace(path, Path(old) / path.name)

    before_update(number, replace)


def wait_before(number: int, gate: str) -> None:
    """Stand still before an update until the file ``gate`` is there."""

    def stand_still(trainer):
        print(WAITING, flush=True)
        while not Path(gate).exists():
            time.sleep(0.01)

    before_update(number, stand_still)


def signalled_in_setup(number: int) -> None:
    """A signal when the checkpoint is loaded and the data are looked at."""
    from fairseq.trainer import Trainer

    original = Trainer.get_train_iterator

    def get_train_iterator(trainer, *arguments, **keywords):
        os.killpg(0, number)
        return original(trainer, *arguments, **keywords)

    Trainer.get_train_iterator = get_train_iterator


def signalled_between_epochs(number: int) -> None:
    """A signal when an epoch's last update is done and validated."""
    from fairseq.trainer import Trainer

    original, calls = Trainer.lr_step, []

    def lr_step(trainer, epoch, val_loss=None):
        if val_loss is not None and not calls:
            calls.append(epoch)
            os.killpg(0, number)
        return original(trainer, epoch, val_loss)

    Trainer.lr_step = lr_step


def start_loaders_by(method: str) -> None:
    """No accident: "spawn" is what loaders are where fairseq has started workers."""
    multiprocessing.set_start_method(method, force=True)


def killed_at_the_start() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def signalled_before(update: int, number: int) -> None:
    """A signal before an update, to all processes of a worker, as Slurm sends it."""
    before_update(update, lambda trainer: os.killpg(0, number))


def killed_in_validation(update: int) -> None:
    """kill -9 in the validation after an update that a signal came to."""
    from fairseq_transnormer.training import main

    original = main._Run.validate

    def validate(run, epochs):
        if run.trainer.get_num_updates() == update:
            os.kill(os.getpid(), signal.SIGKILL)
        return original(run, epochs)

    main._Run.validate = validate
    signalled_before(update, signal.SIGTERM)


def killed_while_writing(name: str, number: int) -> None:
    """kill -9 when half of the bytes of the ``number``-th file ``name`` are written."""
    from fairseq_transnormer.data import whole_files

    write_whole, seen = whole_files.write_whole, []

    class Half:
        def __init__(self, file):
            self.file, self.left = file, 100_000

        def write(self, content):
            written = self.file.write(memoryview(content)[: self.left])
            self.left -= written
            if not self.left:
                self.file.flush()
                os.kill(os.getpid(), signal.SIGKILL)
            return written

        def __getattr__(self, attribute):
            return getattr(self.file, attribute)

    def write_half(target, write):
        if os.path.basename(target) == name:
            seen.append(target)
            if len(seen) == number:
                return write_whole(target, lambda file: write(Half(file)))
        return write_whole(target, write)

    from fairseq_transnormer.checkpoints import files

    whole_files.write_whole = files.write_whole = write_half


def loss_is_nan(number: int, updates: int = 1) -> None:
    """The loss of this update, and of the next ones, is NaN; so are its gradients."""
    from fairseq.criterions.cross_entropy import CrossEntropyCriterion
    from fairseq.trainer import Trainer

    original, train_step = CrossEntropyCriterion.compute_loss, Trainer.train_step
    calls = []

    def compute_loss(self, *arguments, **keywords):
        loss, other = original(self, *arguments, **keywords)
        return (loss * float("nan") if self.training and calls else loss), other

    def counted(trainer, *arguments, **keywords):
        if trainer.get_num_updates() >= number - 1 and len(calls) < updates:
            calls.append(None)
            return train_step(trainer, *arguments, **keywords)
        calls.clear()
        return train_step(trainer, *arguments, **keywords)

    CrossEntropyCriterion.compute_loss = compute_loss
    Trainer.train_step = counted


def weights_become_nan(number: int) -> None:
    """As an optimiser's step may leave them, with gradients that are finite."""

    def spoil(trainer):
        step = trainer.optimizer.step

        def spoiled(*arguments, **keywords):
            step(*arguments, **keywords)
            with torch.no_grad():
                next(trainer.get_model().parameters()).fill_(float("nan"))

        trainer.optimizer.step = spoiled

    before_update(number, spoil)


def no_limit_on_waiting() -> None:
    """The process group's timeout does not hold."""
    from fairseq_transnormer.training import workers

    workers.limit_waiting = lambda trainer: None


def validations_are(losses: dict[int, float]) -> None:
    """The loss of each validation, by its update."""
    from fairseq_transnormer.training import main

    def validate(run, epochs):
        return losses[run.trainer.get_num_updates()]

    main._Run.validate = validate
