"""What a report says of runs that are not alike, not finished, or not numbers."""

import errno
import json
import math
import os
import shutil

import pytest

from fairseq_transnormer.reproduce import command_line
from fairseq_transnormer.reproduce.command_line import main
from fairseq_transnormer.reproduce.reports import reporting
from fairseq_transnormer.reproduce.reports.markdown import updates_of
from fairseq_transnormer.reproduce.reports.ranks import agreement
from fairseq_transnormer.reproduce.runs.metrics import RunResults, read_metric
from fairseq_transnormer.reproduce.runs.run_folder import RunFolder
from fairseq_transnormer.reproduce.tables.jobs import changed_model
from fairseq_transnormer.reproduce.tables.presets import load_preset
from fairseq_transnormer.training.config import compose
from tests.messages import assert_names, command_refuses, lines_naming
from tests.paths import CONFIGS

RATES = ([0.1], [0.2], [0.3])


def rewrite(folder: RunFolder, name: str, **changes) -> None:
    path = folder.path / name
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_a_folder_that_was_renamed_is_not_the_run(report):
    """... as the refusal of other settings asks for."""
    run = report.add("blm_t1", 7.0)
    shutil.copytree(run.path, run.path.with_name("seed1-old"))
    log = run.path.with_name("seed1-old") / "train.log"
    log.write_text(log.read_text().replace("7.0", "1.0"))
    measured, _ = report()
    assert measured["rows"]["T1"]["ppl"]["measured"] == 7.0


def test_a_finished_run_without_a_figure_is_an_error(report):
    run = report.add("blm_t1", 7.0)
    report.add("blm_t2", 6.0)
    (run.path / "train.log").write_text("no validation was logged\n")
    measured, page = report(code=1)
    assert_names(report.output, run.path / "train.log", "valid_ppl", "T1")
    assert measured["rows"]["T2"]["ppl"]["measured"] == 6.0
    assert measured["rows"]["T1"]["ppl"]["errors"]
    assert "blm_t1/seed1/train.log" in page


def test_a_run_of_fewer_updates_than_log_interval_has_its_figures(report):
    run = report.add("blm_t1", 7.0)
    log = run.path / "train.log"
    lines = log.read_text().splitlines()
    log.write_text("\n".join(each for each in lines if "train_inner" not in each))
    measured, _ = report()
    assert measured["rows"]["T1"]["ppl"]["measured"] == 7.0
    assert measured["runs"]["smoke/blm_t1"]["1"]["updates"] == 3


def test_what_is_no_number_is_no_figure(report):
    """Neither of a row, nor of an order of rows, nor the best of a sweep."""
    report.add("blm_t1", math.nan)
    report.add("blm_t2", math.inf)
    run = report.add("blm_t2", 6.0, seed=2)
    log = run.path / "train.log"
    log.write_text(log.read_text().replace("11.0", "nan"))
    measured, page = report()
    assert measured["rows"]["T1"]["ppl"]["measured"] is None
    assert_names(measured["rows"]["T1"]["ppl"]["not_measured"], "nan", "valid_loss")
    assert measured["rows"]["T2"]["ppl"]["seeds"] == {"2": 6.0}
    assert lines_naming(page, "valid_ppl", "inf", "seed 1")
    assert measured["agreement"]["ppl"] is None


def test_figures_are_of_validations_that_left_a_checkpoint(report):
    """finished_run's best is update 2."""
    run = report.add("blm_t1", 7.0)
    log = run.path / "train.log"
    saved = "".join(
        f"[2026][fairseq.checkpoint_utils][INFO] - Saved checkpoint checkpoints/x.pt "
        f"(epoch 1 @ {update} updates, score {score}) (writing took 1 seconds)\n"
        for update, score in ((1, 12.0), (2, None), (3, 8.0))
    )
    log.write_text(log.read_text() + saved)
    results = RunResults(run)
    assert read_metric("valid_ppl", results) == 8.0
    assert read_metric("test_ppl", results) == 9.0


def with_sweep(report) -> None:
    report.table["sweep"] = {"optimization.lr": [*RATES]}


