"""Tables 6 and 7 and Figure 1: plans of their runs, and their figures."""

import json
from pathlib import Path

import pytest

from data_prep.long_range_arena.lra_stand_ins import main as make_stand_ins
from fairseq_transnormer.reproduce.command_line import main
from fairseq_transnormer.reproduce.errors import ReproduceError
from fairseq_transnormer.reproduce.runs.plans import Step
from fairseq_transnormer.reproduce.runs.run_folder import RunFolder
from fairseq_transnormer.reproduce.tables.definitions import chosen_cells, load_table
from fairseq_transnormer.reproduce.tables.jobs import Conditions, job_of
from fairseq_transnormer.reproduce.tables.presets import load_preset
from tests.messages import assert_names, lines_naming, refuses
from tests.paths import CONFIGS

from .stand_in import finished_run
from .stand_in import plan as stand_in_plan

TABLES = {name: load_table(CONFIGS, name) for name in ("table6", "table7", "figure1")}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    dest = tmp_path_factory.mktemp("lra")
    assert make_stand_ins(["--dest", str(dest)]) == 0
    return dest


def conditions(data, preset="paper", **options):
    loaded = load_preset(CONFIGS, preset)
    return Conditions(
        CONFIGS, CONFIGS.parent, loaded, data={"long_range_arena": data}, **options
    )


def plan(table, row, column, *arguments, **options):
    cell = TABLES[table].cell(row, column)
    return job_of(cell).plan(cell, conditions(*arguments, **options))


# tests/test_configs.py builds the others
def test_a_system_composes_and_builds(data):
    made = plan("table6", "1+elu", "Retrieval", data)
    assert made.data == str(data / "retrieval")
    assert made.configuration["task"]["data"] == made.data
    assert made.configuration["model"]["embed_dim"] == 64


def test_the_paper_preset_keeps_each_tasks_batch(data):
    for column, gpus, sequences in (("Text", 8, 16), ("Image", 4, 256)):
        cfg = plan("table6", "TransNormer T1", column, data, gpus=gpus).configuration
        batch = cfg["dataset"]["batch_size"] * cfg["optimization"]["update_freq"][0]
        assert batch * gpus == sequences
        assert cfg["optimization"]["max_update"] == 50_000
        assert cfg["dataset"]["valid_subset"] == "valid,test"
    with refuses(ReproduceError, "3 workers", "16 sequences", 2, 4):
        plan("table6", "TransNormer T1", "Text", data, gpus=3)


def test_smoke_changes_the_arena_alone_as_its_task_says(data):
    cfg = plan("table6", "FLASH", "Text", data, "smoke").configuration
    assert cfg["dataset"]["batch_size"] == 4 and cfg["model"]["embed_dim"] == 64
    assert cfg["optimization"]["lr"] == [1e-4]  # of the task, not that of texts
    assert "tokens_per_sample" not in cfg["task"]


def test_a_folder_that_is_not_there_is_a_fault(data, tmp_path):
    cell = TABLES["table6"].cell("LS", "Text")
    assert job_of(cell).data(cell, conditions(data)).fault() is None
    corpus = job_of(cell).data(cell, conditions(tmp_path))
    assert "text/manifest.json: cannot be read" in corpus.fault()
    one, other = (
        job_of(cell).data(cell, conditions(data)).fingerprint()
        for cell in (cell, TABLES["table6"].cell("LS", "Image"))
    )
    assert one != other


def test_figure_1_shares_the_runs_of_the_tables(data):
    def names(table, columns):
        cells = [TABLES[table].cell("cosFormer", column) for column in columns]
        return [job_of(cell).name(cell, conditions(data)) for cell in cells]

    tasks = ["Text", "ListOps", "Retrieval", "Pathfinder", "Image"]
    assert names("figure1", tasks) == names("table6", tasks)
    assert len(set(names("table6", tasks))) == 5
    assert names("figure1", ["steps/s", "GiB"]) == names("table7", ["train_1K"]) * 2


