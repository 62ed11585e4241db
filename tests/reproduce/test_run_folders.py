"""What a run's folder holds, and what is refused before anything is lost."""

import json

import pytest
import yaml

from fairseq_transnormer.reproduce.errors import ReproduceError
from fairseq_transnormer.reproduce.runs.plans import Step, differences, merged
from fairseq_transnormer.reproduce.runs.run_folder import RunFolder
from tests.messages import refuses

from .stand_in import plan, prepared


@pytest.fixture
def folder(tmp_path):
    """A run that has a checkpoint."""
    folder = prepared(tmp_path, "run")
    folder.checkpoints.mkdir()
    (folder.checkpoints / "checkpoint_last.pt").touch()
    return folder


def test_the_folder_has_everything_about_the_run(folder):
    text = (folder.path / "configuration.yaml").read_text()
    assert yaml.safe_load(text) == plan("run").configuration
    description = json.loads((folder.path / "run.json").read_text())
    assert description["seed"] == 1 and description["steps"][0]["name"] == "train"


def test_a_changed_configuration_is_refused_and_the_difference_named(folder):
    changed = plan("run")
    changed.configuration = {"model": {"width": 16}, "optimization": {"max_update": 3}}
    with refuses(ReproduceError, folder.path, "model.width", 8, 16):
        folder.check(changed)
    changed.machine_keys = ("model.",)
    folder.check(changed)


def test_other_data_are_refused(folder):
    changed = plan("run")
    changed.data_fingerprint = "def"
    with refuses(ReproduceError, folder.path, "data", "abc", "def"):
        folder.check(changed)


def test_fields_that_newer_code_adds_are_no_difference(folder):
    newer = plan("run")
    newer.configuration["model"]["new_field"] = 1
    folder.check(newer)


def test_vanillas_layers_by_their_earlier_name_are_no_difference():
    there, now = (
        {"model": {"num_layers": 6}},
        {"model": {"attention_types": "softmax*6"}},
    )
    assert differences(there, now) == []
    now["model"]["attention_types"] = "softmax*5"
    (found,) = differences(there, now)
    assert "softmax*6" in found and "softmax*5" in found


def test_what_no_attention_reads_is_no_difference(folder):
    """Earlier presets scaled it in every model."""

    def planned(types, size):
        made = plan("run")
        made.configuration["model"] = {"attention_types": types, "block_size": size}
        return made

    folder.prepare(planned("norm*2", 16))
    folder.check(planned("norm*2", 64))
    folder.prepare(planned("diag_then_norm*2", 16))
    with refuses(ReproduceError, "model.block_size", 16, 64):
        folder.check(planned("diag_then_norm*2", 64))


def test_a_run_of_fairseqs_adam_goes_on_with_the_fused_one(tmp_path):
    """And the other way round; with other values, or another optimizer, none does."""
    common = {"adam_betas": "(0.9,0.98)", "weight_decay": 0.01, "lr": [0.1]}
    fused = {"_name": "fused_adam"} | common
    fields = {"use_old_adam": False, "fp16_adam_stats": False, "tpu": False}
    fairseqs = {"_name": "adam"} | common | fields

    def with_optimizer(settings):
        made = plan("run")
        made.configuration = {"optimizer": settings}
        return made

    for name, there in (("fused", fused), ("fairseqs", fairseqs)):
        folder = RunFolder(tmp_path / name)
        folder.prepare(with_optimizer(there))
        folder.checkpoints.mkdir()
        (folder.checkpoints / "checkpoint_last.pt").touch()
        folder.check(with_optimizer(fused))
        folder.check(with_optimizer(fairseqs))
        with refuses(ReproduceError, "optimizer.weight_decay", 0.01, 0.0):
            folder.check(with_optimizer(fused | {"weight_decay": 0.0}))
        with refuses(ReproduceError, "optimizer._name", "radam"):
            folder.check(with_optimizer({"_name": "radam"} | common))