def swept(report, rate: float, ppl: float, seed: int = 1):
    name = f"blm_t1+optimization.lr=_{rate}_"
    return report.add(name, ppl, seed, optimization={"lr": [rate]})


def test_a_choice_among_some_values_says_so(report):
    with_sweep(report)
    swept(report, 0.1, 7.0)
    unfinished = swept(report, 0.2, 6.0)
    rewrite(unfinished, "status.json", state="interrupted", steps_done=[])
    measured, page = report()
    cell = measured["rows"]["T1"]["ppl"]
    assert cell["measured"] == 7.0
    for text in (cell["not_complete"], page):
        assert_names(text, "1 of 3", "optimization.lr=0.2", "optimization.lr=0.3")
    assert measured["rows"]["T2"]["ppl"]["not_complete"] is None
    swept(report, 0.2, 6.0)
    swept(report, 0.3, math.nan)
    assert report()[0]["rows"]["T1"]["ppl"]["not_complete"] is None
    swept(report, 0.3, 5.0)
    measured, page = report()
    assert measured["rows"]["T1"]["ppl"]["not_complete"] is None
    assert measured["rows"]["T1"]["ppl"]["measured"] == 5.0
    assert "Not complete" not in page


def failed(folder: RunFolder) -> None:
    rewrite(folder, "status.json", state="failed", steps_done=[])


def test_a_seed_that_failed_is_told_beside_the_others(report):
    for seed, ppl in ((1, 7.0), (2, 8.0), (3, 9.0)):
        folder = report.add("blm_t1", ppl, seed)
    failed(folder)
    measured, page = report()
    cell = measured["rows"]["T1"]["ppl"]
    assert cell["measured"] == 7.5 and cell["unfinished"] == {"3": "failed"}
    for text in (cell["not_complete"], page):
        assert_names(text, "without seed 3", "failed")


def test_a_value_that_failed_with_a_seed_is_not_the_best(report):
    """The seed that it ended with would make it so."""
    with_sweep(report)
    for seed in (1, 2):
        swept(report, 0.1, 7.0, seed)
        swept(report, 0.2, 8.0, seed)
    swept(report, 0.3, 6.0)
    failed(swept(report, 0.3, 6.0, seed=2))
    cell = report()[0]["rows"]["T1"]["ppl"]
    assert cell["run"].endswith("lr=_0.1_") and cell["measured"] == 7.0
    assert_names(cell["not_complete"], "optimization.lr=0.3 seed 2")
    # where no value is without failures, the best of them
    failed(swept(report, 0.1, 7.0, seed=3))
    failed(swept(report, 0.2, 7.0, seed=3))
    assert report()[0]["rows"]["T1"]["ppl"]["run"].endswith("lr=_0.3_")


def test_a_value_that_diverged_with_a_seed_is_not_the_best(report):
    """fairseq may end a training whose loss is no number as if nothing were."""
    with_sweep(report)
    for seed in (1, 2):
        swept(report, 0.1, 7.0, seed)
    swept(report, 0.2, 6.0)
    swept(report, 0.2, math.nan, seed=2)
    cell = report()[0]["rows"]["T1"]["ppl"]
    assert cell["run"].endswith("lr=_0.1_") and cell["measured"] == 7.0


def test_values_that_were_not_run_are_counted_and_some_named(report):
    """T2 has none of seven, T1 six of them."""
    rates = [0.1 * number for number in range(1, 8)]
    report.table["sweep"] = {"optimization.lr": [[rate] for rate in rates]}
    swept(report, rates[0], 7.0)
    measured, page = report()
    missing = measured["rows"]["T1"]["ppl"]["not_complete"]
    assert_names(missing, "1 of 7", f"optimization.lr={rates[1]}", "2 more")
    assert f"={rates[6]}" not in missing
    assert lines_naming(page, "were not run", "13")
    assert f"[{rates[0]}]" in page and f"[{rates[1]}]" not in page