@pytest.mark.parametrize(
    ("preset", "tasks"), [("smoke", ["ListOps"]), ("small", ["ListOps", "Pathfinder"])]
)
def test_presets_without_downloads_run_every_system(preset, tasks):
    usual = load_preset(CONFIGS, preset).columns
    cells = chosen_cells([TABLES["table6"]], None, None, usual)
    found = [(cell.row, cell.column) for cell in cells]
    assert found == [(row, task) for row in TABLES["table6"].rows for task in tasks]
    # Figure 1 asks for no other training
    cells = chosen_cells([TABLES["figure1"]], None, None, usual)
    assert {cell.column for cell in cells} == {*tasks, "steps/s", "GiB"}


def test_the_measurement_is_one_run_for_all_rows(data):
    table = TABLES["table7"]
    cells = [c for c in table.cells if c.row == "LS" or c.column == "train_1K"]
    plans = {job_of(cell).plan(cell, conditions(data, "smoke")).name for cell in cells}
    assert plans == {"smoke/lra_speed/seed1"}
    made = plan("table7", "LS", "train_1K", data, "smoke")
    words = " ".join(made.steps[0].command)
    assert "benchmarks lra_speed --device cpu" in words
    assert "--lengths 1024 2048 --threads 1" in words
    assert "--device cuda" in " ".join(
        plan("table7", "LS", "train_1K", data, gpus=1).steps[0].command
    )


@pytest.fixture
def measured(report):
    """measured(rows): the folder of a finished run of Table 7, which is reported."""
    report.table = "table7"

    def measure(rows: list[dict]) -> Path:
        run = RunFolder(report.folder / "runs/smoke/lra_speed/seed1")
        made = stand_in_plan("smoke/lra_speed/seed1", [Step("measure", ["true"])])
        made.configuration = {"device": "cpu"}
        run.prepare(made)
        (run.path / "speed").mkdir()
        text = json.dumps({"measurements": rows})
        (run.path / "speed/lra_speed.json").write_text(text)
        (run.path / "speed/README.md").write_text("all lengths")
        attempt = {"step": "measure", "started": 0.0, "ended": 9.0, "exit_code": 0}
        attempt |= {"device": "CPU", "machine": "here", "commit": "abc", "versions": {}}
        status = {"state": "finished", "steps_done": ["measure"], "attempts": [attempt]}
        run.write_status(status)
        return run.path

    return measure


def measured_row(name, seconds, peak, length=2048, phase="training"):
    row = {"contestant": name, "phase": phase, "length": length, "batch": 1}
    return row | {"seconds": seconds, "peak_bytes": peak}


def completed(rows: list[dict]) -> list[dict]:
    """With half a second for every contestant of a phase and length that is there."""
    there = {(row["contestant"], row["phase"], row["length"]) for row in rows}
    asked_for = {(row["phase"], row["length"]) for row in rows}
    return rows + [
        measured_row(name, [0.5], 2**20, length, phase)
        for name in TABLES["table7"].rows
        for phase, length in sorted(asked_for)
        if (name, phase, length) not in there
    ]


def test_a_system_that_the_measurement_does_not_have_is_an_error(report, measured):
    rows = completed([measured_row("LS", [0.5], 2**20)])
    folder = measured([row for row in rows if row["contestant"] != "LS"])
    report(code=1)
    assert_names(report.output, folder / "measure.log", "train_2K", "LS")
    # lengths that no system was measured at are no error
    assert not lines_naming(report.output, "measure.log", "train_16K")


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"measurements": 3}', '{"measurements": [{"phase": "x"}]}']
)
def test_a_damaged_measurement_is_named(report, measured, text):
    path = measured([]) / "speed/lra_speed.json"
    path.write_text(text)
    report(code=2)
    assert_names(report.output, path)
    assert report.output.strip().count("\n") == 0


