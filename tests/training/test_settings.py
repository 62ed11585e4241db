"""Settings that would train something else than was asked for, in silence."""

import pytest
import torch
from fairseq.dataclass.configs import FairseqConfig
from omegaconf import OmegaConf

from fairseq_transnormer.training.settings import check_settings
from tests.messages import refuses

from .trainings import line_with


@pytest.fixture
def cfg():
    """What training may begin with."""
    made = OmegaConf.structured(FairseqConfig())
    made.common.cpu = True
    made.dataset.batch_size = 4
    made.optimization.lr = [0.1]
    check_settings(made)
    return made


def test_a_cpu_that_nobody_asked_for_is_refused(cfg, monkeypatch):
    cfg.common.cpu = False
    with refuses(ValueError, "common.cpu=false", "GPU", "common.cpu=true", "--cpu"):
        check_settings(cfg)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: (9, 0))
    monkeypatch.setattr(torch.cuda, "get_arch_list", lambda: ["sm_90"])
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda *_: "GPU")
    check_settings(cfg)


PATHS = ("save_dir", "restore_file", "finetune_from_model")


@pytest.mark.parametrize("option", [*PATHS, "data"])
@pytest.mark.parametrize("name", ["${oc.env:HOME}y", "a\\\\'b"])
def test_a_path_that_hydra_would_change(training, tmp_path, option, name):
    """fairseq-train saves elsewhere, and ends with 0."""
    run = training(max_update=2)
    if option == "data":
        run.data = tmp_path / name
    else:
        run.options[option.replace("_", "-")] = tmp_path / name
    assert run.run() == [2] and not run.losses(), run.text()
    line_with(run.text(), "error", f"{option}={tmp_path / name}", "without ${")
    assert not list(tmp_path.rglob("*.pt"))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("optimization.lr", [0.1, 0.0]),
        ("optimization.lr", []),
        ("dataset.batch_size", 0),
        ("dataset.batch_size", None),
        ("dataset.max_tokens", -1),
        ("optimization.update_freq", [2, 0]),
        ("checkpoint.write_checkpoints_asynchronously", True),
        ("common.tpu", True),
    ],
)
def test_a_setting_that_trains_something_else_is_refused(cfg, name, value):
    OmegaConf.update(cfg, name, value)
    with refuses(ValueError, name):
        check_settings(cfg)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("optimization.max_update", -5),
        ("optimization.max_epoch", -1),
        ("optimization.stop_time_hours", -1.0),
        ("dataset.max_valid_steps", -1),
        ("checkpoint.save_interval", 0),
        ("dataset.validate_interval", 0),
        ("common.log_interval", 0),
    ],
)
def test_limits_at_which_work_is_lost(cfg, name, value):
    """Over after one update or none, with 0; or at an epoch's end, before it saves."""
    OmegaConf.update(cfg, name, value)
    with refuses(ValueError, f"{name}={value}", "allowed"):
        check_settings(cfg)


@pytest.mark.parametrize(
    ("chosen", "allowed"),
    [
        (("fp16", "bf16"), "one of them"),
        (("bf16", "amp"), "one of them"),
        (("memory_efficient_fp16",), "with fp16=true"),
        (("memory_efficient_bf16",), "with bf16=true"),
        (("amp",), "common.bf16=true"),
    ],
)
def test_a_precision_that_is_not_the_one_asked_for(cfg, chosen, allowed):
    """fairseq scales no loss with the first two, and trains in fp32 with the others."""
    for name in chosen:
        cfg.common[name] = True
    with refuses(ValueError, *(f"common.{name}" for name in chosen), allowed):
        check_settings(cfg)


@pytest.mark.parametrize(
    ("metric", "maximize"),
    [("loss", False), ("ppl", False), ("accuracy", True), ("accuracy_16", True)],
)
def test_the_worst_is_not_kept_as_the_best(cfg, metric, maximize):
    cfg.checkpoint.best_checkpoint_metric = metric
    cfg.checkpoint.maximize_best_checkpoint_metric = maximize
    check_settings(cfg)
    cfg.checkpoint.maximize_best_checkpoint_metric = not maximize
    with refuses(
        ValueError, f"best_checkpoint_metric={metric}", f"allowed: {maximize}"
    ):
        check_settings(cfg)
