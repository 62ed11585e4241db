"""report --add: runs of another machine, whose folders are not here."""

import json
import math
import shutil

import pytest

from fairseq_transnormer.reproduce.runs.run_folder import RunFolder
from tests.messages import assert_names, lines_naming

from .conftest import Report

RATES = ([0.1], [0.2])


def elsewhere(report: Report) -> tuple[dict, str]:
    """Report, and forget the runs."""
    found = report()
    shutil.rmtree(report.folder / "runs")
    return found


def whole(report: Report) -> dict:
    """All that a report has but how it was made."""
    measured = report()[0]
    return {k: v for k, v in measured.items() if k not in ("command", "added")}


def test_a_report_in_two_parts_is_that_of_all_runs(report):
    """Figures, order of the rows, conditions, resources, curves."""

    def first(rate=0.1):
        report.add("blm_t1", 7.0, 1, optimization={"lr": [rate]})
        report.add("blm_t2", 6.0, 1)
        report.add("blm_t2", math.inf, 3)

    def second():
        report.add("blm_t1", 9.0, 2)
        report.add("blm_t2", 6.5, 2, model={"dropout": 0.2}, optimizer={"lr": 0.3})

    first()
    second()
    expected = whole(report)
    shutil.rmtree(report.folder / "runs")
    first()
    elsewhere(report)
    second()
    measured, page = report("--add")
    added = [f"smoke/{each}" for each in ("blm_t1/seed1", "blm_t2/seed1")]
    assert measured.pop("added") == [*added, "smoke/blm_t2/seed3"]
    assert len(measured.pop("command").splitlines()) == 2
    assert measured == expected
    assert lines_naming(page, *added)
    # those that were added once are added again
    shutil.rmtree(report.folder / "runs")
    assert report("--add")[0]["rows"] == expected["rows"]
    assert report()[0]["rows"]["T1"]["ppl"]["measured"] is None


def test_other_settings_are_told_apart_from_those_of_added_runs(report):
    report.add("blm_t1", 7.0, 1)
    elsewhere(report)
    report.add("blm_t1", 5.0, 2, model={"dropout": 0.3})
    unequal = report("--add")[0]["conditions"]["unequal"]
    assert unequal["model.dropout"] == {
        "smoke/blm_t1/seed1": 0.1,
        "smoke/blm_t1/seed2": 0.3,
    }


def test_a_run_that_is_here_counts_and_not_the_report_of_it(report):
    report.add("blm_t1", 7.0)
    elsewhere(report)
    report.add("blm_t1", 5.0)
    measured, _ = report("--add")
    assert measured["rows"]["T1"]["ppl"]["seeds"] == {"1": 5.0}
    assert measured["added"] == []


def test_an_unfinished_run_does_not_hide_the_report_of_a_finished_one(report):
    report.add("blm_t1", 7.0)
    elsewhere(report)
    run = report.add("blm_t1", 5.0)
    run.write_status(run.status() | {"state": "interrupted", "steps_done": []})
    measured, _ = report("--add")
    assert measured["rows"]["T1"]["ppl"]["seeds"] == {"1": 7.0}
    assert measured["added"] == ["smoke/blm_t1/seed1"]


def test_the_best_of_a_sweep_is_chosen_among_all(report):
    report.table["sweep"] = {"optimization.lr": list(map(list, RATES))}
    names = [f"blm_t1+optimization.lr=_{rate}_" for (rate,) in RATES]
    report.add(names[0], 7.0, optimization={"lr": [0.1]})
    elsewhere(report)
    report.add(names[1], 8.0, optimization={"lr": [0.2]})
    cell = report("--add")[0]["rows"]["T1"]["ppl"]
    assert (cell["measured"], cell["run"]) == (7.0, f"smoke/{names[0]}")
    assert cell["not_complete"] is None
    assert [each["measured"] for each in cell["sweep"]] == [7.0, 8.0]


def test_a_figure_that_the_earlier_report_does_not_have_is_an_error(report):
    report.add("blm_t1", 7.0)
    elsewhere(report)
    report.table["columns"]["test"] = {"metric": "test_ppl"}
    report.table["rows"]["T1"]["paper"] = report.table["rows"]["T2"]["paper"] = [3, 3]
    measured, _ = report("--add", code=1)
    assert_names(report.output, "smoke/blm_t1/seed1", "mine.json", "test_ppl")
    assert measured["rows"]["T1"]["ppl"]["measured"] == 7.0


def test_a_run_without_a_figure_stays_an_error(report):
    report.add("blm_t1", 7.0)
    run = report.add("blm_t1", 7.0, seed=2)
    (run.path / "train.log").write_text("no validation was logged\n")
    report(code=1)
    shutil.rmtree(report.folder / "runs")
    report("--add", code=1)
    assert_names(report.output, "smoke/blm_t1/seed2", "valid_ppl")