@pytest.mark.slow
def test_figures_are_read_from_the_rows_of_one_measurement(report, measured):
    out_of_memory = {"contestant": "LS", "phase": "training", "length": 2048}
    measured(
        completed(
            [
                measured_row("Transformer", [2.0, 4.0, 8.0], 2**31),
                measured_row("Transformer, SDPA", [1.0], 2**30),
                measured_row("TransNormer T2", [0.5, 0.25, 0.125], 2**28),
                measured_row("TransNormer T2", [0.1], 2**20, phase="inference"),
                out_of_memory | {"batch": 1, "skipped": "out of memory: 48 GiB"},
            ]
        ),
    )
    found, page = report("figure1")
    table = found["rows"]
    figures = {c: cell["measured"] for c, cell in table["TransNormer T2"].items()}
    assert (figures["train_2K"], figures["infer_2K"]) == (4.0, 10.0)
    assert (figures["x train_2K"], figures["x SDPA train_2K"]) == (16.0, 4.0)
    assert figures["GiB train_2K"] == 0.25 and figures["train_16K"] is None
    assert table["LS"]["train_2K"]["measured"] is None
    lines = {line.split(" | ")[0]: line for line in page.splitlines()}
    # train_2K of LS: 8.68 in the paper, out of memory here; dashes of vanilla
    assert " | 8.68 | - | 6.28 |  | " in lines["| LS"]
    assert " | 10.05 | 2.00 | - |  | - |  | - |  | 15.34 | " in lines["| Transformer"]
    assert "* LS, train_2K, " in page and ": out of memory: 48 GiB\n" in page
    assert page.count("out of memory: 48 GiB") == 1
    assert "[table7/README.md](table7/README.md)" in page
    assert (report.out / "table7/lra_speed.json").exists()
    assert table["Transformer"]["train_2K"]["measured"] == 0.25
    figure = json.loads((report.out / "figure1.json").read_text())
    assert figure["rows"]["TransNormer T2"]["steps/s"]["measured"] == 4.0
    # no accuracy, no circle
    assert figure["images"] == []
    assert not (report.out / "figure1_bubbles.png").exists()


def finished_arena(folder: Path, accuracy: float) -> None:
    """A run of the arena whose only validation is at its end."""
    configuration = {
        "checkpoint": {
            "best_checkpoint_metric": "accuracy",
            "maximize_best_checkpoint_metric": True,
        }
    }
    finished_run(folder, configuration, ppl=1.0)
    records = {"train_inner": {"num_updates": "5"}}
    for split, value in (("valid", 1.0), ("test", accuracy)):
        of_split = {"accuracy": str(value), "num_updates": "5"}
        records[split] = {f"{split}_{name}": each for name, each in of_split.items()}
    lines = [f"[2026][{kind}][INFO] - {json.dumps(r)}" for kind, r in records.items()]
    (folder / "train.log").write_text("\n".join(lines) + "\n", encoding="utf-8")


@pytest.mark.slow
def test_figure_1_of_the_tasks_that_a_preset_trains(report, measured):
    """Of the smoke preset: ListOps alone."""
    runs = report.folder / "runs" / "smoke"
    measured(completed([measured_row("cosFormer", [0.5], 2**30)]))
    finished_arena(runs / "lra+lra=listops+model=lra_cosformer" / "seed1", 37.5)
    report.table = "figure1"
    figure, page = report("table6")
    cells = figure["rows"]["cosFormer"]
    assert (cells["AVG"]["measured"], cells["steps/s"]["measured"]) == (37.5, 2.0)
    assert cells["AVG"]["mean_of"] == ["ListOps"]
    assert "](figure1_bubbles.png)" in page
    assert (report.out / "figure1_bubbles.png").stat().st_size > 5000
    table = json.loads((report.out / "table6.json").read_text())
    # of the column that has been run
    expected = {"updates": [5], "valid_accuracy": [1.0]}
    assert table["curves"]["cosFormer ListOps"] == expected
    # the paper's average is of five tasks: nothing to compare with
    table = table["rows"]
    assert table["cosFormer"]["AVG"]["paper"] is None
    assert table["cosFormer"]["ListOps"]["paper"] == 36.5


def test_the_measurement_takes_one_device_whatever_the_preset(tmp_path, capsys):
    """The paper preset's 8 GPUs a run are for training."""
    places = ["--runs-dir", str(tmp_path), "--dry-run"]
    assert main(["run", "table7", "--preset", "paper", *places]) == 0
    assert "lra_speed" in capsys.readouterr().out
