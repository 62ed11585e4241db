"""Cells as runs: their names, configurations, and what they need."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from fairseq_transnormer.reproduce import plan
from fairseq_transnormer.reproduce.jobs import job_of, of_seeds, with_needs
from fairseq_transnormer.reproduce.plan import batch_settings, other_values
from fairseq_transnormer.reproduce.schema import TaskPreset, load_preset
from fairseq_transnormer.reproduce.settings import settings_of
from fairseq_transnormer.training.config import get
from tests.paths import CONFIGS

from .made import refused
from .test_schema import cell_of, own, table

RATE, WARM_UP = "optimization.lr", "lr_scheduler.warmup_updates"
TUNED = "sentence_prediction:"


def name_of(cell, given, **overrides):
    changed = replace(cell, overrides=cell.overrides | overrides)
    return job_of(changed).name(changed, given)


def run_of(cell, given):
    return job_of(cell).run(cell, given)


def test_runs_are_shared_among_tables(conditions):
    smoke = conditions("smoke", seed=3)
    rows = {"table8": "6 / 6", "table9": "Block then Norm", "table10": "GLU"}
    rows |= {"table11": "64", "table12": "TransNormer"}
    cells = [cell_of(table(name), row, "T2") for name, row in rows.items()]
    assert {name_of(cell, smoke) for cell in cells} == {"smoke/blm_t2/seed3"}
    assert len(of_seeds(cells, smoke, [1, 2, 1])) == 2
    tasks = smoke.preset.tasks | {"harder": smoke.preset.task("masked_lm")}
    with refused("smoke/blm_t2", "conditions", "harder"):
        two = cells[0], replace(cells[0], conditions="harder")
        of_seeds(two, conditions("smoke", tasks=tasks), [1])
    other = name_of(cell_of(table("table8"), "3 / 9", "T2"), smoke)
    assert other.startswith("smoke/blm_t2+") and other.endswith("/seed3")
    # what a preset has anyway, or the configuration where it has nothing, is no part
    medium = conditions("medium")
    its = medium.preset.task("masked_lm").overrides[WARM_UP]
    for key, same, another in ((WARM_UP, its, 3000), (RATE, [0.0005], [1.0])):
        assert name_of(cells[0], medium, **{key: same}) == "medium/blm_t2/seed1"
        assert name_of(cells[0], medium, **{key: another}) != "medium/blm_t2/seed1"


def test_presets_scale_the_widths_that_they_name_once(conditions, monkeypatch):
    monkeypatch.setattr(plan, "_check_model", lambda model: None)  # a second each
    cell = cell_of(table("table10"), "FFN", "T2")
    full = run_of(cell, conditions("paper", gpus=1)).configuration["model"]
    small = run_of(cell, conditions("small")).configuration["model"]
    changed = {key: (full[key], small[key]) for key in full if full[key] != small[key]}
    assert {"embed_dim", "num_heads", "ffn_dim"} <= {*changed}
    # and not what none of its attentions reads
    assert {*changed} <= {*load_preset(CONFIGS, "small").scaled} - {"flash_key_dim"}
    assert (full["embed_dim"], full["ffn_dim"]) == (768, 3072)
    assert all(to == of // 12 for of, to in changed.values())
    # blocks of texts of 128 tokens for 512; a value by hand stays
    for row, size, by_hand in (("32", 8, None), ("128", 5, 5), ("128", 128, 128)):
        cell = cell_of(table("table11"), row, "T2")
        given = {"model.block_size": by_hand} if by_hand else {}
        medium = conditions("medium", overrides=given)
        given = run_of(cell, medium).configuration
        assert given["model"]["block_size"] == size
        assert given["model"]["embed_dim"] == 64
        assert bool(other_values(cell, medium, given)) == (size == 5)
    batches, medium = table("batch_sizes").cells[0], conditions("medium", gpus=2)
    for each in batches.candidates().values():
        given = run_of(each, medium).configuration
        assert not other_values(each, medium, given)
    task = replace(conditions().preset.tasks["masked_lm"], factors={"embed": 0.5})
    with refused("tiny", "'embed'", "embed_dim"):
        run_of(cell, conditions(tasks={"masked_lm": task}))
    task = replace(task, factors={}, width=0.5, scaled=[])
    with refused("tiny", "width", 0.5, "scaled"):
        run_of(cell, conditions(tasks={"masked_lm": task}))


def test_gradients_are_recorded_by_the_training_not_by_its_plan(conditions):
    cell = table("table2").cells[0]
    run = run_of(cell, conditions())
    assert get(run.configuration, "model.gradient_statistics")


def test_an_update_has_the_same_sequences_on_any_gpus(conditions, monkeypatch):
    monkeypatch.setattr(plan, "_check_model", lambda model: None)
    for sequences, most, devices in (
        (n, m, d) for n in (1, 8, 12, 128) for m in (1, 4, 256) for d in (1, 2, 3, 4, 8)
    ):
        task = TaskPreset("x", sequences_per_device=most)
        if sequences % devices:
            with refused(f"--gpus {devices}", sequences):
                batch_settings(task, devices, sequences)
            continue
        batch, (update_freq,) = batch_settings(task, devices, sequences).values()
        assert batch * update_freq * devices == sequences and batch <= most
    text = cell_of(table("table4"), "TransNormer T2", "valid_ppl")
    # of 10 images an update, which 8 devices cannot share
    images = cell_of(table("digits"), "1+elu", "test_bits")
    for cell, devices, sequences in ((text, 8, 128), (images, 2, 10)):
        cfg = run_of(cell, conditions("paper", gpus=8)).configuration
        world = get(cfg, "distributed_training.distributed_world_size")
        assert world == devices and not cfg["common"]["cpu"]
        (freq,) = cfg["optimization"]["update_freq"]
        assert cfg["dataset"]["batch_size"] * freq * world == sequences
        assert cfg["dataset"]["valid_subset"] == "valid,test"


def test_values_reach_the_configuration_and_its_name(conditions, place):
    few = {"optimization.max_update": 5}
    changes = [{}, {RATE: [0.5]}, {RATE: [0.25]}, few, few | {RATE: [0.5]}]
    changes += [{f"masked_lm:{key}": v for key, v in few.items()}]
    changes += [{"model.attention_types": "a*2,../b c"}]
    labels = [conditions(overrides=each).label for each in changes]
    assert labels[:2] == ["tiny", "tiny+optimization.lr=0.5"]
    assert len({*labels}) == len(changes)
    # keys that end alike, and a task's own value, in whatever order they are given
    other = conditions(overrides={"optimizer.lr": [0.5]})
    assert other.label not in labels
    both = {"optimization.max_update": 4, "masked_lm:optimization.max_update": 8}
    for given in (both, dict(reversed(both.items()))):
        of_task = conditions(overrides=given).overrides_of("masked_lm")
        assert of_task == {"optimization.max_update": 8}
    assert conditions(overrides={RATE: [0.5]} | few).label == labels[4]
    assert Path(labels[-1]).name == labels[-1] and " " not in labels[-1]
    given = conditions(seed=3, overrides={RATE: [0.5], "language_modeling:a.b": 1})
    run = run_of(cell_of(table("table11"), "32", "T1"), given)
    cfg = run.configuration
    assert cfg["common"]["seed"] == run.seed == 3 and run.name.endswith("/seed3")
    assert cfg["optimization"]["lr"] == cfg["lr_scheduler"]["lr"] == [0.5]
    assert cfg["task"]["data"] == str(place / "text") and run.updates == 6


@pytest.mark.parametrize("gpus", [0, 4])
def test_a_batch_that_is_given_is_an_updates(gpus, conditions):
    cell = table("batch_sizes").cells[0]
    for words, candidate in cell.candidates().items():
        run = run_of(candidate, conditions("medium", gpus=gpus))
        found = settings_of(run.configuration)
        assert words == f"dataset.batch_size={found['sequences_per_update']}"
        assert (words in run.name) == (words != "dataset.batch_size=8")
    by_hand = conditions("medium", gpus=gpus, overrides={plan.BATCH: 512})
    assert settings_of(run_of(cell, by_hand).configuration) == found
    for key, value in ((plan.BATCH, None), ("optimization.update_freq", [2])):
        with refused(key):
            run_of(cell, conditions("medium", overrides={key: value}))


@pytest.fixture
def tuned(tmp_path):
    """Cells of two fine-tunings of T2 at two rates, one of them pools otherwise."""
    columns = {"a": {"metric": "valid_accuracy"}}
    columns["b"] = {"metric": "valid_loss", "overrides": {"model.pooling": "mean"}}
    given = {"columns": columns, "overrides": {"classification": "own"}}
    given["rows"] = {"t2": {"overrides": {"model.block_size": 16}}}
    return own(tmp_path, job="finetune", sweep={RATE: [[0.1], [0.2]]}, **given).cells


def test_a_fine_tuning_needs_its_pre_training_once(tuned, conditions):
    found = of_seeds(tuned, conditions(), [1, 2, 3])
    (before,) = [name for name, (cell, _) in found.items() if cell.job == "train"]
    assert before == next(iter(found)) == "tiny/blm_t2+block_size=16/seed1"
    assert len(found) == 1 + 2 * 2 * 3
    name, (cell, given) = list(found.items())[-1]
    run = run_of(cell, given)
    assert run.name == name and run.seed == 3 and run.needs == (before,)
    start = os.path.normpath(Path("runs") / name / run.start)
    assert start == f"runs/{before}/checkpoints/checkpoint_best.pt"
    assert get(run.configuration, "checkpoint.finetune_from_model") == run.start
    scratch = replace(tuned[0], job="finetune_from_scratch")
    alone = run_of(next(iter(scratch.candidates().values())), conditions())
    assert not alone.needs and not alone.start and alone.name not in found
    # both columns of MNLI share their runs: 6 problems at 4 rates
    cells = [c for c in table("table5").cells if c.row == "TransNormer T2"]
    cells = with_needs(c for c in cells if not c.mean_of)
    paper = conditions("paper")
    names = {name_of(c, paper) for c in cells if c.job == "finetune"}
    assert len(names) == 24 and {c.seed for c in cells if c.job == "train"} == {1}


def test_the_warm_up_is_a_share_of_the_updates(tuned, conditions):
    cell = tuned[0].candidates()[f"{RATE}=0.2"]

    def settings(batch=8, **given):
        of = {f"{TUNED}optimization.{key}": value for key, value in given.items()}
        of[f"{TUNED}{plan.BATCH}"] = batch
        run = run_of(cell, conditions(overrides=of))
        assert run.updates == run.configuration["optimization"]["max_update"]
        assert run.configuration["optimization"]["lr"] == [0.2]
        return run.updates, get(run.configuration, WARM_UP)

    # 400 texts, 8 at once
    assert settings(max_epoch=3, max_update=0) == (150, round(0.06 * 150))
    assert settings(max_epoch=3, max_update=100) == (100, 6)
    assert settings(batch=16, max_epoch=3, max_update=0)[0] == 75
    with refused("max_update", 0):
        settings(max_epoch=0, max_update=0)


def test_the_model_of_a_fine_tuning_is_that_of_its_pre_training(tuned, conditions):
    """With the preset's and the user's own values of models, scaled once."""
    tasks = conditions().preset.tasks
    task = replace(tasks["masked_lm"], overrides={"model.ffn_dim": 640})
    by_hand = {"masked_lm:model.num_heads": 4, "masked_lm:optimization.lr": [0.5]}
    given = conditions(tasks=tasks | {"masked_lm": task}, overrides=by_hand)
    free, bound = (next(iter(cell.candidates().values())) for cell in reversed(tuned))
    (needed,) = job_of(bound).needs(bound)
    before, run = run_of(needed, given).configuration, run_of(bound, given)
    trained = before["model"]
    sizes = {"ffn_dim": 640 // 16, "num_heads": 4, "embed_dim": 48, "block_size": 16}
    assert {key: trained[key] for key in sizes} == sizes
    assert run.configuration["model"] == trained
    assert run.configuration["task"]["num_classes"] == 2
    # values of one task are not those of the other
    assert (get(before, RATE), get(run.configuration, RATE)) == ([0.5], [0.1])
    pooled = run_of(free, given).configuration["model"]
    assert pooled == trained | {"pooling": "mean"} != trained
    start = "checkpoint.finetune_from_model"
    freq = "optimization.update_freq"
    for key in ("model.ffn_dim", "model.nope", "model", start, "task.data", freq):
        with refused(key):
            run_of(bound, conditions(overrides={f"{TUNED}{key}": 44}))