def test_values_of_a_sweep_are_compared_on_the_same_seeds(report):
    """0.1 has an easy second seed more."""
    with_sweep(report)
    swept(report, 0.1, 7.0)
    swept(report, 0.1, 1.0, seed=2)
    swept(report, 0.2, 6.0)
    swept(report, 0.3, math.nan)
    measured, _ = report()
    cell = measured["rows"]["T1"]["ppl"]
    assert cell["run"].endswith("lr=_0.2_") and cell["measured"] == 6.0
    assert_names(cell["not_complete"], "optimization.lr=0.2 seed 2")


def test_rows_of_different_commits_data_versions_or_seeds(report):
    report.add("blm_t1", 7.0)
    run = report.add("blm_t2", 6.0)
    report.add("blm_t2", 6.5, seed=2)
    attempt = run.status()["attempts"][0]
    attempt |= {"commit": "other+changes", "versions": {"torch": "3"}}
    rewrite(run, "status.json", attempts=[attempt])
    here = "/home/me/data-bin/of/data-bin/recall/4"
    rewrite(run, "run.json", data_fingerprint="def", data=here)
    conditions = report()[0]["conditions"]
    assert conditions["data"] == ["data (abc)", "recall/4 (def)"]
    unequal = conditions["unequal"]
    assert unequal["commit"]["smoke/blm_t1/seed1"] == "abc"
    assert unequal["commit"]["smoke/blm_t2/seed1"] == "other+changes"
    assert unequal["data"]["smoke/blm_t2/seed1"] == "def"
    assert unequal["version of torch"]["smoke/blm_t2/seed1"] == "3"
    assert unequal["seeds"] == {"smoke/blm_t1": [1], "smoke/blm_t2": [1, 2]}


def test_a_run_from_before_a_setting_equals_those_where_it_is_empty(report):
    report.add("blm_t1", 7.0)
    report.add("blm_t2", 6.0, task={"mixture": ""})
    assert report()[0]["conditions"]["unequal"] == {}
    report.add("blm_t2", 6.0, seed=2, task={"mixture": "4"})
    assert report()[0]["conditions"]["unequal"]["task.mixture"] == {
        "smoke/blm_t1/seed1": None,
        "smoke/blm_t2/seed1": None,
        "smoke/blm_t2/seed2": "4",
    }


def test_seeds_of_one_row_are_of_one_model(report):
    report.add("blm_t1", 7.0)
    report.add("blm_t2", 7.0, model={"dropout": 0.3})
    # rows may differ in their models
    assert report()[0]["conditions"]["unequal"] == {}
    report.add("blm_t1", 6.0, seed=2, model={"dropout": 0.2})
    report.add("blm_t2", 7.0, seed=2, model={"dropout": 0.3})
    measured, page = report()
    assert measured["conditions"]["unequal"]["model.dropout"] == {
        "smoke/blm_t1/seed1": 0.1,
        "smoke/blm_t1/seed2": 0.2,
    }
    assert "**not equal**, `model.dropout`" in page


def test_what_a_model_does_not_read_need_not_be_equal(report):
    """As presets scaled widths of FLASH in models of other attentions once."""
    run = report.add("blm_t1", 7.0, model={"attention_types": "norm*2"})
    changed = {"flash_key_dim": 16, "ffn_dim": 170}
    again = {"attention_types": "norm*2", "flash_key_dim": 16}
    rewrite(run, "run.json", origin={"changed_model": changed})
    report.add("blm_t1", 6.0, seed=2, model=again)
    report.add("blm_t2", 6.0, model={"attention_types": "flash*2"})
    report.add("blm_t2", 6.0, 2, model=again | {"attention_types": "flash*2"})
    measured, page = report()
    assert list(measured["conditions"]["unequal"]) == ["model.flash_key_dim"]
    found = measured["conditions"]["unequal"]["model.flash_key_dim"]
    assert list(found) == ["smoke/blm_t2/seed1", "smoke/blm_t2/seed2"]
    assert lines_naming(page, "ffn_dim: 170 (smoke/blm_t1/seed1)")


