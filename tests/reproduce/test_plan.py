"""Cells as runs: their names, configurations, and what they need."""

import math
import os
from dataclasses import replace
from pathlib import Path

import pytest

from fairseq_transnormer.reproduce import finetune
from fairseq_transnormer.reproduce.errors import ReproduceError
from fairseq_transnormer.reproduce.jobs import job_of, of_seeds, with_needs
from fairseq_transnormer.reproduce.plan import DECIDED_BY, NEVER, batches
from fairseq_transnormer.reproduce.schema import TaskPreset, load_preset, names_in
from fairseq_transnormer.training.config import ConfigurationError, get
from tests.messages import refuses
from tests.paths import CONFIGS

from .test_schema import cell_of, own, table

RATE = "optimization.lr"
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
    other = name_of(cell_of(table("table8"), "3 / 9", "T2"), smoke)
    assert other.startswith("smoke/blm_t2+") and other.endswith("/seed3")


def test_what_a_preset_has_anyway_is_no_part_of_a_name(conditions):
    medium = conditions("medium")
    cell = cell_of(table("table8"), "6 / 6", "T2")
    values = medium.preset.overrides | medium.preset.task("masked_lm").overrides
    warm_up, usual = "lr_scheduler.warmup_updates", name_of(cell, medium)
    # the preset's, and the configuration's where the preset has none
    for key, same, other in ((warm_up, values[warm_up], 3000), (RATE, [0.0005], [1.0])):
        assert name_of(cell, medium, **{key: same}) == usual
        assert name_of(cell, medium, **{key: other}) != usual


