"""Invalid settings of fairseq are refused before an update, by name."""

import contextlib
import dataclasses
import importlib
import math
import sys

import pytest
import torch
from fairseq.dataclass.configs import FairseqConfig
from fairseq.registry import REGISTRIES
from fairseq.tasks import TASK_DATACLASS_REGISTRY
from fairseq_cli import train
from omegaconf import OmegaConf, open_dict

from fairseq_transnormer.fairseq_patches.setting_limits import (
    GROUPS,
    LIMITS,
    ONE_READER,
    check_group,
    check_settings,
)
from tests.forked_trainings import training_arguments
from tests.messages import refuses
from tests.resolved_configs import hydra_config

BAD = (math.nan, math.inf)
REFUSED = {
    "optimization.lr": ([-1.0], [math.nan], [math.inf], []),
    "optimization.clip_norm": (-1.0, *BAD),
    "optimization.max_update": (-5,),
    "optimization.max_epoch": (-1,),
    "optimization.stop_time_hours": (math.nan,),
    "optimization.stop_min_lr": (math.nan,),
    "optimization.update_freq": ([-1], [2, 0], []),
    "dataset.batch_size": (0, -4),
    "dataset.max_tokens": (0, -1),
    "dataset.batch_size_valid": (0, -3),
    "dataset.max_tokens_valid": (-2,),
    "dataset.required_batch_size_multiple": (0,),
    "dataset.required_seq_len_multiple": (0,),
    "dataset.validate_interval": (0, -1),
    "dataset.validate_interval_updates": (-1,),
    "dataset.max_valid_steps": (0,),
    "dataset.num_workers": (-1,),
    "dataset.curriculum": (-1,),
    "checkpoint.save_interval": (0, -1),
    "checkpoint.save_interval_updates": (-2,),
    "checkpoint.keep_interval_updates": (-7,),
    "checkpoint.keep_interval_updates_pattern": (-2,),
    "checkpoint.patience": (-3,),
    "common.log_interval": (0, -1),
    "common.fp16_init_scale": (0,),
    "common.min_loss_scale": (math.nan,),
    # what main of fairseq-train stumbles over before it begins
    "common.seed": (-1, 2**32),
    "optimizer.weight_decay": (-1.0, *BAD),
    "optimizer.adam_eps": (0.0, -1.0, math.inf),
    "optimizer.adam_betas": ("(1.5, 0.9)", "(0.9, -3)", "0.9", "(1, 1, 1)", "x"),
    "lr_scheduler.warmup_updates": (-5, 0),
    "lr_scheduler.warmup_init_lr": (-2.0, *BAD),
    "task.tokens_per_sample": (0, -1),
    "task.max_target_positions": (0,),
}
# by fairseq-hydra-train: one of each group, and those of a model
BY_HYDRA = [
    ("optimization.lr", [-1.0]), ("dataset.batch_size", 0),
    ("checkpoint.patience", -3), ("common.log_interval", 0),
    ("optimizer.adam_betas", "x"), ("lr_scheduler.warmup_updates", -5),
    ("task.tokens_per_sample", 0), ("model.dropout", math.nan),
    ("model.peak_tflops", math.inf), ("model.max_target_positions", 0),
]  # fmt: skip
# components with bounds of their own
SMOOTHED, LRA = "label_smoothed_cross_entropy", "long_range_arena"
OTHERS = [
    *(("criterion", SMOOTHED, "label_smoothing", x) for x in (-1.0, 1.0, math.nan)),
    *(("task", "masked_lm", "mask_prob", value) for value in (0.0, 1.0, 2.0)),
    ("task", "masked_lm", "random_token_prob", 0.95),  # beside leave_unmasked_prob=0.1
    ("task", "masked_lm", "tokens_per_sample", 1),
    *(("task", LRA, "clip_value", value) for value in (math.inf, -1.0)),
    ("task", LRA, "bucket_length", 0),
    ("lr_scheduler", "polynomial_decay", "power", 0.0),
    ("lr_scheduler", "polynomial_decay", "end_learning_rate", -1e-5),
    ("lr_scheduler", "cosine", "min_lr", math.nan),
    ("optimizer", "nag", "momentum", 1.5),
    ("optimizer", "radam", "weight_decay", -0.1),
]


