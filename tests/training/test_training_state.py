"""What decides when training stops, or its rate shrinks, survives a kill."""

import signal
import types

import pytest
import torch
from fairseq.dataclass.configs import CheckpointConfig, EMAConfig
from fairseq.models import MODEL_DATACLASS_REGISTRY
from fairseq.optim.lr_scheduler import reduce_lr_on_plateau

from fairseq_transnormer.modules import EncoderConfig
from fairseq_transnormer.modules.baselines.informer import InformerAttention
from fairseq_transnormer.training.checkpointer import Checkpointer
from fairseq_transnormer.training.start import Start
from fairseq_transnormer.training.trainer import Average, Trainer
from tests.forked_trainings import Call
from tests.models.building import draw_tokens
from tests.models.fairseq_transformers import fairseq_model

from .trainings import ACCIDENTS, Training, line_with

# of validations after each third update: the second one is the best
LOSSES = dict(zip(range(3, 18, 3), [5.0, 4.0, 4.5, 4.2, 4.1], strict=True))


@pytest.mark.parametrize("killed_before", [8, 15])
def test_patience_counts_on(training, killed_before):
    """Through a kill after the best one, or before the last of three that are none."""
    run = training(patience=3, max_update=30, batch_size=2)
    run.before = lambda rank: [
        Call(ACCIDENTS, "validations_are", (LOSSES,)), *Training.before(run, rank)
    ]  # fmt: skip
    codes = run.run(("signalled_before", killed_before, signal.SIGKILL))
    assert codes == [-signal.SIGKILL]
    assert run.run() == [0], run.text()
    assert run.went_on_at() == (killed_before - 1) // 3 * 3
    line_with(run.text(), "early stop", "3 runs")
    assert run.updates_of() == 15 and run.updates_of("checkpoint_best.pt") == 6
    assert run.run() == [0] and not run.losses()
    line_with(run.text(), "finished", "patience=3")


def plateau(losses, interrupted_after=None):
    """The rates after each epoch's loss; saved and loaded after one of them."""
    made, rates = scheduler(), []
    for epoch, loss in enumerate(losses, 1):
        extra = {"train_iterator": {"epoch": epoch + 1}, "val_loss": loss}
        state = state_of(made)  # a checkpoint is before the scheduler sees the loss
        if epoch == interrupted_after:
            optimizer, made = made.optimizer, scheduler()
            made.optimizer.set_lr(optimizer.get_lr())
            trainer = trainer_of(made)
            made.load_state_dict(state)
            trainer.load_plateau(state)
            checkpointer(trainer)._finish_epoch(extra)
        else:
            made.step(epoch, loss)
        rates.append(made.optimizer.get_lr())
    return rates


def trainer_of(scheduler) -> Trainer:
    """With this schedule alone."""
    trainer = Trainer.__new__(Trainer)
    trainer._lr_scheduler, trainer.lr_step = scheduler, scheduler.step
    one = types.SimpleNamespace(distributed_world_size=1)
    trainer.cfg = types.SimpleNamespace(
        checkpoint=CheckpointConfig(no_save=True), distributed_training=one
    )
    return trainer


def state_of(scheduler) -> dict:
    return {**scheduler.state_dict(), **trainer_of(scheduler).plateau_state()}


def checkpointer(trainer, *validated_by: str) -> Checkpointer:
    made = Checkpointer(trainer)
    made.start = Start({}, validated_by=validated_by)
    return made


def scheduler():
    inner = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=1.0)
    optimizer = types.SimpleNamespace(
        optimizer=inner,
        set_lr=lambda lr: inner.param_groups[0].update(lr=lr),
        get_lr=lambda: inner.param_groups[0]["lr"],
    )
    config = reduce_lr_on_plateau.ReduceLROnPlateauLRScheduleConfig(
        lr=[1.0], lr_patience=2, lr_shrink=0.5, warmup_updates=0
    )
    kind = reduce_lr_on_plateau.ReduceLROnPlateauLRSchedule
    made = kind.__new__(kind)
    made.cfg, made.optimizer, made.best = config, optimizer, None
    made.lr_scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(
        inner, patience=2, factor=0.5
    )
    made.warmup_end = True
    return made


