"""A checkpoint of another model, or of none: refused or said before training."""

import logging
import os
import shutil
from multiprocessing import active_children

import numpy as np
import pytest
import torch
from fairseq.data import Dictionary
from fairseq.data.indexed_dataset import MMapIndexedDataset, MMapIndexedDatasetBuilder
from fairseq.tasks.language_modeling import LanguageModelingTask
from omegaconf import OmegaConf

from fairseq_transnormer.data.training_records import LOG
from fairseq_transnormer.training.folder_lock import LOCK
from fairseq_transnormer.training.main import main
from fairseq_transnormer.training.same_run import _compare, model_changes
from fairseq_transnormer.training.trainer import Trainer
from tests.forked_trainings import wait_until
from tests.inference.models import train
from tests.inference.problems import write_problem
from tests.messages import assert_names, refuses

from .trainings import Training, line_with, updates_of

ARCH, LAST = "transnormer_t2_tiny", "checkpoint_last.pt"


@pytest.fixture
def resumed(trained, tmp_path, caplog):
    """resumed(settings, save_dir): a run in a copy of the trained one's folder, or in
    ``save_dir``, by ``main``; what it said. ``accepted``: updates where it began."""
    own = tmp_path / "checkpoints"
    shutil.copytree(trained.parent, own)
    before = torch.load(trained, weights_only=True)["cfg"]

    def run(settings=(), save_dir=own) -> str:
        cfg = OmegaConf.create(before)
        cfg.optimization.max_update = 3
        cfg.checkpoint.save_dir = str(save_dir)
        for name, value in dict(settings).items():
            OmegaConf.update(cfg, name, value)
        caplog.set_level(logging.INFO)
        caplog.clear()
        main(cfg, lambda: run.accepted.append(updates_of(own / LAST)))
        assert updates_of(save_dir / LAST) == 3
        return caplog.text

    run.save_dir, run.last, run.accepted = own, str(own / LAST), []
    return run


def lines_with(text, part):
    return [line for line in text.splitlines() if part in line]


def test_the_same_settings_resume_in_silence(resumed):
    said = resumed()
    (line,) = lines_with(said, "resumed at")
    assert_names(line, "update 2 ", resumed.last)
    (line,) = lines_with(said, "other settings")
    assert_names(line, "optimization.max_update", 3, 2)
    assert resumed.accepted == [2]
    assert lines_with(resumed(), "the run is finished") and resumed.accepted == [2]


def test_a_finished_run_of_another_model_is_not_this_one(resumed):
    """Its command would end with 0, as if it had trained this one."""
    finished = {"optimization.max_update": 2}
    with refuses(ValueError, resumed.last, "model.block_size", 4, 8):
        resumed(finished | {"model.block_size": 4})
    assert updates_of(resumed.save_dir / LAST) == 2 and not resumed.accepted


@pytest.mark.parametrize(
    ("name", "value", "before"),
    [
        ("block_size", 4, 8),
        ("ffn_activation", "gelu", "silu"),
        ("norm_eps", 0.01, "1e-08"),
        ("relative_position", "none", "lrpe"),
        ("diag_activation", "relu", "softmax"),
        ("no_final_norm", True, False),
        ("no_scale_embedding", True, False),
    ],
)
def test_a_model_that_computes_something_else_is_refused(resumed, name, value, before):
    ways = ("--save-dir", "--finetune-from-model")
    with refuses(ValueError, f"model.{name}", value, before, *ways):
        resumed({f"model.{name}": value})
    assert updates_of(resumed.save_dir / LAST) == 2 and not resumed.accepted


@pytest.mark.parametrize("name", [LAST, "checkpoint_1_2.pt"])
def test_another_architecture_is_refused(resumed, name):
    """T1 and T2 have the same parameters by name and shape."""
    path = resumed.save_dir / name
    os.replace(resumed.last, path)
    with refuses(ValueError, path, ARCH, "transnormer_t1_tiny", "--save-dir"):
        resumed({"model._name": "transnormer_t1_tiny"})
    assert updates_of(path) == 2 and [*resumed.save_dir.glob("*.pt")] == [path]