@pytest.fixture(scope="module")
def configuration(data):
    """configuration(): of fairseq-hydra-train, tiny."""
    cfg = hydra_config("alm_t2_small", "run=cpu", "model=transnormer_t2_tiny")
    made = OmegaConf.to_container(cfg)

    def make(save_dir, **settings):
        new = OmegaConf.create(made)
        new.task.data, new.checkpoint.save_dir = str(data), str(save_dir)
        new.task.tokens_per_sample, new.dataset.num_workers = 16, 0
        new.optimization.max_update = 1
        for name, value in settings.items():
            OmegaConf.update(new, name, value, force_add=True)
        return new

    return make


@pytest.mark.parametrize(("name", "value"), BY_HYDRA)
def test_hydra_refuses_it_by_name(configuration, tmp_path, name, value):
    cfg = configuration(tmp_path / "checkpoints", **{name: value})
    shown = value[0] if isinstance(value, list) else value
    with refuses(ValueError, name.removeprefix("model."), shown, "allowed"):
        train.main(cfg)
    assert not list(tmp_path.glob("checkpoints/*.pt"))


def test_the_whole_configuration_is_looked_at(configuration, tmp_path):
    """As call_main does, where fairseq's other commands begin."""
    check_settings(configuration(tmp_path))
    cases = [(name, each) for name, values in REFUSED.items() for each in values]
    for name, value in cases:
        # of a list of several, the number that is wrong
        shown = value if isinstance(value, list) else [value]
        shown = shown if len(shown) == 1 and not isinstance(value, str) else []
        with refuses(ValueError, name, *shown, "allowed"):
            check_settings(configuration(tmp_path, **{name: value}))


def test_a_file_is_no_folder_of_checkpoints(configuration, tmp_path):
    file = tmp_path / "notes"
    file.write_text("a file")
    with refuses(ValueError, "checkpoint.save_dir", file, "allowed"):
        check_settings(configuration(file))


@pytest.mark.parametrize("window", [16, 40])
def test_a_context_is_shorter_than_its_block(configuration, tmp_path, window):
    context = {"eval_lm.context_window": window}
    with refuses(ValueError, f"context_window={window}", "tokens_per_sample=16"):
        check_settings(configuration(tmp_path, **context))
    check_settings(configuration(tmp_path, **{"eval_lm.context_window": 15}))


@pytest.mark.parametrize("name", ONE_READER)
def test_a_context_has_one_reader(configuration, tmp_path, name):
    """Of several each would take its own last block for the one before."""
    check_settings(configuration(tmp_path, **{name: 2}))
    settings = {"eval_lm.context_window": 5, name: 2}
    with refuses(ValueError, f"{name}=2", "context_window=5", "allowed"):
        check_settings(configuration(tmp_path, **settings))
    check_settings(configuration(tmp_path, **{**settings, name: 1}))


def test_a_pattern_of_kept_checkpoints_is_no_zero(configuration, tmp_path):
    """fairseq divides by it where it keeps some."""
    pattern = {"checkpoint.keep_interval_updates_pattern": 0}
    pattern["checkpoint.keep_interval_updates"] = -1
    check_settings(configuration(tmp_path, **pattern))
    pattern["checkpoint.keep_interval_updates"] = 3
    with refuses(ValueError, "keep_interval_updates_pattern=0", "allowed"):
        check_settings(configuration(tmp_path, **pattern))


@pytest.mark.parametrize(
    ("metric", "wrong"),
    [("loss", True), ("ppl", True), ("accuracy", False), ("accuracy_64", False)],
)
def test_the_worst_checkpoint_is_not_the_best(configuration, tmp_path, metric, wrong):
    """Without --maximize-best-checkpoint-metric the lowest accuracy is the best."""
    name = "checkpoint.maximize_best_checkpoint_metric"
    settings = {"checkpoint.best_checkpoint_metric": metric, name: wrong}
    told = f"{name}={str(wrong).lower()}", f"best_checkpoint_metric={metric}"
    with refuses(ValueError, *told, "allowed"):
        check_settings(configuration(tmp_path, **settings))
    for unused in ("dataset.disable_validation", "checkpoint.no_save"):
        check_settings(configuration(tmp_path, **{**settings, unused: True}))
    check_settings(configuration(tmp_path, **{**settings, name: not wrong}))
    other = {"checkpoint.best_checkpoint_metric": "bleu", name: wrong}
    check_settings(configuration(tmp_path, **other))