def test_a_run_that_was_not_to_be_reported_stays_so(report, monkeypatch):
    report.add("blm_t1", 7.0)
    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "other_weights", lambda run: "its start is another")
        report(code=1)
    shutil.rmtree(report.folder / "runs")
    measured, _ = report("--add", code=1)
    assert_names(report.output, "smoke/blm_t1/seed1", "its start is another")
    assert measured["rows"]["T1"]["ppl"]["measured"] is None


def test_unfinished_runs_are_not_added(report):
    run = report.add("blm_t1", 7.0)
    status = json.loads((run.path / "status.json").read_text())
    run.write_status(status | {"state": "interrupted", "steps_done": []})
    elsewhere(report)
    measured, _ = report("--add")
    assert measured["runs"]["smoke/blm_t1"] == {} and measured["added"] == []


def fail(run: RunFolder) -> None:
    run.write_status(run.status() | {"state": "failed", "steps_done": []})


def test_a_seed_that_failed_is_no_less_failed_in_a_report_that_adds_it(report):
    """A mean would be that of the seeds that did not diverge."""
    report.add("blm_t1", 7.0, 1)
    fail(report.add("blm_t1", 9.0, 2))
    expected = elsewhere(report)[0]["rows"]["T1"]["ppl"]
    measured, page = report("--add")
    assert measured["rows"]["T1"]["ppl"] == expected
    assert lines_naming(page, "without seed 2 (failed)")
    report.add("blm_t1", 8.0, 2)  # tried again, and finished
    assert report("--add")[0]["rows"]["T1"]["ppl"]["seeds"] == {"1": 7.0, "2": 8.0}


def test_a_value_of_a_sweep_that_failed_elsewhere_is_not_chosen(report):
    report.table["sweep"] = {"optimization.lr": list(map(list, RATES))}
    names = [f"blm_t1+optimization.lr=_{rate}_" for (rate,) in RATES]
    report.add(names[0], 7.0, 1, optimization={"lr": [0.1]})
    fail(report.add(names[0], 7.0, 2, optimization={"lr": [0.1]}))
    report.add(names[1], 8.0, 1, optimization={"lr": [0.2]})
    assert elsewhere(report)[0]["rows"]["T1"]["ppl"]["run"] == f"smoke/{names[1]}"
    assert report("--add")[0]["rows"]["T1"]["ppl"]["run"] == f"smoke/{names[1]}"


def test_a_seed_that_failed_in_another_tables_report_counts_as_failed(report):
    report_of_another_table(report, seeds=[2], state="failed")
    report.add("blm_t2", 5.0)
    measured, page = report("--add")
    assert measured["rows"]["T1"]["ppl"]["seeds"] == {"1": 7.0}
    assert lines_naming(page, "without seed 2 (failed)")
    # not that of an attempt which is here
    run = report.add("blm_t1", 9.0, 2)
    run.write_status(run.status() | {"state": "interrupted", "steps_done": []})
    report.file.unlink()
    assert lines_naming(report("--add")[1], "without seed 2 (interrupted)")


def report_of_another_table(report, seeds=(1, 2), **changes):
    """A report beside that of the table, with a row of the same training, whose runs
    are not here; ``changes`` are of the records of some ``seeds``."""
    report.add("blm_t1", 7.0, 1)
    report.add("blm_t1", 8.0, 2)
    measured, _ = elsewhere(report)
    path = report.file
    path.unlink()
    row = measured["rows"].pop("T1")
    measured |= {"table": "other", "rows": {"6 / 6": row}}
    for seed in seeds:
        measured["runs"]["smoke/blm_t1"][str(seed)].update(changes)
    (path.parent / "other.json").write_text(json.dumps(measured))


def test_a_training_of_another_tables_report_is_added(report):
    report_of_another_table(report)
    assert report.of({"blm_t2": 5.0})[0]["rows"]["T1"]["ppl"]["measured"] is None
    measured, page = report("--add")
    assert measured["rows"]["T1"]["ppl"]["seeds"] == {"1": 7.0, "2": 8.0}
    assert measured["rows"]["T2"]["ppl"]["seeds"] == {"1": 5.0}
    added = ["smoke/blm_t1/seed1", "smoke/blm_t1/seed2"]
    assert measured["added"] == added and lines_naming(page, *added)


def test_other_columns_of_another_tables_report_are_no_figure(report):
    """Of tables that share runs one may have the perplexity, and one gradients."""
    report_of_another_table(report)
    report.table["columns"]["test"] = {"metric": "test_ppl"}
    report.table["rows"]["T1"]["paper"] = report.table["rows"]["T2"]["paper"] = [3, 3]
    row = report("--add")[0]["rows"]["T1"]
    assert row["ppl"]["seeds"] == {"1": 7.0, "2": 8.0}
    assert row["test"]["seeds"] == {} and row["test"]["measured"] is None


def test_a_table_takes_its_own_runs_and_not_those_of_others(report):
    report_of_another_table(report)
    run = report.add("blm_t1", 5.0, 3)
    assert report("--add")[0]["rows"]["T1"]["ppl"]["seeds"] == {"3": 5.0}
    run.write_status(run.status() | {"state": "interrupted", "steps_done": []})
    seeds = report("--add")[0]["rows"]["T1"]["ppl"]["seeds"]
    assert seeds == {"3": 5.0}  # of its own report
    report.file.unlink()
    seeds = report("--add")[0]["rows"]["T1"]["ppl"]["seeds"]
    assert seeds == {"1": 7.0, "2": 8.0}