@pytest.mark.parametrize(
    ("types", "name", "value"),
    [("flash", "flash_far_bias", "rope"), ("diag_then_norm", "block_size", 4)],
)
def test_fields_that_layers_share_count_for_each(trained, types, name, value):
    before = torch.load(trained, weights_only=True)["cfg"]["model"]
    before = OmegaConf.to_container(OmegaConf.create(before)) | {
        "attention_types": types
    }
    assert before[name] != value
    computing, training = model_changes(before, before | {name: value})
    assert [each.name for each in computing] == [f"model.{name}"] and not training


def test_what_only_trains_otherwise_is_said(resumed):
    changes = {
        "model.dropout": (0.25, 0.0),
        "model.checkpoint_activations": (True, False),
        "optimization.lr": ([0.003], [0.01]),
        "common.seed": (7, 3),
        "optimization.update_freq": ([2], [1]),
        "optimization.clip_norm": (1.5, 0.0),
        "optimizer.weight_decay": (0.5, 0.0),
        "optimizer.adam_betas": ("(0.5, 0.6)", [0.9, 0.999]),
        "dataset.batch_size": (4, 8),
    }
    copies = {"task.seed": 7, "optimizer.lr": [0.003], "lr_scheduler.lr": [0.003]}
    said = resumed({name: value for name, (value, _) in changes.items()} | copies)
    lines = [*lines_with(said, "other settings"), *lines_with(said, "other schedule")]
    for name, values in changes.items():
        (line,) = [line for line in lines if f"{name}=" in line]
        assert all(str(value) in line for value in values)
        schedule = name == "optimization.lr" or name.startswith("optimizer.")
        assert ("WARNING" in line) == schedule
    # settings that fairseq copies to other groups are said once
    assert not [line for line in lines if any(f"{name}=" in line for name in copies)]
    state = torch.load(resumed.last, weights_only=True)["last_optimizer_state"]
    (group,) = state["param_groups"]
    assert (group["weight_decay"], group["betas"]) == (0.5, (0.5, 0.6))


def test_a_plateau_goes_on_with_its_rate(caplog):
    """fairseq takes another only in a warm-up."""
    groups = {"model": {"_name": ARCH}}
    groups["lr_scheduler"] = {"_name": "reduce_lr_on_plateau"}
    before, now = (groups | {"optimization": {"lr": [x]}} for x in (0.1, 0.2))
    _compare(LAST, before, now, True, False)
    assert_names(caplog.text, "reduce_lr_on_plateau resumes its rate")


def test_a_batch_that_changes_no_weights_validates_nothing(resumed, monkeypatch):
    """After an overflow of fp16 a second validation would count for --patience."""
    step, stats = Trainer.train_step, iter([False])
    monkeypatch.setattr(
        Trainer, "train_step", lambda *x: next(stats, True) and step(*x) or None
    )
    each = {"disable_validation": False, "validate_interval_updates": 1}
    said = resumed({f"dataset.{name}": value for name, value in each.items()})
    assert len(lines_with(said, "begin validation on")) == 1


def test_a_limited_validation_leaves_no_loader(resumed, monkeypatch):
    """fairseq's thread would wait for ever to hand on a batch beyond the limit."""
    validate, steps = Trainer.valid_step, []
    monkeypatch.setattr(
        Trainer, "valid_step", lambda *x: steps.append(1) or validate(*x)
    )
    each = {"disable_validation": False, "valid_subset": "train", "num_workers": 1}
    each |= {"batch_size_valid": 1, "max_valid_steps": 1}  # of 30
    resumed({f"dataset.{name}": value for name, value in each.items()})
    assert len(steps) == 2  # fairseq takes one more
    wait_until(lambda: not active_children(), seconds=9)


@pytest.mark.parametrize("flags", [(), ("--bf16",)])
def test_another_optimizers_state_is_refused(resumed, data, flags):
    """RAdam's has the same names; in half precision fairseq would take it."""
    changed = ("--optimizer", "radam", "--max-update", 3)
    with refuses(ValueError, resumed.last, "optimizer._name=adam", "radam"):
        train(data, resumed.save_dir, ARCH, *changed, *flags)
    assert updates_of(resumed.save_dir / LAST) == 2