def test_writing_in_the_background_needs_iopath(configuration, tmp_path, monkeypatch):
    """fairseq says so in the log, and ends with exit code 0."""
    name = "checkpoint.write_checkpoints_asynchronously"
    monkeypatch.setitem(sys.modules, "iopath", None)
    with refuses(ValueError, name, "iopath", "allowed"):
        check_settings(configuration(tmp_path, **{name: True}))


@pytest.mark.parametrize(("group", "component", "field", "value"), OTHERS)
def test_components_have_bounds_of_their_own(group, component, field, value):
    registry = (
        TASK_DATACLASS_REGISTRY
        if group == "task"
        else REGISTRIES[group]["dataclass_registry"]
    )
    settings = OmegaConf.structured(registry[component])
    with open_dict(settings):
        settings._name = component
    check_group(group, settings)
    settings[field] = value
    with refuses(ValueError, f"{group}.{field}", value, "allowed"):
        check_group(group, settings)


def groups_of_fairseq():
    """Those that are the same whatever is trained."""
    defaults = FairseqConfig()
    groups = [(group, getattr(defaults, group)) for group in GROUPS]
    return [pair for pair in groups if dataclasses.is_dataclass(pair[1])]


def test_a_good_run_is_let_through(configuration, tmp_path):
    train.main(configuration(tmp_path / "checkpoints"))
    assert (tmp_path / "checkpoints" / "checkpoint_last.pt").exists()


def test_fairseqs_defaults_are_let_through():
    for group, settings in groups_of_fairseq():
        check_group(group, settings)
    components = [("task", TASK_DATACLASS_REGISTRY)]
    components += [
        (group, REGISTRIES[group]["dataclass_registry"])
        for group in ("optimizer", "lr_scheduler", "criterion")
    ]
    looked_at = 0
    for group, registry in components:
        for name, dataclass in registry.items():
            settings = OmegaConf.structured(dataclass)
            with open_dict(settings):
                settings._name = name
            check_group(group, settings)
            looked_at += 1
    assert looked_at > 40


def test_limits_are_of_fields_that_there_are():
    known = {
        f"{group}.{each.name}"
        for group, settings in groups_of_fairseq()
        for each in dataclasses.fields(settings)
    }
    for group, registry in (
        ("task", TASK_DATACLASS_REGISTRY),
        *((g, REGISTRIES[g]["dataclass_registry"]) for g in REGISTRIES),
    ):
        for dataclass in filter(None, registry.values()):
            known |= {f"{group}.{f.name}" for f in dataclasses.fields(dataclass)}
    assert set(LIMITS) <= known


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_no_number_of_fairseq_may_be_infinite(number):
    """Also where it has no bounds."""
    looked_at = 0
    for group, settings in groups_of_fairseq():
        for each in dataclasses.fields(settings):
            if each.type is float:
                changed = OmegaConf.create({each.name: number})
                with refuses(ValueError, f"{group}.{each.name}", number):
                    check_group(group, changed)
                looked_at += 1
    assert looked_at >= 8


@pytest.mark.parametrize(
    ("command", "field"), [("validate", "max_tokens"), ("eval_lm", "batch_size")]
)
def test_commands_refuse_batches_of_nothing(
    fairseq_tool, data, trained, command, field
):
    words = ["--cpu", "--task", "language_modeling", "--path", trained]
    option = f"--{field.replace('_', '-')}"
    with refuses(ValueError, f"dataset.{field}", 0, "at least 1"):
        fairseq_tool(command, data, *words, option, 0)


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (
            ["--batch-size", 9999, "--skip-remainder-batch", "--update-freq", 2],
            ["optimization.skip_remainder_batch", "1 batches", "batch_size", 9999],
        ),
        (["--train-subset", ""], ["dataset.train_subset=''", "name of a split"]),
        # the rate of a warm-up is 0 at first: fairseq ends with exit code 0
        (
            ["--stop-min-lr", "1e-9"],
            ["optimization.stop_min_lr=1e-09", "rate of 0.0", "warmup_init_lr"],
        ),
    ],
)
def test_what_ends_training_late_or_without_a_name(
    fairseq_tool, data, tmp_path, options, parts
):
    given = training_arguments("transnormer_t2_tiny", tmp_path / "save")
    with refuses(ValueError, *parts):
        fairseq_tool("train", data, *given, *options)