def test_remarks_stay_with_the_runs_that_they_are_about(report):
    """Those of a report whose runs are all here are not kept, as without --add."""
    report_of_another_table(report)
    report.add("blm_t2", 5.0)
    report()
    report.change(lambda measured: measured.update(remarks=["Of T2."]))
    measured = report("--add")[0]
    assert len(measured["added"]) == 2 and measured["remarks"] == []
    report.change(lambda measured: measured.update(remarks=["Of T1."]))
    assert report("--add")[0]["remarks"] == ["Of T1."]


@pytest.mark.parametrize(
    "changes",
    [
        {"set_by_hand": {"optimization.max_update": 9}},
        # a measurement, whose rows share a run
        {"updates": None},
        # of before there was --add
        {"identity": None},
        {"state": "interrupted"},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_what_is_another_run_in_another_tables_report_is_not_added(report, changes):
    report_of_another_table(report, **changes)
    report.add("blm_t2", 5.0)
    measured, _ = report("--add")
    assert measured["rows"]["T1"]["ppl"]["measured"] is None
    assert measured["added"] == []


def test_different_runs_of_one_name_in_two_reports_are_refused(report):
    report_of_another_table(report)
    folder = report.out
    other = json.loads((folder / "other.json").read_text()) | {"table": "third"}
    (folder / "third.json").write_text(json.dumps(other))
    report.add("blm_t2", 5.0)
    assert report("--add")[0]["rows"]["T1"]["ppl"]["seeds"] == {"1": 7.0, "2": 8.0}
    (folder / "mine.json").unlink()
    other["runs"]["smoke/blm_t1"]["1"]["identity"]["optimization.max_update"] = 99
    (folder / "third.json").write_text(json.dumps(other))
    report("--add", code=2)
    assert_names(report.output, "other.json", "third.json", "smoke/blm_t1/seed1")


@pytest.mark.parametrize(
    "change",
    [
        lambda found: found["runs"]["smoke/blm_t1"].update(first={}),
        lambda found: found["runs"]["smoke/blm_t1"]["1"].pop("state"),
        lambda found: found["rows"]["6 / 6"]["ppl"].pop("metric"),
        lambda found: found["rows"]["6 / 6"]["ppl"].pop("seeds"),
        lambda found: found["rows"]["6 / 6"]["ppl"]["seeds"].update({"1": "7"}),
    ],
    ids=["seed", "state", "metric", "seeds", "figure"],
)
def test_a_damaged_report_of_another_table_is_named(report, change):
    report_of_another_table(report)
    path = report.change(change, "other.json")
    report("--add", code=2)
    assert_names(report.output, path)


def test_reports_with_other_curves_or_for_a_picture_are_not_added(report):
    report_of_another_table(report)
    report.add("blm_t2", 5.0)
    report.table["curve"] = "valid_loss"
    assert report("--add")[0]["added"] == []
    del report.table["curve"]
    report.file.unlink()
    report.table["figure"] = {"command": ["true"], "each_row": ["{row}"]}
    assert report("--add")[0]["added"] == []


def first_run(found: dict) -> dict:
    return found["runs"]["smoke/blm_t1"]["1"]


@pytest.mark.parametrize(
    ("change", "names"),
    [
        (lambda found: first_run(found).pop("identity"), ("--add",)),
        (lambda found: first_run(found).update(selection=3), ("selection",)),
        (lambda found: first_run(found).update(curve=3), ("curve",)),
        (lambda found: first_run(found).update(curve={}), ("curve",)),
        (lambda found: first_run(found).update(data=3), ("data",)),
        (lambda found: first_run(found).update(identity=3), ("identity",)),
        (lambda found: found["rows"]["T1"]["ppl"].pop("metric"), ("metric",)),
    ],
)
def test_a_damaged_report_is_refused_and_stays(report, change, names):
    report.add("blm_t1", 7.0)
    elsewhere(report)
    path = report.change(change)
    before = path.read_text()
    report("--add", code=2)
    of_run = () if names == ("metric",) else ("smoke/blm_t1/seed1",)
    assert_names(report.output, path, *of_run, *names)
    assert path.read_text() == before


@pytest.mark.parametrize("content", ["{}", "[1]", '{"table": "mine"}'])
def test_what_is_no_report_is_not_overwritten(report, content):
    path = report.file
    path.parent.mkdir(parents=True)
    path.write_text(content)
    report("--add", code=2)
    assert_names(report.output, path, "smoke")
    assert path.read_text() == content


def test_a_picture_of_checkpoints_needs_the_runs(report):
    report.table["figure"] = {"command": ["true"], "each_row": ["{row}"]}
    report.add("blm_t1", 7.0)
    elsewhere(report)
    report("--add", code=2)
    assert_names(report.output, "mine", "smoke/blm_t1/seed1", "--add")