def test_another_classification_head_is_refused(tmp_path):
    """fairseq would throw the trained one away, with a line in the log."""
    problem = write_problem(tmp_path / "data", labels=("no", "yes", "maybe"))
    options = {
        "task": "sentence_prediction", "criterion": "sentence_prediction_metrics",
        "num-classes": 3, "init-token": 0, "tokens-per-sample": None, "max-update": 2,
    }  # fmt: skip
    run = Training(problem, tmp_path / "out", 1, options)
    run.arch = "roberta_transnormer_t2_tiny"
    assert run.run() == [0], run.text()
    run.options["max-update"] = 3
    for name, value, parts in (
        ("classification-head-name", "another", ["another", "random weights"]),
        ("num-classes", 4, ["sentence_classification_head", "random weights"]),
    ):
        kept = dict(run.options)
        run.options[name] = value
        assert run.run() == [1]
        line_with(run.text(), "ValueError", "checkpoint_last.pt", *parts)
        assert run.updates_of() == 2
        run.options = kept
    assert run.run() == [0] and run.updates_of() == 3, run.text()


ELSEWHERE = {
    "finetune": lambda path: {"checkpoint.finetune_from_model": path},
    "restore": lambda path: {
        "checkpoint.restore_file": path,
        "checkpoint.reset_optimizer": True,
        "checkpoint.reset_dataloader": True,
    },
}
elsewhere = pytest.mark.parametrize("way", ELSEWHERE.values(), ids=ELSEWHERE)


@elsewhere
def test_another_run_may_begin_an_average(resumed, tmp_path, way):
    """With a decay of 1 it stays what it began with."""
    average = {"ema.store_ema": True, "ema.ema_decay": 1.0}
    resumed(way(resumed.last) | average, tmp_path / "new")
    begun = torch.load(resumed.last, weights_only=True)["model"]
    state = torch.load(tmp_path / "new" / "checkpoint_last.pt", weights_only=True)
    kept = state["extra_state"]["ema"]
    assert all(torch.equal(kept[name], begun[name]) for name in begun)
    assert any(not torch.equal(state["model"][name], begun[name]) for name in begun)


def test_an_average_is_not_dropped(resumed, tmp_path):
    average = {"ema.store_ema": True, "ema.ema_decay": 1.0}
    resumed(ELSEWHERE["finetune"](resumed.last) | average, tmp_path / "new")
    with refuses(ValueError, LAST, "moving average", "ema.store_ema", "--save-dir"):
        resumed({"optimization.max_update": 4}, tmp_path / "new")


@elsewhere
def test_another_run_may_begin_with_other_settings(resumed, tmp_path, way):
    settings = way(resumed.last) | {"model.block_size": 4, "optimization.lr": [0.1]}
    said = resumed(settings, tmp_path / "another")
    (line,) = lines_with(said, "another model")
    assert_names(line, "WARNING", "model.block_size", 4, 8)
    assert not lines_with(said, "other settings")


@elsewhere
def test_another_run_may_begin_with_another_architectures_weights(
    resumed, tmp_path, way
):
    settings = way(resumed.last) | {"model._name": "transnormer_t1_tiny"}
    said = resumed(settings, tmp_path / "another")
    (line,) = lines_with(said, f"is of {ARCH}")
    assert_names(line, "WARNING", resumed.last, "transnormer_t1_tiny")


@pytest.mark.parametrize("field", ["restore_file", "continue_once"])
@pytest.mark.parametrize(
    ("settings", "parts"),
    [
        ({"max_update": 2}, ("update 2", "max_update=2", "--reset-optimizer")),
        ({"max_update": 1}, ("update 2", "max_update=1", "--reset-optimizer")),
        ({"max_epoch": 1}, ("epoch 1", "max_epoch=1", "--reset-dataloader")),
    ],
)
def test_a_checkpoint_beyond_the_end_of_a_new_run_is_refused(
    resumed, tmp_path, settings, parts, field
):
    """fairseq trains one more update, or ends without a checkpoint."""
    path = tmp_path / "given.pt"
    state = torch.load(resumed.last, weights_only=True)
    state["extra_state"]["train_iterator"] |= {"epoch": 2, "iterations_in_epoch": 0}
    torch.save(state, path)
    given = {f"optimization.{name}": value for name, value in settings.items()}
    with refuses(ValueError, path, "nothing to train", *parts):
        resumed(given | {f"checkpoint.{field}": str(path)}, tmp_path / "another")
    assert not list(tmp_path.glob("another/*.pt"))