def test_the_layout_may_change_once_the_training_is_done(folder):
    changed = plan("run")
    changed.configuration = {"model": {"width": 16}, "optimization": {"max_update": 3}}
    changed.layout_keys = ("model.width",)
    with pytest.raises(ReproduceError):
        folder.check(changed)
    folder.write_status({"state": "finished", "steps_done": ["train"], "attempts": []})
    folder.check(changed)
    changed.steps.append(Step("scores", ["true"]))
    folder.prepare(changed)
    assert folder.configuration()["model"]["width"] == 8
    assert not folder.is_finished()


def test_a_finished_run_is_of_as_many_sequences_an_update(tmp_path):
    """However they are divided: more devices have smaller batches."""

    def of(batch, devices, freq):
        made = plan("run")
        made.configuration = {
            "dataset": {"batch_size": batch},
            "distributed_training": {"distributed_world_size": devices},
            "optimization": {"update_freq": freq},
        }
        made.machine_keys = ("distributed_training.",)
        made.layout_keys = ("dataset.batch_size", "optimization.update_freq")
        return made

    folder = RunFolder(tmp_path / "run")
    folder.prepare(of(8, 2, [4]))
    folder.write_status({"state": "finished", "steps_done": ["train"], "attempts": []})
    folder.check(of(64, 1, [1]))
    folder.check(of(8, 8, [1]))
    for other in (of(8, 2, [2]), of(2048, 1, [1]), of(8, 1, [4]), of(8, 2, [4, 8])):
        with refuses(ReproduceError, folder.path, "sequences of an update", 64):
            folder.check(other)


def test_without_a_checkpoint_there_is_nothing_to_lose(tmp_path):
    folder = prepared(tmp_path, "run")
    changed = plan("run")
    changed.configuration = {"model": {"width": 16}}
    folder.check(changed)
    folder.prepare(changed)
    assert folder.configuration() == {"model": {"width": 16}}


def test_a_field_that_is_set_for_the_run_is_a_difference(folder):
    """... although the older configuration does not have it."""
    newer = plan("run")
    newer.configuration["model"]["new_field"] = 1
    newer.chosen = ("model.new_field",)
    with refuses(ReproduceError, "model.new_field", 1):
        folder.check(newer)


def test_logs_of_other_settings_are_put_aside(tmp_path):
    """A log is added to: its best validation could be that of the settings before."""
    folder = prepared(tmp_path, "run")
    (folder.path / "train.log").write_text("of width 8")
    folder.prepare(plan("run"))
    assert (folder.path / "train.log").exists()
    for width in (16, 32):
        changed = plan("run")
        changed.configuration = {"model": {"width": width}}
        folder.prepare(changed)
        assert folder.configuration() == changed.configuration
        assert not (folder.path / "train.log").exists()
        (folder.path / "train.log").write_text(f"of width {width}")
    assert (folder.path / "earlier-1/train.log").read_text() == "of width 8"
    assert (folder.path / "earlier-2/train.log").read_text() == "of width 16"
    other_data = plan("run")
    other_data.configuration = changed.configuration
    other_data.data_fingerprint = "def"
    folder.prepare(other_data)
    assert (folder.path / "earlier-3/train.log").read_text() == "of width 32"


def test_a_changed_command_after_the_training_is_run_again(folder):
    def with_scores(*words, python="python3"):
        made = plan("run")
        made.steps.append(Step("scores", [python, "-m", "scores", *words]))
        return made

    def pending(made):
        folder.prepare(made)
        return {step.name for step in folder.steps()} - set(
            folder.status()["steps_done"]
        )

    folder.prepare(with_scores("--data", "data"))
    folder.write_status(
        {"state": "finished", "steps_done": ["train", "scores"], "attempts": []}
    )
    moved = with_scores("--data", "/elsewhere", python="/opt/bin/python3.12")
    moved.data = "/elsewhere"
    assert pending(moved) == set()
    assert pending(with_scores("--data", "data", "--all")) == {"scores"}


def test_runs_of_one_name_must_be_one_run():
    same, other = plan("run"), plan("run")
    other.configuration = {"model": {"width": 16}, "optimization": {"max_update": 3}}
    assert len(merged([same, plan("run")])) == 1
    with refuses(ReproduceError, "run", "model.width", 8, 16):
        merged([same, other])
    other = plan("run")
    other.data_fingerprint = "def"
    with refuses(ReproduceError, "run", "data_fingerprint", "abc", "def"):
        merged([same, other])
