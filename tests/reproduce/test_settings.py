"""Which values of a configuration decide a run's figures."""

import copy
import json

import pandas
import pytest

from fairseq_transnormer.reproduce.jobs import job_of
from fairseq_transnormer.reproduce.settings import (
    differences,
    fingerprint_of,
    settings_of,
)
from tests.paths import RESULTS

from .test_schema import cell_of, table

# of the machine, of watching, unread by T2's attentions, or fairseq's own default
NOTHING = [
    {"common.cpu": False, "common.user_dir": "/elsewhere", "common.log_interval": 7},
    {"common.tensorboard_logdir": "x", "common.wandb_project": "x"},
    {"task.data": "/elsewhere", "dataset.num_workers": 9},
    {"checkpoint.save_dir": "x", "checkpoint.keep_interval_updates": 5},
    {"checkpoint.finetune_from_model": "x.pt", "common.new_field": None},
    {"distributed_training.distributed_port": 1234},
    {"model.backend": "torch", "model.gradient_statistics": "x.jsonl"},
    {"model.checkpoint_activations": True, "model.compile_layers": True},
    {"model.flash_key_dim": 7, "model.long_short_window": 3},
]
SOMETHING = {"model.embed_dim": 32, "model.dropout": 0.3, "model.block_size": 8}
SOMETHING |= {"model.a_new_field": 1, "task.mask_prob": 0.5, "common.seed": 2}
SOMETHING |= {"dataset.max_valid_steps": 3, "dataset.batch_size_valid": 5}
SOMETHING |= {"optimization.lr": [0.1], "optimization.max_update": 7}
SOMETHING |= {"lr_scheduler.warmup_updates": 1, "optimizer.weight_decay": 0.5}
SOMETHING |= {"criterion._name": "cross_entropy", "task.tokens_per_sample": 65}
SOMETHING |= {"common.fp16": True, "optimization.clip_norm": 3.0}


@pytest.fixture
def given(conditions):
    """The configuration of T2's run as a BLM."""
    cell = cell_of(table("table8"), "6 / 6", "T2")
    return job_of(cell).run(cell, conditions()).configuration


def changed(configuration, values):
    found = copy.deepcopy(configuration)
    for name, value in values.items():
        group, _, key = name.partition(".")
        found[group][key] = value
    return found


def test_what_counts_and_what_does_not(given):
    usual = settings_of(given)
    for values in NOTHING:
        assert settings_of(changed(given, values)) == usual, values
    for key, value in SOMETHING.items():
        now = settings_of(changed(given, {key: value}))
        assert fingerprint_of(now) != fingerprint_of(usual)
        said = differences(usual, now)
        assert any(each.startswith(f"{key}={value!r}") for each in said), key
    assert settings_of(json.loads(json.dumps(given))) == usual
    # of a model with block attention its blocks; of another nothing reads them
    for types, counts in (("norm*12", False), ("norm*11,diag*1", True)):
        cfg = changed(given, {"model.attention_types": types})
        other = changed(cfg, {"model.block_size": 8})
        assert (settings_of(cfg) != settings_of(other)) == counts


def test_the_sequences_of_an_update_count_and_not_their_layout(given):
    def of(batch, devices, freq):
        layout = {"dataset.batch_size": batch, "optimization.update_freq": [freq]}
        layout |= {"distributed_training.distributed_world_size": devices}
        # it follows
        layout |= {"bmuf.distributed_world_size": devices}
        return settings_of(changed(given, layout))

    assert of(4, 2, 1) == of(8, 1, 1) == of(2, 1, 4) == of(1, 8, 1)
    assert of(4, 2, 1) != of(4, 1, 1) and of(4, 1, 1) != of(4, 1, 2)
    assert of(8, 1, 1)["sequences_per_update"] == 8


def test_both_adams_are_one(given):
    common = {"adam_betas": "(0.9,0.98)", "weight_decay": 0.01, "lr": [0.1]}
    fields = {"use_old_adam": False, "fp16_adam_stats": False, "tpu": False}
    adam = settings_of(given | {"optimizer": {"_name": "adam"} | common | fields})
    fused = given | {"optimizer": {"_name": "fused_adam"} | common}
    assert settings_of(fused) == adam
    assert settings_of(changed(fused, {"optimizer.weight_decay": 0.0})) != adam
    radam = settings_of(given | {"optimizer": {"_name": "radam"} | common})
    (said,) = differences(adam, radam)
    assert said.startswith("optimizer._name='radam'")


def test_fingerprints_are_those_of_other_processes():
    """Of the committed results, whose runs ended on other days."""
    frame = pandas.read_csv(RESULTS / "configurations.csv", dtype=str)
    assert len(frame) > 100
    for fingerprint, text in frame.itertuples(index=False):
        assert fingerprint_of(json.loads(text)) == fingerprint
