"""Which values of a configuration decide a run's figures."""

import copy
import json

import pandas

from fairseq_transnormer.reproduce.settings import differences, fingerprint_of
from fairseq_transnormer.reproduce.settings import settings_of as of
from tests.paths import RESULTS

from .test_plan import run_of
from .test_schema import cell_of, table

# of the machine, of watching, unread by T2's attentions, or fairseq's own default
NOTHING = {"common.cpu": False, "common.user_dir": "/x", "common.log_interval": 7}
NOTHING |= {"common.tensorboard_logdir": "x", "common.wandb_project": "x"}
NOTHING |= {"task.data": "/x", "dataset.num_workers": 9, "common.new_field": None}
NOTHING |= {"checkpoint.save_dir": "x", "checkpoint.keep_interval_updates": 5}
NOTHING |= {"checkpoint.finetune_from_model": "x.pt", "model.backend": "torch"}
NOTHING |= {"distributed_training.distributed_port": 1234, "model.flash_key_dim": 7}
NOTHING |= {"model.gradient_statistics": "x.jsonl", "model.compile_layers": True}
SOMETHING = {"model.embed_dim": 32, "model.dropout": 0.3, "model.block_size": 8}
SOMETHING |= {"model.a_new_field": 1, "task.mask_prob": 0.5, "common.seed": 2}
SOMETHING |= {"dataset.max_valid_steps": 3, "dataset.batch_size_valid": 5}
SOMETHING |= {"optimization.lr": [0.1], "optimization.max_update": 7}
SOMETHING |= {"lr_scheduler.warmup_updates": 1, "optimizer.weight_decay": 0.5}
SOMETHING |= {"criterion._name": "cross_entropy", "task.tokens_per_sample": 65}
SOMETHING |= {"common.fp16": True, "optimization.clip_norm": 3.0}


def changed(configuration, values):
    found = copy.deepcopy(configuration)
    for name, value in values.items():
        group, _, key = name.partition(".")
        found[group][key] = value
    return found


def test_what_counts_and_what_does_not(conditions):
    given = run_of(cell_of(table("table8"), "6 / 6", "T2"), conditions()).configuration
    usual = of(given)
    assert of(json.loads(json.dumps(given))) == usual
    for key, value in NOTHING.items():
        assert of(changed(given, {key: value})) == usual, key
    for key, value in SOMETHING.items():
        now = of(changed(given, {key: value}))
        assert fingerprint_of(now) != fingerprint_of(usual)
        said = differences(usual, now)
        assert any(each.startswith(f"{key}={value!r}") for each in said), key
    # of a model with block attention its blocks; of another nothing reads them
    for types, counts in (("norm*12", False), ("norm*11,diag*1", True)):
        cfg = changed(given, {"model.attention_types": types})
        assert (of(cfg) != of(changed(cfg, {"model.block_size": 8}))) == counts

    def laid_out(batch, devices, freq, steps=None):
        layout = {"dataset.batch_size": batch, "optimization.update_freq": [freq]}
        layout |= {"dataset.batch_size_valid": batch, "dataset.max_valid_steps": steps}
        for group in ("distributed_training", "bmuf"):  # which follows it
            layout[f"{group}.distributed_world_size"] = devices
        return of(changed(given, layout))

    assert laid_out(4, 2, 1) == laid_out(8, 1, 1) == laid_out(2, 1, 4)
    assert laid_out(8, 1, 1)["sequences_per_update"] == 8
    assert laid_out(4, 2, 1) != laid_out(4, 1, 1) != laid_out(4, 1, 2)
    assert laid_out(4, 2, 1, 9) == laid_out(8, 1, 1, 9) != laid_out(4, 1, 2, 9)
    # both Adams are one, and not another one
    common = {"adam_betas": "(0.9,0.98)", "weight_decay": 0.01, "lr": [0.1]}
    fields = {"use_old_adam": False, "fp16_adam_stats": False, "tpu": False}
    adam = of(given | {"optimizer": {"_name": "adam"} | common | fields})
    fused = given | {"optimizer": {"_name": "fused_adam"} | common}
    assert of(fused) == adam != of(changed(fused, {"optimizer.weight_decay": 0.0}))
    radam = of(given | {"optimizer": {"_name": "radam"} | common})
    (said,) = differences(adam, radam)
    assert said.startswith("optimizer._name='radam'")


def test_fingerprints_are_those_of_other_processes():
    """Of the committed results, whose runs ended on other days."""
    frame = pandas.read_csv(RESULTS / "configurations.csv", dtype=str)
    assert len(frame) > 100
    for fingerprint, text in frame.itertuples(index=False):
        assert fingerprint_of(json.loads(text)) == fingerprint