@pytest.mark.parametrize("epoch", range(1, 9))
def test_a_plateau_is_as_long_as_without_a_kill(epoch):
    losses = [3.0, 2.0, 2.5, 2.5, 2.5, 2.6, 2.6, 2.7]
    whole = plateau(losses)
    assert len(set(whole)) == 3
    assert plateau(losses, epoch) == whole


def test_validations_of_another_figure_are_forgotten():
    made = scheduler()
    for epoch, loss in enumerate([4.9, 5.0, 5.0], 1):
        made.step(epoch, loss)
    saved = {"best": 4.9, "early_stopping": {"best": 4.9, "num_runs": 2}}
    extra = {**saved, "valid_loss": 5.0, "val_loss": 5.0}
    for validated_by in ((), ("criterion.label_smoothing=0.1",)):
        kept = checkpointer(trainer_of(made), *validated_by)
        kept._take_over(extra)
        assert kept.best_of(5.0) == (None if validated_by else 4.9)
        assert ("val_loss" in extra) == (not validated_by)
    for epoch, perplexity in enumerate([30.0, 29.0, 28.0, 27.0], 4):
        made.step(epoch, perplexity)
    assert made.optimizer.get_lr() == 1.0


@pytest.mark.parametrize("in_float32", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_tied_weights_are_averaged_once(dtype, in_float32):
    model = torch.nn.ModuleDict(
        {"embed": torch.nn.Embedding(5, 3), "output": torch.nn.Linear(3, 5)}
    )
    model["output"].weight = model["embed"].weight
    model.requires_grad_(False).to(dtype)
    for x in model.parameters():
        x.fill_(1)
    config = EMAConfig(store_ema=True, ema_decay=0.75, ema_fp32=in_float32)
    ema = Average(model, config)
    for x in model.parameters():
        x.fill_(2)
    ema.step(model, updates=1)
    averages = ema.get_model().state_dict()
    assert averages.keys() == model.state_dict().keys()
    for average in (*averages.values(), *ema.fp32_params.values()):
        assert torch.all(average == 1.25)


@pytest.mark.parametrize("in_float32", [False, True])
def test_integers_of_an_average_are_the_models(in_float32):
    config = EncoderConfig(embed_dim=4, num_heads=2)
    model = InformerAttention(config, causal=False)
    averaging = EMAConfig(store_ema=True, ema_decay=0.75, ema_fp32=in_float32)
    ema = Average(model, averaging)
    before = model.q_proj.weight.detach().clone()
    model.drawn.add_(1)
    model.requires_grad_(False).q_proj.weight.add_(1)
    ema.step(model, updates=1)
    average = ema.get_model()
    assert torch.equal(average.drawn, model.drawn)
    torch.testing.assert_close(average.q_proj.weight, before + 0.25)


@pytest.mark.parametrize("in_float32", [False, True])
def test_an_average_keeps_the_last_layer_norm(in_float32):
    """fairseq's transformer takes weights without a version for an old format's."""
    sizes = {"embed_dim": 8, "num_heads": 2, "ffn_dim": 8}
    cfg = MODEL_DATACLASS_REGISTRY["vanilla_transformer"](**sizes)
    model = fairseq_model(cfg).requires_grad_(False)
    config = EMAConfig(store_ema=True, ema_decay=0.0, ema_fp32=in_float32)
    ema = Average(model, config)
    for x in model.parameters():
        x.add_(0.1)
    for update in (1, 2):
        ema.step(model, updates=update)
    average, tokens = ema.get_model(), draw_tokens(2, 9)
    assert average.state_dict().keys() == model.state_dict().keys()
    assert torch.equal(average(tokens)[0], model(tokens)[0])