def test_seeds_of_other_attentions_differ_in_these_alone(report):
    both = {"block_size": 64, "flash_key_dim": 16}
    report.add("blm_t1", 7.0, model=both | {"attention_types": "norm*2"})
    report.add("blm_t1", 6.0, 2, model=both | {"attention_types": "diag*2"})
    unequal = report()[0]["conditions"]["unequal"]
    assert list(unequal) == ["model.attention_types"]


def test_rows_of_models_of_different_widths_are_told_apart(report):
    report.add("blm_t1", 7.0, model={"embed_dim": 64, "ffn_dim": 170})
    run = report.add("blm_t2", 6.0, model={"embed_dim": 64, "ffn_dim": 256})
    assert report()[0]["conditions"]["unequal"] == {}
    shutil.rmtree(run.path)
    report.add("blm_t2", 5.0, model={"embed_dim": 128, "ffn_dim": 256})
    assert report()[0]["conditions"]["unequal"] == {
        "model.embed_dim": {"smoke/blm_t1/seed1": 64, "smoke/blm_t2/seed1": 128}
    }


def test_rows_differ_in_what_was_set_by_hand_for_one(report):
    runs = [report.add("blm_t1", 7.0)]
    runs.append(report.add("blm_t2", 6.0, model={"dropout": 0.3}))
    rewrite(runs[1], "run.json", origin={"further_overrides": {"model.dropout": 0.3}})
    unequal = {"smoke/blm_t1/seed1": 0.1, "smoke/blm_t2/seed1": 0.3}
    assert report()[0]["conditions"]["unequal"] == {"model.dropout": unequal}


def test_what_was_set_by_hand_is_told(report):
    run = report.add("blm_t1", 7.0)
    origin = {"further_overrides": {"optimization.max_update": 1500}}
    origin["changed_model"] = {"ffn_dim": 170, "num_heads": 1}
    rewrite(run, "run.json", origin=origin)
    _, page = report()
    assert_names(page, "optimization.max_update", "1500 (smoke/blm_t1/seed1)")
    assert_names(page, "ffn_dim: 170, num_heads: 1 (smoke/blm_t1/seed1)")


def test_a_plan_says_what_it_changes_of_the_model():
    """The preset's widths, and the row's own values."""
    configuration = compose(CONFIGS, "blm", {"model": "blm_t1"})
    plain = compose(CONFIGS, "blm", {"model": "blm_t1"})
    assert changed_model(configuration, plain) == {}
    load_preset(CONFIGS, "small").scale(configuration["model"], "masked_lm")
    configuration["model"]["block_size"] = 32
    changed = changed_model(configuration, plain)
    assert changed == {
        "block_size": 32,
        "embed_dim": 64,
        "ffn_dim": 170,
        "num_heads": 1,
    }


def test_rows_that_are_equal_are_not_in_the_papers_order(report):
    measured, page = report.of({"blm_t1": 7.0, "blm_t2": 7.0})
    assert measured["agreement"]["ppl"]["ties"] == [["T1", "T2"]]
    assert "the paper's order" not in page
    found = agreement({"a": 1, "b": 1, "c": 2}, {"a": 5, "b": 5, "c": 6}, {})
    assert found["ties"] == [] and found["disagreements"] == []


def test_a_figure_of_different_data_is_refused(report):
    report.table["figure"] = {"command": ["true"], "each_row": []}
    report.add("blm_t1", 7.0)
    rewrite(report.add("blm_t2", 7.0), "run.json", data_fingerprint="def")
    report(code=2)
    assert_names(report.output, "mine", "abc", "def")


def test_what_an_unfinished_run_measured_is_not_attached(report):
    report.table["attach"] = "scores"
    run = report.add("blm_t1", 7.0)
    (run.path / "scores").mkdir()
    (run.path / "scores/README.md").write_text("scores")
    assert report()[0]["attached"] == "mine/README.md"
    rewrite(run, "status.json", state="interrupted", steps_done=[])
    assert report()[0]["attached"] is None