def test_presets_scale_the_widths_that_they_name_once(conditions):
    cell = cell_of(table("table10"), "FFN", "T2")
    full = run_of(cell, conditions("paper", gpus=1)).configuration["model"]
    small = run_of(cell, conditions("small")).configuration["model"]
    changed = {key: (full[key], small[key]) for key in full if full[key] != small[key]}
    assert {"embed_dim", "num_heads", "ffn_dim"} <= {*changed}
    assert {*changed} <= {*load_preset(CONFIGS, "small").scaled}
    assert (full["embed_dim"], full["ffn_dim"]) == (768, 3072)
    assert all(to == of // 12 for of, to in changed.values())


def test_sizes_with_a_factor_of_their_own_and_by_hand(conditions):
    """Texts of 128 tokens for 512, and blocks likewise; a value by hand stays."""
    for row, size, by_hand in (("32", 8, {}), ("128", 5, {"model.block_size": 5})):
        cell = cell_of(table("table11"), row, "T2")
        model = run_of(cell, conditions("medium", overrides=by_hand)).configuration
        assert model["model"]["block_size"] == size
        assert model["model"]["embed_dim"] == 64
    # no attention of T2 reads it, so that it stays the paper's
    assert model["model"].get("flash_key_dim") in (None, 128)
    task = replace(conditions().preset.tasks["masked_lm"], factors={"embed": 0.5})
    with refuses(ReproduceError, "tiny", "'embed'", "embed_dim"):
        run_of(cell, conditions(tasks={"masked_lm": task}))


@pytest.mark.parametrize("sequences", [1, 8, 12, 128])
def test_an_update_has_the_same_sequences_on_any_gpus(sequences):
    for most in (1, 4, 8, 256):
        task = TaskPreset("x", sequences_per_device=most)
        for devices in (1, 2, 3, 4, 8):
            if sequences % devices:
                with refuses(ReproduceError, f"--gpus {devices}", sequences):
                    batches(task, devices, sequences)
                continue
            found = batches(task, devices, sequences)
            assert found.batch * found.update_freq * devices == sequences
            assert found.batch <= most


def test_gpus_reach_the_configuration(conditions):
    cell = cell_of(table("table4"), "TransNormer T2", "valid_ppl")
    for gpus, devices in ((0, 1), (1, 1), (8, 8)):
        cfg = run_of(cell, conditions("paper", gpus=gpus)).configuration
        world = get(cfg, "distributed_training.distributed_world_size")
        assert (world, cfg["common"]["cpu"]) == (devices, gpus == 0)
        (freq,) = cfg["optimization"]["update_freq"]
        assert cfg["dataset"]["batch_size"] * freq * world == 128
        assert cfg["dataset"]["valid_subset"] == "valid,test"
    images = cell_of(table("digits"), "1+elu", "test_bits")
    cfg = run_of(images, conditions("paper", gpus=8)).configuration
    # 10 images an update, which 8 devices cannot share
    assert get(cfg, "distributed_training.distributed_world_size") == 2
    assert cfg["dataset"]["batch_size"] == 5
    assert cfg["model"]["attention_types"] == "linear*8"
    assert (cfg["model"]["embed_dim"], cfg["model"]["ffn_dim"]) == (256, 1024)


def test_values_reach_the_configuration_and_its_followers(conditions, place):
    given = conditions(seed=3, overrides={RATE: [0.5], "language_modeling:a.b": 1})
    cell = cell_of(table("table11"), "32", "T1")
    run = run_of(cell, given)
    cfg = run.configuration
    assert cfg["common"]["seed"] == run.seed == 3 and run.name.endswith("/seed3")
    assert cfg["optimization"]["lr"] == cfg["lr_scheduler"]["lr"] == [0.5]
    assert cfg["task"]["data"] == str(place / "text")
    assert run.updates == given.preset.overrides["optimization.max_update"]


def test_what_the_runner_decides_and_what_leaves_no_figure(conditions):
    cell = cell_of(table("table1"), "NormAttention", "valid_ppl")
    never = {key: True for key in NEVER}
    assert len(DECIDED_BY) > 8 and len(NEVER) == 3
    for key, value in (dict.fromkeys(DECIDED_BY, "x") | never).items():
        with refuses(ReproduceError, key, alone=True):
            run_of(cell, conditions(overrides={key: value}))
        by_row = replace(cell, overrides=cell.overrides | {key: value})
        with refuses(ReproduceError, key, alone=True):
            run_of(by_row, conditions())


@pytest.mark.parametrize(
    ("key", "value", "parts"),
    [
        ("model.num_heads", 0, ["num_heads=0"]),
        ("model.block_sizee", 8, ["block_sizee"]),
        ("model.attention_types", "nothing*12", ["nothing"]),
        ("optimization.max_update", 0, ["max_update=0", 1]),
        ("optimization.max_updates", 4, ["max_updates", "max_update"]),
        ("optimisation.lr", [1], ["optimisation"]),
        ("optimization.max_update", "ten", ["max_update", "ten"]),
    ],
)
def test_values_that_are_refused_before_any_run(conditions, key, value, parts):
    cell = cell_of(table("table1"), "NormAttention", "valid_ppl")
    with refuses((ReproduceError, ConfigurationError), *parts, alone=True):
        run_of(cell, conditions(overrides={key: value}))


def test_what_a_command_changes_is_in_the_name(conditions):
    changes = [
        {},
        {RATE: [0.5]},
        {RATE: [0.25]},
        {"optimization.max_update": 5},
        {"masked_lm:optimization.max_update": 5},
        {"optimization.max_update": 5, RATE: [0.5]},
    ]
    labels = [conditions(overrides=each).label for each in changes]
    assert labels[0] == "tiny" and labels[1] == "tiny+lr=0.5"
    assert len({*labels}) == len(changes)
    assert conditions(overrides=dict(reversed(changes[5].items()))).label == labels[5]
    strange = conditions(overrides={"model.attention_types": "a*2,../b c"}).label
    assert Path(strange).name == strange and " " not in strange


@pytest.mark.slow  # seconds, and tests/rows.py trains a row of each kind
def test_every_row_is_planned(conditions):
    given = conditions("smoke")
    tables = [table(name) for name in names_in(CONFIGS / "tables")]
    cells = [cell for each in tables for cell in each.cells if not cell.mean_of]
    trained = [cell for cell in with_needs(cells) if cell.job == "train"]
    found = of_seeds(trained, given, [1])
    assert len(found) > 100
    for name, (cell, its) in found.items():
        run = run_of(cell, its)
        assert run.name == name
        kept = {k: v for k, v in cell.overrides.items() if k.startswith("optim")}
        assert all(get(run.configuration, key) == v for key, v in kept.items())


@pytest.fixture
def tuned(tmp_path):
    """A fine-tuning of T2 at two rates."""
    columns = {"a": {"metric": "valid_accuracy"}}
    columns["b"] = {"metric": "valid_loss", "overrides": {"model.pooling": "mean"}}
    rows = {"t2": {"overrides": {"model.block_size": 16}}}
    made = own(
        tmp_path, columns=columns, rows=rows, job="finetune",
        overrides={"classification": "own"}, sweep={RATE: [[0.1], [0.2]]},
    )  # fmt: skip
    return made.cells


def test_a_fine_tuning_needs_its_pre_training_once(tuned, conditions):
    found = of_seeds(tuned, conditions(), [1, 2, 3])
    before = [name for name, (cell, _) in found.items() if cell.job == "train"]
    assert before == ["tiny/blm_t2+block_size=16/seed1"]
    # two rates and two columns with other models' heads, each thrice
    assert len(found) == 1 + 2 * 2 * 3
    assert next(iter(found)) == before[0]
    for name, (cell, given) in list(found.items())[1:]:
        run = run_of(cell, given)
        assert run.name == name and run.needs == (before[0],)
        start = os.path.normpath(Path("runs") / name / run.start)
        assert start == f"runs/{before[0]}/checkpoints/checkpoint_best.pt"
        assert get(run.configuration, "checkpoint.finetune_from_model") == run.start
        break
    scratch = replace(tuned[0], job="finetune_from_scratch")
    alone = run_of(next(iter(scratch.candidates().values())), conditions())
    assert not alone.needs and not alone.start and alone.name not in found


def test_the_warm_up_is_a_share_of_the_updates(tuned, conditions):
    cell = next(iter(tuned[0].candidates().values()))

    def settings(**given):
        of = {f"{TUNED}optimization.{key}": value for key, value in given.items()}
        run = run_of(cell, conditions(overrides=of))
        assert run.updates == run.configuration["optimization"]["max_update"]
        return run.updates, run.configuration["lr_scheduler"]["warmup_updates"]

    # 400 texts, 8 at once
    for epochs in (1, 3):
        updates = math.ceil(400 / 8) * epochs
        found = settings(max_epoch=epochs, max_update=0)
        assert found == (updates, round(0.06 * updates))
    assert settings(max_epoch=3, max_update=100) == (100, 6)
    assert settings(max_epoch=0, max_update=100) == (100, 6)
    with refuses(ReproduceError, "max_update=0"):
        settings(max_epoch=0, max_update=0)


def test_the_model_of_a_fine_tuning_is_that_of_its_pre_training(tuned, conditions):
    """With the preset's and the user's own values of models, scaled once."""
    preset = conditions().preset
    task = replace(preset.tasks["masked_lm"], overrides={"model.ffn_dim": 640})
    changes = {"tasks": preset.tasks | {"masked_lm": task}}
    changes["overrides"] = {"masked_lm:model.num_heads": 4}
    given = conditions(**changes)
    free, bound = (next(iter(cell.candidates().values())) for cell in reversed(tuned))
    (needed,) = job_of(bound).needs(bound)
    trained = run_of(needed, given).configuration["model"]
    sizes = {"ffn_dim": 640 // 16, "num_heads": 4, "embed_dim": 48, "block_size": 16}
    assert {key: trained[key] for key in sizes} == sizes
    run = run_of(bound, given)
    assert run.configuration["model"] == trained
    assert run.configuration["task"]["num_classes"] == 2
    pooled = run_of(free, given).configuration["model"]
    assert pooled == trained | {"pooling": "mean"} != trained
    start = "checkpoint.finetune_from_model"
    for key in ("model.ffn_dim", "model.nope", "model", start, "task.data"):
        with refuses(ReproduceError, key, alone=True):
            run_of(bound, conditions(overrides={f"{TUNED}{key}": 44}))


def test_values_of_one_task_are_not_those_of_the_other(tuned, conditions):
    rates = {"masked_lm:optimization.lr": [0.5], f"{TUNED}optimization.max_update": 7}
    bound = tuned[0].candidates()[f"{RATE}=0.2"]
    (needed,) = job_of(bound).needs(bound)
    given = conditions(overrides=rates)
    before, after = run_of(needed, given), run_of(bound, given)
    assert before.configuration["optimization"]["lr"] == [0.5]
    assert after.configuration["optimization"]["lr"] == [0.2]
    assert (before.updates, after.updates) == (6, 7)


def test_the_papers_fine_tunings(conditions):
    cells = [c for c in table("table5").cells if c.row == "TransNormer T2"]
    cells = with_needs(c for c in cells if not c.mean_of)
    paper = conditions("paper")
    names = {name_of(c, paper) for c in cells if c.job == "finetune"}
    # both columns of MNLI share their runs: 6 problems at 4 rates
    assert len(names) == 24
    assert {c.seed for c in cells if c.job == "train"} == {1}


def test_a_table_of_a_checkpoint_has_the_papers_columns():
    printed = [c for c in table("table5").columns if c not in ("AVG", "params_m")]
    path = CONFIGS / "none.pt"
    with refuses(ReproduceError, "'mrcp'", "cola", "mrpc", "own", alone=True):
        finetune.checkpoint_table(CONFIGS, path, ["mrcp"], [0.1])
    with refuses(ReproduceError, path, alone=True):
        finetune.checkpoint_table(CONFIGS, path, ["all"], [0.1])
    assert [c for p in finetune.PAPERS for c, _ in finetune._columns_of(p)] == printed