def test_a_metric_that_no_validation_has_is_refused_before_an_update(
    fairseq_tool, data, tmp_path, monkeypatch
):
    def update(trainer, samples, **arguments):
        raise AssertionError("an update was made")

    monkeypatch.setattr("fairseq.trainer.Trainer.train_step", update)
    given = training_arguments("transnormer_t2_tiny", tmp_path / "save")
    name = "checkpoint.best_checkpoint_metric"
    with refuses(ValueError, f"{name}='nosuch'", "loss", "ppl"):
        fairseq_tool("train", data, *given, "--best-checkpoint-metric", "nosuch")
    unseen = ["--best-checkpoint-metric", "nosuch", "--disable-validation"]
    with pytest.raises(AssertionError, match="an update was made"):
        fairseq_tool("train", data, *given, *unseen)


def evaluate(fairseq_tool, data, trained, monkeypatch, *more):
    """What fairseq-eval-lm found."""
    module = importlib.import_module("fairseq_cli.eval_lm")
    found, original = [], module.eval_lm
    monkeypatch.setattr(
        module, "eval_lm", lambda **given: found.append(original(**given)) or found[-1]
    )
    # fmt: off
    fairseq_tool(
        "eval_lm", data, "--path", trained, "--gen-subset", "valid", "--cpu",
        "--batch-size", 4, "--num-workers", 0, *more,
    )
    # fmt: on
    return found[0]["perplexity"]


@pytest.mark.parametrize("mode", ["none", "eos"])
def test_eval_lm_refuses_blocks_that_the_model_does_not_take(
    fairseq_tool, data, tmp_path, trained, monkeypatch, mode
):
    """fairseq leaves them out, and a perplexity of nothing is 1.00."""
    state = torch.load(trained, weights_only=True)
    state["cfg"]["model"]["max_target_positions"] = 12
    short = tmp_path / "short.pt"
    torch.save(state, short)
    blocks = ["--sample-break-mode", mode, "--tokens-per-sample"]
    with refuses(ValueError, "task.tokens_per_sample", 64, "at most 12"):
        evaluate(fairseq_tool, data, short, monkeypatch, *blocks, 64)
    if mode == "none":
        assert 1 < evaluate(fairseq_tool, data, short, monkeypatch, *blocks, 12) < 1e4


@pytest.mark.parametrize("mode", ["none", "complete"])
def test_training_refuses_blocks_that_the_model_does_not_take(
    fairseq_tool, data, tmp_path, mode
):
    """It went on with the last, shorter block alone."""
    given = training_arguments(
        "roberta_transnormer_t2_tiny",
        tmp_path / "save",
        max_update=1,
        max_positions=12,
        tokens_per_sample=13,
        sample_break_mode=mode,
        skip_invalid_size_inputs_valid_test=True,
    )
    with refuses(ValueError, "task.tokens_per_sample=13", "at most 12"):
        fairseq_tool("train", data, *given, "--cpu")
    assert not list(tmp_path.glob("save/*.pt"))


def test_settings_that_are_left_out_have_their_defaults():
    """As in configurations of Hydra, which fairseq completes later."""
    check_group("task", OmegaConf.create({"_name": "masked_lm"}))
    with refuses(ValueError, "leave_unmasked_prob=0.1", "random_token_prob=0.95"):
        check_group(
            "task", OmegaConf.create({"_name": "masked_lm", "random_token_prob": 0.95})
        )


@pytest.mark.parametrize(
    ("settings", "is_left"),
    [
        ({}, False),
        ({"checkpoint.no_last_checkpoints": False}, True),
        ({"checkpoint.no_epoch_checkpoints": False}, True),
        ({"checkpoint.no_save": True}, True),
        ({"checkpoint.save_interval_updates": 14}, True),
        (
            {
                "checkpoint.save_interval_updates": 14,
                "optimization.max_update": 10,
            },
            False,
        ),
        ({"dataset.disable_validation": False}, True),
    ],
)
def test_settings_that_leave_no_checkpoint(settings, is_left):
    cfg = OmegaConf.structured(FairseqConfig)
    cfg.checkpoint.no_last_checkpoints = cfg.checkpoint.no_epoch_checkpoints = True
    cfg.dataset.disable_validation = True
    for name, value in settings.items():
        OmegaConf.update(cfg, name, value)
    refused = refuses(ValueError, "no_last_checkpoints", "allowed")
    with contextlib.nullcontext() if is_left else refused:
        check_settings(cfg)