@pytest.mark.parametrize("name", ["checkpoint_lst.pt", "nowhere/model.pt"])
@pytest.mark.parametrize("field", ["restore_file", "continue_once"])
def test_a_missing_checkpoint_is_refused(resumed, tmp_path, field, name):
    """The folder keeps its files; fairseq tries it with one of the name "dummy"."""
    path, another = resumed.save_dir / name, tmp_path / "another"
    own = {another / LOG, another / "dummy"}
    another.mkdir()
    for file in own:
        file.touch()
    with refuses(ValueError, path, "no such checkpoint"):
        resumed({f"checkpoint.{field}": str(path)}, another)
    assert {*another.iterdir()} == own | {another / LOCK}


def test_the_last_checkpoint_by_its_path_may_be_missing(resumed, tmp_path):
    """It is the default, spelled out, as scripts that requeue do."""
    folder = tmp_path / "another"
    resumed({"checkpoint.restore_file": str(folder / "checkpoint_last.pt")}, folder)


@pytest.mark.parametrize("way", ["resume", *ELSEWHERE])
def test_another_dictionary_of_equal_size_is_refused(resumed, data, tmp_path, way):
    other = tmp_path / "other"
    shutil.copytree(data, other)
    lines = (data / "dict.txt").read_text().splitlines()
    (other / "dict.txt").write_text("\n".join(reversed(lines)) + "\n")
    settings = {"task.data": str(other)}
    folder = resumed.save_dir
    if way != "resume":
        settings |= ELSEWHERE[way](resumed.last)
        folder = tmp_path / "another"
    with refuses(ValueError, resumed.last, "dictionary"):
        resumed(settings, folder)
    assert updates_of(resumed.save_dir / LAST) == 2


def shuffled(data, folder):
    """The data with the lines of training in another order, by the same dictionary."""
    shutil.copytree(data, folder)
    dictionary = Dictionary.load(str(data / "dict.txt"))
    lines = [*MMapIndexedDataset(str(data / "train"))]
    builder = MMapIndexedDatasetBuilder(str(folder / "train.bin"), dtype=np.uint16)
    assert len(dictionary) < 1 << 16
    for line in lines[1:] + lines[:1]:
        builder.add_item(line)
    builder.finalize(str(folder / "train.idx"))
    return folder


def test_other_training_data_are_refused(resumed, data, tmp_path):
    other = shuffled(data, tmp_path / "shuffled")
    with refuses(ValueError, resumed.last, "training data", other, "train_data_sha256"):
        resumed({"task.data": str(other)})


def test_data_that_change_while_it_trains_are_refused_by_the_next_start(
    resumed, data, tmp_path, monkeypatch
):
    """The checkpoint names those that it has trained on, which are still mapped."""
    own, other = tmp_path / "own", shuffled(data, tmp_path / "shuffled")
    shutil.copytree(data, own)

    def replace(task, epoch, model):
        for suffix in ("bin", "idx"):
            (other / f"train.{suffix}").replace(own / f"train.{suffix}")

    with monkeypatch.context() as patch:
        patch.setattr(LanguageModelingTask, "begin_epoch", replace)
        resumed({"task.data": str(own)})
    settings = {"task.data": str(own), "optimization.max_update": 4}
    with refuses(ValueError, resumed.last, "training data", "train_data_sha256"):
        resumed(settings)
    resumed({"task.data": str(data)})


def test_the_same_training_data_elsewhere_resume(resumed, data, tmp_path):
    moved = tmp_path / "moved"
    shutil.copytree(data, moved)
    (moved / "train.log").write_text("of another program")
    resumed({"task.data": str(moved)})


def test_options_of_attentions_that_are_not_there_do_not_count():
    before = {"_name": ARCH, "attention_types": "norm*2", "block_size": 8}
    assert model_changes(before, before | {"block_size": 4}) == ([], [])
    assert model_changes(before, before | {"attention_types": "norm, norm"}) == ([], [])
    now = before | {"attention_types": "diag,norm", "block_size": 4}
    computing, training = model_changes(before, now)
    assert not training
    assert {each.name for each in computing} == {
        "model.attention_types",
        "model.block_size",
    }


def test_checkpoints_without_a_configuration_are_loaded(resumed):
    """As fairseq's of before 1.0, which have a Namespace in its place."""
    last = resumed.save_dir / "checkpoint_last.pt"
    state = torch.load(last, weights_only=True)
    state["cfg"], state["args"] = None, None
    torch.save(state, last)
    resumed({"model.block_size": 4})
