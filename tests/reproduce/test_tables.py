"""The tables of configs/: their figures, and that every row composes and builds."""

import re
from dataclasses import replace
from types import SimpleNamespace

import pytest
from fairseq.models import MODEL_REGISTRY
from omegaconf import OmegaConf

from fairseq_transnormer.modules.registry import parse_attention_types
from fairseq_transnormer.reproduce.errors import ReproduceError
from fairseq_transnormer.reproduce.registry import JOBS
from fairseq_transnormer.reproduce.runs.metrics import METRICS
from fairseq_transnormer.reproduce.tables import corpora
from fairseq_transnormer.reproduce.tables.definitions import (
    chosen_cells,
    load_tables,
    with_sweep_values,
)
from fairseq_transnormer.reproduce.tables.jobs import Conditions, job_of
from fairseq_transnormer.reproduce.tables.presets import load_preset
from fairseq_transnormer.training.config import get
from tests import rows
from tests.messages import refuses
from tests.models import building
from tests.paths import CONFIGS
from tests.tiny_data import write_tiny_data

TABLES = {table.name: table for table in load_tables(CONFIGS, ["all"])}


def run_of(cell) -> tuple:
    """What trains: the configuration and what is changed in it."""
    return cell.config, *map(str, cell.overrides.items())


# one of each: what is shared among tables is built once
RUNS = {
    run_of(cell): cell
    for table in TABLES.values()
    for cell in table.cells
    if cell.job == "hydra_train"
}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = write_tiny_data(tmp_path_factory.mktemp("data"))
    for kind in ("bin", "idx"):
        (folder / f"test.{kind}").write_bytes((folder / f"valid.{kind}").read_bytes())
    return folder


def conditions(data, preset="smoke", **options) -> Conditions:
    loaded = load_preset(CONFIGS, preset)
    tasks = dict.fromkeys(loaded.tasks, str(data))
    return Conditions(CONFIGS, CONFIGS.parent, loaded, data=tasks, **options)


def plan_of(table, row, column, *arguments, **options):
    cell = TABLES[table].cell(row, column)
    return job_of(cell).plan(cell, conditions(*arguments, **options))


def test_the_papers_tables_are_all_there():
    assert set(TABLES) >= {f"table{n}" for n in range(1, 13)} | {"figure1", "figure2"}


def runs():
    """Slow are those that tests/rows.py trains, and those like earlier ones.

    Rows are alike where others of the same configuration set the same keys of the
    model, and others the same keys and files.
    """
    trained = {run_of(cell) for cell in rows.trained()}
    seen = set()
    for run, cell in sorted(RUNS.items(), key=lambda each: each[0] not in trained):
        of = (cell.config, cell.conditions)
        kinds = {of, *((of, k) for k in cell.overrides if k.startswith("model."))}
        kinds |= {(k, "." in k or v) for k, v in cell.overrides.items()}
        marks = [pytest.mark.slow] * (run in trained or kinds <= seen)
        seen |= kinds
        yield pytest.param(cell, marks=marks, id=f"{cell.config}-{cell.row}")


@pytest.mark.parametrize("cell", list(runs()))
def test_every_row_composes_and_takes_a_step(cell, data):
    plan = job_of(cell).plan(cell, conditions(data))
    cfg = OmegaConf.create(plan.configuration["model"])
    task = building.task()
    task.optimizer_step = None
    model = MODEL_REGISTRY[cfg._name].build_model(cfg, task)
    model(building.draw_tokens(2, 9))[0].square().sum().backward()
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    assert gradients and all(each.isfinite().all() for each in gradients)
    assert METRICS.find(cell.metric)
    preset = load_preset(CONFIGS, "smoke")
    own = preset.task(cell.conditions).scaled if cell.conditions else None
    scaled = preset.scaled if own is None else own
    for key, value in cell.overrides.items():
        name = key.removeprefix("model.")
        # a key without a dot chooses a file
        if "." in key and name not in scaled:
            assert get(plan.configuration, key) == value


def test_every_rows_attention_is_there():
    """Of the slow rows, too, which differ in it from an earlier one."""
    given = [cell.overrides.get("model.attention_types") for cell in RUNS.values()]
    names = [name for types in given if types for name in parse_attention_types(types)]
    assert {"diag_then_norm", "norm_then_diag", "diag_beside_norm"} <= set(names)