def test_seeds_that_a_mean_leaves_out_are_told(report):
    columns = report.table["columns"]
    columns["loss"] = {"metric": "valid_loss", "ranked": False}
    columns["only"] = {
        "metric": "valid_ppl",
        "seed": 1,
        "config": "blm",
        "system": "t2",
    }
    columns["both"] = {"mean_of": ["loss", "only"], "ranked": False}
    for row in report.table["rows"].values():
        row.update(paper=[None] * 4)
        row["overrides"] = {"model.block_size": 32}
    del report.table["rows"]["T2"]
    del report.table["rows"]["T1"]["config"], report.table["rows"]["T1"]["system"]
    chosen = {"config": "blm", "system": "t1"}
    columns["ppl"] |= chosen
    columns["loss"] |= chosen
    for seed in (1, 2):
        report.add("blm_t1+block_size=32", 7.0, seed)
    measured, _ = report.of({"blm_t2+block_size=32": 5.0})
    cell = measured["rows"]["T1"]["both"]
    assert cell["measured"] == 6.0
    assert_names(cell["not_complete"], "loss", "only", "seeds 2")


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[" * 100_000,
        '{"table": "other", "preset": "smoke"}',
        '{"table": "other", "preset": "smoke", "agreement": 3}',
    ],
)
def test_a_damaged_report_beside_it_is_named(report, text):
    report.add("blm_t1", 7.0)
    report.out.mkdir(parents=True)
    path = report.out / "other.json"
    path.write_text(text)
    report(code=2)
    assert_names(report.output, path)
    assert report.output.strip().count("\n") == 0
    path.write_text("[]")
    report()


def test_what_lies_beside_a_figure_stays(report):
    report.table["figure"] = {"command": ["touch", "{output}/map.png"], "each_row": []}
    report.add("blm_t1", 7.0)
    report.add("blm_t2", 7.0)
    folder = report.out / "mine"
    folder.mkdir(parents=True)
    for name in ("notes.txt", "own.png"):
        (folder / name).write_text("the user's")
    measured, _ = report()
    assert "mine/map.png" in measured["images"]
    assert "mine/own.png" not in measured["images"]
    assert {path.name for path in folder.iterdir()} == {
        "command.log", "map.png", "notes.txt", "own.png",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("ending", "value", "said"),
    [
        ("optimization.stop_time_hours", None, "100"),
        ("optimization.stop_time_hours", 0, "100"),
        ("optimization.stop_time_hours", 24, "40 to 90"),
        ("optimization.max_epoch", 2, "40 to 90"),
        ("checkpoint.patience", 3, "40 to 90"),
        ("checkpoint.patience", -1, "100"),
    ],
)
def test_updates_of_runs_that_something_else_ends(ending, value, said):
    """The limit is what a run had only where nothing else may end it."""
    equal = {"optimization.max_update": 100, ending: value}
    runs = {"a": {"1": {"updates": 40.0}}, "b": {"1": {"updates": 90.0}}}
    assert updates_of({"runs": runs, "conditions": {"equal": equal}}) == said
    unequal = {ending: {"a/seed1": value, "b/seed1": None}}
    conditions = {"equal": {"optimization.max_update": 100}, "unequal": unequal}
    found = updates_of({"runs": runs, "conditions": conditions})
    assert found == "40 to 90"


def test_a_run_that_epochs_ended_has_the_updates_of_its_log(report):
    """... not those that it was allowed."""
    for name in ("blm_t1", "blm_t2"):
        changes = {"optimization": {"max_update": 100_000, "max_epoch": 1}}
        report.add(name, 7.0, **changes, checkpoint={"patience": -1})
    measured, page = report()
    (updates,) = {
        run["updates"] for seeds in measured["runs"].values() for run in seeds.values()
    }
    overview = (report.out / "README.md").read_text()
    assert f"| {updates:.0f} |" in overview and "100,000" not in overview
    assert lines_naming(page, "`optimization.max_epoch`: 1")
    assert not lines_naming(page, "checkpoint.patience")


