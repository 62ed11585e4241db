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
from fairseq_transnormer.training.config import flattened
from tests.paths import RESULTS

from .test_schema import cell_of, table


@pytest.fixture
def given(conditions):
    """The configuration of T2's run as a BLM."""
    cell = cell_of(table("table8"), "6 / 6", "T2")
    return job_of(cell).run(cell, conditions()).configuration


def changed(configuration, **values):
    """``values``: group__key -> value."""
    found = copy.deepcopy(configuration)
    for name, value in values.items():
        group, _, key = name.partition("__")
        found[group][key] = value
    return found


@pytest.mark.parametrize(
    "values",
    [
        {"common__cpu": False, "common__user_dir": "/elsewhere"},
        {"common__log_interval": 7, "common__log_format": "simple"},
        {"common__tensorboard_logdir": "x", "common__wandb_project": "x"},
        {"task__data": "/elsewhere", "dataset__num_workers": 9},
        {"checkpoint__save_dir": "x", "checkpoint__keep_interval_updates": 5},
        {"checkpoint__finetune_from_model": "x.pt"},
        {"distributed_training__distributed_port": 1234},
        {"model__backend": "torch", "model__gradient_statistics": "x.jsonl"},
        {"model__checkpoint_activations": True, "model__compile_layers": True},
        # no attention of T2 reads it
        {"model__flash_key_dim": 7, "model__long_short_window": 3},
        # fairseq's own defaults
        {"common__new_field_of_fairseq": None},
    ],
)
def test_machine_watching_and_defaults_do_not_count(given, values):
    assert settings_of(changed(given, **values)) == settings_of(given)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("model__embed_dim", 32),
        ("model__dropout", 0.3),
        ("model__block_size", 8),
        ("model__a_new_field", 1),
        ("task__mask_prob", 0.5),
        ("task__tokens_per_sample", 65),
        ("dataset__batch_size", 5),
        ("dataset__max_valid_steps", 3),
        ("dataset__batch_size_valid", 5),
        ("optimization__lr", [0.1]),
        ("optimization__max_update", 7),
        ("lr_scheduler__warmup_updates", 1),
        ("optimizer__weight_decay", 0.5),
        ("criterion___name", "cross_entropy"),
        ("common__seed", 2),
        ("common__fp16", True),
        ("optimization__clip_norm", 3.0),
    ],
)
def test_what_a_run_learns_by_counts(given, name, value):
    there, now = settings_of(given), settings_of(changed(given, **{name: value}))
    assert fingerprint_of(there) != fingerprint_of(now)
    said = differences(there, now)
    key = name.replace("__", ".", 1)
    if key == "dataset.batch_size":
        key, value = "sequences_per_update", 5
    assert any(each.startswith(f"{key}={value!r}") for each in said)


def test_what_an_attention_reads_counts(given):
    """block_size of a model with block attention; of another it does not."""
    for types, counts in (("norm*12", False), ("norm*11,diag*1", True)):
        cfg = changed(given, model__attention_types=types)
        other = changed(cfg, model__block_size=8)
        assert (settings_of(cfg) != settings_of(other)) == counts


def test_the_sequences_of_an_update_count_and_not_their_layout(given):
    def of(batch, devices, freq):
        layout = {"dataset__batch_size": batch, "optimization__update_freq": [freq]}
        world = {"distributed_training__distributed_world_size": devices}
        # it follows
        world["bmuf__distributed_world_size"] = devices
        return settings_of(changed(given, **layout, **world))

    assert of(4, 2, 1) == of(8, 1, 1) == of(2, 1, 4) == of(1, 8, 1)
    assert of(4, 2, 1) != of(4, 1, 1) and of(4, 1, 1) != of(4, 1, 2)
    assert of(8, 1, 1)["sequences_per_update"] == 8


def test_both_adams_are_one(given):
    common = {"adam_betas": "(0.9,0.98)", "weight_decay": 0.01, "lr": [0.1]}
    fused = given | {"optimizer": {"_name": "fused_adam"} | common}
    fields = {"use_old_adam": False, "fp16_adam_stats": False, "tpu": False}
    adam = given | {"optimizer": {"_name": "adam"} | common | fields}
    assert settings_of(fused) == settings_of(adam)
    assert settings_of(changed(fused, optimizer__weight_decay=0.0)) != settings_of(adam)
    radam = given | {"optimizer": {"_name": "radam"} | common}
    (said,) = differences(settings_of(adam), settings_of(radam))
    assert "adam" in said and "radam" in said and said.startswith("optimizer._name")


def test_settings_are_those_of_the_file(given):
    """As run folders have them: read again from JSON or YAML nothing is another."""
    found = settings_of(given)
    assert settings_of(json.loads(json.dumps(given))) == found
    flat = flattened(changed(given, optimizer___name="adam"))
    assert all(flat[key] == found[key] for key in found if key in flat)
    assert len(found) < len(flat) / 2


def test_fingerprints_are_those_of_other_processes():
    """Of the committed results, whose runs ended on other days."""
    frame = pandas.read_csv(RESULTS / "configurations.csv", dtype=str)
    assert len(frame) > 100
    for fingerprint, text in frame.itertuples(index=False):
        assert fingerprint_of(json.loads(text)) == fingerprint