def test_figures_are_the_papers():
    """Read off the paper."""
    expected = {
        ("table1", "1+elu w/o scaling", "valid_ppl"): 797.08,
        ("table2", "Performer", "gradient_rsd"): 0.47,
        ("table3", "Vanilla / 1+elu", "valid_ppl"): 3.76,
        ("table4", "LS", "test_ppl"): 32.59,
        ("table4", "TransNormer T2", "params_m"): 155.99,
        ("table5", "TransNormer T1", "AVG"): 79.38,
        ("table5", "LS", "MNLI-mm"): 76.78,
        ("table6", "Skyformer", "Pathfinder"): 70.73,
        ("table6", "TransNormer T2", "AVG"): 64.80,
        ("table7", "LS", "train_5K"): 4.76,
        ("table7", "Transformer", "infer_3K"): None,
        ("table8", "12 / 0", "T1"): 4.75,
        ("table9", "Norm then Block", "T2"): 4.21,
        ("table10", "FFN", "T2"): 3.93,
        ("table11", "128", "T2"): 3.69,
        ("table12", "parallel", "T1"): 3.77,
    }
    for (table, row, column), figure in expected.items():
        assert TABLES[table].cell(row, column).paper == figure


def test_runs_are_shared_among_tables(data):
    rows = [
        ("table8", "6 / 6"), ("table9", "Block then Norm"), ("table10", "GLU"),
        ("table11", "64"), ("table12", "TransNormer"),
    ]  # fmt: skip
    cells = [TABLES[table].cell(row, "T2") for table, row in rows]
    names = {job_of(cell).name(cell, conditions(data)) for cell in cells}
    assert names == {"smoke/blm_t2/seed1"}
    other = TABLES["table8"].cell("3 / 9", "T2")
    assert job_of(other).name(other, conditions(data)) not in names


def test_the_paper_preset_is_the_specification(data):
    alm = plan_of("table4", "TransNormer T2", "valid_ppl", data, "paper", gpus=8)
    assert alm.configuration["model"]["embed_dim"] == 512
    assert alm.configuration["optimization"]["max_update"] == 100_000
    blm = plan_of("table10", "FFN", "T1", data, "paper", gpus=4)
    assert blm.configuration["model"]["ffn_dim"] == 3072
    for plan, devices, sequences in ((alm, 8, 128), (blm, 4, 512)):
        cfg = plan.configuration
        assert cfg["distributed_training"]["distributed_world_size"] == devices
        batch = cfg["dataset"]["batch_size"] * cfg["optimization"]["update_freq"][0]
        assert batch * devices == sequences