@pytest.mark.parametrize(("steps", "batches"), [(0, 1), (25, 26), (None, None)])
def test_a_page_says_on_which_part_of_a_split_figures_are(report, steps, batches):
    """fairseq ends after the batch of that number, counted from 0."""
    for name in ("blm_t1", "blm_t2"):
        report.add(name, 7.0, dataset={"max_valid_steps": steps})
    _, page = report()
    found = lines_naming(page, "validated on")
    assert found == lines_naming(page, f"{batches} batches")
    assert len(found) == (steps is not None)


@pytest.mark.parametrize("options", [[], ["--from-results"], ["--add"]])
def test_a_place_that_cannot_be_written_to_is_one_line(tmp_path, capsys, options):
    file = tmp_path / "file"
    file.write_text("")
    given = ["report", "table4", "--preset", "smoke", "--out", file, *options]
    command_refuses(main, given, capsys, "--out", file / "smoke", alone=True)


def test_a_place_without_reports_is_left_alone(tmp_path, capsys):
    given = ["report", "--preset", "smoke", "--from-results", "--out", tmp_path]
    command_refuses(main, given, capsys, "--out", tmp_path / "smoke", alone=True)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("options", [[], ["--from-results"]])
def test_a_full_disk_is_one_line(report, monkeypatch, options):
    report.of({"blm_t1": 7.0})

    def full(*given):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(reporting, "write_text", full)
    report(*options, code=2)
    assert_names(report.output, "--out", "No space left")


def test_fine_tuning_looks_at_the_place_of_its_report_first(monkeypatch, tmp_path):
    """Trainings of days end in it."""
    for name in ("checkpoint_table", "check_name", "chosen_cells"):
        monkeypatch.setattr(command_line, name, lambda *given: None)
    monkeypatch.setattr(command_line, "_run_cells", lambda *given: pytest.fail("ran"))
    (tmp_path / "file").write_text("")
    out = ["--out", str(tmp_path / "file")]
    assert main(["finetune", "checkpoint.pt", "all", *out]) == 2


@pytest.mark.parametrize(
    ("options", "names"),
    [(["--from-results"], ()), (["--add"], ("--add",))],
)
def test_figures_that_are_no_means_of_their_seeds(report, options, names):
    report.of({"blm_t1": 7.0})
    path = report.change(lambda m: m["rows"]["T1"]["ppl"].update(measured=6.0))
    report(*options, code=2)
    assert_names(report.output, path, "row T1", "column ppl", "measured")
    report.change(lambda m: m.update(table="theirs"))
    report(*options, code=2)
    assert_names(report.output, path, "mine", "theirs", *names)


@pytest.mark.parametrize("lost", ["run.json", "status.json"])
def test_a_run_that_lost_a_file_is_named(report, lost):
    run = report.add("blm_t1", 7.0)
    (run.path / lost).unlink()
    measured, _ = report()
    assert measured["rows"]["T1"]["ppl"]["measured"] is None
    assert str(run.path) not in report.output  # it has nothing
    run.checkpoints.mkdir(exist_ok=True)
    (run.checkpoints / "checkpoint_last.pt").write_bytes(b"")
    report()
    assert len(lines_naming(report.output, run.path, lost)) == 1


def test_a_training_whose_runner_was_killed_has_no_time(report):
    """Its other attempts alone would be less than it took."""
    report.table["columns"]["minutes"] = {"metric": "wall_minutes"}
    report.table["rows"] = {"T1": {"config": "blm", "system": "t1"}}
    run = report.add("blm_t1", 7.0)
    status = run.status()
    attempts = [*status["attempts"], status["attempts"][0] | {"ended": 30}]
    run.write_status(status | {"attempts": attempts})
    measured, page = report()
    assert measured["rows"]["T1"]["minutes"]["measured"] == 2
    assert "0:02:00" in page
    del attempts[0]["ended"]
    run.write_status(status | {"attempts": attempts})
    measured, page = report()
    cell = measured["rows"]["T1"]["minutes"]
    assert cell["measured"] is None and "killed" in cell["not_measured"]
    assert measured["runs"]["smoke/blm_t1"]["1"]["wall_seconds"] is None
    assert "0:00:30" not in page