def test_small_scales_every_width_alike_and_nothing_else(data):
    small = plan_of("table10", "FFN", "T2", data, "small").configuration["model"]
    full = plan_of("table10", "FFN", "T2", data, "paper", gpus=1).configuration["model"]
    changed = {key: (full[key], small[key]) for key in full if full[key] != small[key]}
    assert {"embed_dim", "num_heads", "ffn_dim"} <= set(changed)
    assert set(changed) <= set(load_preset(CONFIGS, "small").scaled)
    assert all(small == large // 12 for large, small in changed.values())


def test_a_table_may_have_conditions_of_its_own(data):
    """Those of "Transformers are RNNs", as far as the paper prints them."""
    rows = ("Softmax", "LSH-1", "LSH-4", "1+elu", "NormAttention", "TransNormer T2")
    for row in rows:
        cfg = plan_of("copy_task", row, "test_loss", data, "paper").configuration
        model = cfg["model"]
        counts = [int(n) for n in re.findall(r"\*(\d+)", model["attention_types"])]
        assert sum(counts) == 4
        assert (model["num_heads"], cfg["dataset"]["batch_size"]) == (8, 64)
        assert cfg["optimizer"]["_name"] == "radam"
        assert cfg["optimization"]["lr"] == cfg["lr_scheduler"]["lr"] == [1e-3]
        decay = cfg["lr_scheduler"]
        assert (decay["lr_deacy_period"], decay["min_lr"]) == (3000, 1e-4)
        assert cfg["criterion"] == {"_name": "partial_cross_entropy", "separator": "|"}
    images = plan_of("digits", "1+elu", "test_bits", data, "paper", gpus=8)
    cfg = images.configuration
    # 10 images an update, which 8 devices cannot share
    assert cfg["distributed_training"]["distributed_world_size"] == 2
    assert cfg["dataset"]["batch_size"] == 5
    assert cfg["model"]["attention_types"] == "linear*8"
    assert (cfg["model"]["embed_dim"], cfg["model"]["ffn_dim"]) == (256, 1024)
    assert cfg["criterion"]["separator"] is None
    assert cfg["optimization"]["lr"] == [1e-4]


def test_conditions_of_its_own_have_their_own_scaled_fields(data):
    model = plan_of("digits", "TransNormer T2", "test_bits", data, "small")
    model = model.configuration["model"]
    assert (model["embed_dim"], model["ffn_dim"], model["block_size"]) == (64, 170, 16)
    plan = plan_of("table4", "TransNormer T2", "valid_ppl", data, "small")
    assert plan.configuration["model"]["block_size"] == 64


def test_sizes_with_a_factor_of_their_own(data):
    """Texts of 128 tokens for 512, and blocks likewise."""
    same = plan_of("table8", "6 / 6", "T2", data, "medium")
    for row, block_size in (("32", 8), ("64", 16), ("128", 32)):
        plan = plan_of("table11", row, "T2", data, "medium")
        assert plan.configuration["model"]["block_size"] == block_size
        assert plan.configuration["model"]["embed_dim"] == 64
        assert (plan.name == same.name) == (row == "64")
    overrides = {"model.block_size": 5}
    plan = plan_of("table8", "6 / 6", "T2", data, "medium", overrides=overrides)
    assert plan.configuration["model"]["block_size"] == 5


def test_only_the_missing_data_are_made(tmp_path, monkeypatch):
    preset = load_preset(CONFIGS, "smoke")
    ran = []

    def run(command, cwd):
        ran.append(" ".join(command[2:4]))
        folder = tmp_path / command[command.index("--dest") + 1]
        folder.mkdir(parents=True)
        for name in corpora.FILES:
            (folder / name).touch()
        return SimpleNamespace(returncode=0)

    monkeypatch.setattr(corpora.subprocess, "run", run)
    needed = [
        corpora.Text(tmp_path / preset.task(name).data, name)
        for name in ("digits", "copy_task")
    ]
    corpora.require(preset, needed, tmp_path, prepare=False)
    assert ran == ["data_prep copy_task", "data_prep digits"]
    corpora.require(preset, needed, tmp_path, prepare=False)
    assert len(ran) == 2
    # of a folder that the user names the commands would make another one
    mine = corpora.Text(tmp_path / "mine", "digits")
    with pytest.raises(ReproduceError, match="mine: no dict.txt"):
        corpora.require(preset, [mine], tmp_path, prepare=True)
    assert len(ran) == 2


def test_data_that_no_command_makes_are_not_promised(tmp_path):
    preset = load_preset(CONFIGS, "smoke")
    images = corpora.Text(tmp_path / preset.task("cifar10").data, "cifar10")
    with refuses(ReproduceError, images.folder, "no dict.txt", "--data") as told:
        corpora.require(preset, [images], tmp_path, prepare=True)
    assert "--prepare" not in str(told.value)


def test_seed_and_settings_reach_the_configuration(data):
    plan = plan_of(
        "table11", "32", "T1", data, seed=3, overrides={"optimization.lr": [0.5]}
    )
    assert plan.configuration["common"]["seed"] == plan.seed == 3
    assert plan.name.endswith("/seed3")
    assert plan.configuration["optimization"]["lr"] == [0.5]
    assert plan.configuration["lr_scheduler"]["lr"] == [0.5]


def test_jobs_and_metrics_may_be_named_by_module():
    found = METRICS.find("fairseq_transnormer.reproduce.runs.metrics:parameters")
    assert found is METRICS.find("params_m")
    with refuses(ReproduceError, "job", "'nothing'", *JOBS.names()):
        JOBS.find("nothing")
    with refuses(ReproduceError, "'no.such:thing'"):
        METRICS.find("no.such:thing")


def written_table(tmp_path, rows, columns="{a: {config: blm, metric: valid_ppl}}"):
    path = tmp_path / "mine.yaml"
    path.write_text(f"title: x\ncolumns: {columns}\nrows: {rows}\n")
    (table,) = load_tables(CONFIGS, [str(path)])
    return table


def test_a_metric_that_there_is_not_is_told_before_any_training(tmp_path):
    columns = "{a: {config: blm, metric: valid_pppl}}"
    with refuses(ReproduceError, "row r", "column a", "valid_pppl", "valid_ppl"):
        written_table(tmp_path, "{r: {system: t1}}", columns)


def test_rows_and_columns_without_a_run_in_common():
    table4, table6 = TABLES["table4"], TABLES["table6"]
    assert chosen_cells([table4, table6], ["Vanilla"])
    with refuses(ReproduceError, "'Vanilla'", "'ListOps'", "table4", "table6"):
        chosen_cells([table4, table6], ["Vanilla"], ["ListOps"])
    (mean,) = {cell.column for cell in table6.cells if cell.mean_of}
    with refuses(ReproduceError, "--columns", mean, "table6"):
        chosen_cells([table6], None, [mean])
    with refuses(ReproduceError, "'ppl'", "table4"):
        chosen_cells([table4], None, None, {"table4": ["ppl"]})


def test_a_systems_name_is_its_row(tmp_path):
    rows = "{cosformer: {}, ls: {label: Long-short}, mine: {system: t1}, own: {}}"
    table = written_table(tmp_path, rows)
    assert table.rows == ["cosFormer", "Long-short", "mine", "own"]
    models = [cell.overrides.get("model") for cell in table.cells]
    assert models == ["blm_cosformer", "blm_ls", "blm_t1", None]
    columns = "{a: {config: lra, system: t1, metric: test_accuracy}}"
    (cell,) = written_table(tmp_path, "{cosformer: {}}", columns).cells
    assert cell.overrides == {"model": "lra_cosformer"}


def test_a_preset_sweeps_beside_the_tables():
    medium = load_preset(CONFIGS, "medium")
    table4, table8 = load_tables(CONFIGS, ["table4", "table8"], medium)
    rates = medium.sweeps["table4"]["optimization.lr"]
    cell = table4.cell("Vanilla", "test_ppl")
    tried = [each.overrides["optimization.lr"] for each in cell.candidates()]
    assert tried == rates and len(rates) > 2 and table4.sweep == medium.sweeps["table4"]
    assert not table8.sweep and len(table8.cell("6 / 6", "T1").candidates()) == 1
    # the table's own values stay, and what has no run has no sweep
    own = replace(medium, sweeps={"table5": {"optimization.lr": [[1.0]], "a": [1, 2]}})
    (table5,) = load_tables(CONFIGS, ["table5"], own)
    assert [len(table5.sweep[key]) for key in ("optimization.lr", "a")] == [4, 2]
    counts = {c.column: len(c.candidates()) for c in table5.cells}
    assert counts["CoLA"] == 8 and counts["AVG"] == counts["params_m"] == 1


def test_a_value_of_a_sweep_is_one_of_each_table_that_sweeps():
    tables = load_tables(CONFIGS, ["table5", "topics", "table8"])
    rate, both = "optimization.lr", [0.00003]
    first, second, third = with_sweep_values(tables, {rate: both})
    assert first.sweep[rate] == second.sweep[rate] == [both] and not third.sweep
    with refuses(ReproduceError, rate, 0.0003, "table5", 0.0001):
        with_sweep_values(tables, {rate: [0.0003]})


@pytest.mark.parametrize(
    "names",
    [
        {"not_in_all": ["table44"]},
        {"columns": {"table44": ["test_ppl"]}},
        {"sweeps": {"table44": {"optimization.lr": [[0.1]]}}},
    ],
)
def test_a_preset_speaks_of_tables_that_there_are(names, tmp_path):
    medium = replace(load_preset(CONFIGS, "medium"), **names)
    with refuses(ReproduceError, "medium", *names, "table44", "table4"):
        load_tables(CONFIGS, ["table4"], medium)
    # a table of one's own may be among them
    path = tmp_path / "table44.yaml"
    path.write_text((CONFIGS / "tables/table4.yaml").read_text())
    assert load_tables(CONFIGS, [str(path)], medium)


def test_what_is_set_by_hand_is_not_scaled(data):
    cell = TABLES["table1"].cell("NormAttention", "valid_ppl")
    width = "model.embed_dim"
    for overrides, expected in (
        ({}, 64),
        ({width: 48}, 48),
        ({f"masked_lm:{width}": 80}, 80),
    ):
        given = replace(conditions(data, "medium"), overrides=overrides)
        assert (
            job_of(cell).plan(cell, given).configuration["model"]["embed_dim"]
            == expected
        )


def test_runs_that_differ_from_the_presets_values_have_other_names(data):
    cell = TABLES["table1"].cell("NormAttention", "valid_ppl")

    def name(**overrides):
        changed = replace(cell, overrides=cell.overrides | overrides)
        return job_of(cell).name(changed, conditions(data, "medium"))

    rate, warm_up = "optimization.lr", "lr_scheduler.warmup_updates"
    paper, of_preset = 3000, load_preset(CONFIGS, "medium").task("masked_lm").overrides
    assert name(**{warm_up: of_preset[warm_up]}) == name() != name(**{warm_up: paper})
    assert name(**{rate: [0.0005]}) == name() != name(**{rate: [0.001]})
