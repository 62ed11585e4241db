"""The report of runs whose figures are known."""

import json
import math
import shutil

import pytest

from fairseq_transnormer.reproduce.command_line import main
from fairseq_transnormer.reproduce.reports import reporting
from fairseq_transnormer.reproduce.reports import results as table_results
from fairseq_transnormer.reproduce.reports.markdown import (
    correlations_of,
    deviation_of,
    overview,
)
from fairseq_transnormer.reproduce.reports.ranks import agreement
from fairseq_transnormer.reproduce.runs.metrics import (
    NotMeasured,
    RunResults,
    read_metric,
)
from fairseq_transnormer.reproduce.runs.run_folder import RunFolder
from tests.messages import lines_naming, refuses
from tests.paths import ROOT

# the names of its runs of T1
SIZES = ("blm_t1+block_size=32", "blm_t1", "blm_t1+block_size=128")


@pytest.fixture
def table11(report):
    report.table = "table11"
    return report


def record(kind: str, **values) -> str:
    """A line of a log."""
    return f"[2026][{kind}][INFO] - {json.dumps(values)}\n"


def with_lines(run: RunFolder, *lines: str) -> RunResults:
    """The results of a run with these lines more in its log."""
    with (run.path / "train.log").open("a") as log:
        log.writelines(lines)
    return RunResults(run)


def test_paper_measured_and_difference(table11):
    measured, page = table11.of(dict(zip(SIZES, (8.0, 7.0, 6.0), strict=True)))
    cell = measured["rows"]["64"]["T1"]
    assert (cell["paper"], cell["measured"]) == (3.82, 7.0)
    assert cell["difference"] == pytest.approx(3.18)
    assert "| | T1, paper | measured | T2, paper | measured |" in page
    assert "| 64 | 3.82 | 7.00 | 3.81 |  |" in page
    found = measured["agreement"]["T1"]
    assert (found["spearman"], found["kendall"], found["disagreements"]) == (1, 1, [])
    assert "Spearman" not in page  # of three rows
    assert measured["agreement"]["T2"] is None
    assert lines_naming(page, "Not run", "smoke/blm_t2")
    listed = overview([measured], "smoke", "small")
    assert "| T1 | 3 of 3 |" in listed and "| T2 |" not in listed
    run = measured["runs"]["smoke/blm_t1"]["1"]
    assert run["params_m"] == pytest.approx(155.98854)
    assert run["tokens_per_second"] == 1000 and run["wall_seconds"] == 90
    assert run["peak_memory_gib"] == 1.0
    assert "`optimization.lr`: [0.1]" in page and "not equal" not in page
    assert measured["command"].startswith(
        "python -m fairseq_transnormer reproduce report table11"
    )
    assert "table11.md" in (table11.out / "README.md").read_text()


def test_figures_of_the_papers_sizes_are_subtracted(table11):
    table11.preset = "paper"
    _, page = table11.of({"blm_t1": 7.0})
    heading = "T1, paper | measured | difference | T2, paper | measured | difference"
    assert f"| | {heading} |" in page
    assert "| 64 | 3.82 | 7.00 | +3.18 | 3.81 |  |  |" in page


def test_a_column_that_the_paper_has_not_is_only_measured(report):
    report.preset, report.table = "paper", "precision"
    columns = ("ALM T1", "ALM T2", "BLM T1", "BLM T2")
    heading = " | ".join(f"{column}, measured" for column in columns)
    assert f"| | {heading} |\n" in report()[1]


def test_rows_in_another_order_are_listed(table11):
    """Paper: 3.90, 3.81, 3.69 for 32, 64, 128."""
    names = (name.replace("t1", "t2") for name in SIZES)
    measured, page = table11.of(dict(zip(names, (5.0, 6.0, 4.0), strict=True)))
    found = measured["agreement"]["T2"]
    # ranks 3 2 1 against 2 3 1: rho = 1 - 6 * 2 / 24, tau = (2 - 1) / 3
    assert found["spearman"] == pytest.approx(0.5)
    assert found["kendall"] == pytest.approx(1 / 3)
    (pair,) = found["disagreements"]
    assert pair["rows"] == ["32", "64"]
    assert pair["measured_difference"] == -1.0
    assert lines_naming(page, "32 less 64", "+0.09", "-1.00")


def test_several_seeds_give_mean_and_standard_deviation(table11):
    seeds = {1: 6.0, 2: 7.0, 3: 8.0}
    more = {seed: ppl + 0.5 for seed, ppl in seeds.items()}
    measured, page = table11.of({"blm_t1": seeds, SIZES[2]: more})
    cell = measured["rows"]["64"]["T1"]
    assert (cell["measured"], cell["deviation"]) == (7.0, 1.0)
    assert cell["seeds"] == {"1": 6.0, "2": 7.0, "3": 8.0}
    assert "7.00 ± 1.00" in page
    (pair,) = measured["agreement"]["T1"]["disagreements"]
    assert pair["within_deviation"] is True
    assert "within the seeds' deviation" in page


def test_unequal_conditions_are_told(table11):
    table11.add("blm_t1", 7.0, optimization={"lr": [0.2]})
    _, page = table11.of({SIZES[2]: 6.0})
    assert "**not equal**, `optimization.lr`: smoke/blm_t1/seed1: [0.2]" in page


def test_metrics_are_those_of_the_best_checkpoint(report):
    results = RunResults(report.add("run", 7.0))
    names = ("valid_ppl", "test_ppl", "updates", "valid_loss", "test_loss")
    found = [read_metric(name, results) for name in names]
    assert found == [7.0, 8.0, 3, 7.0, 7.0]


def test_losses_and_shares_of_right_predictions(report):
    run = report.add("run", 7.0)
    assert read_metric("test_accuracy", RunResults(run)) is None
    with refuses(NotMeasured, "99"):
        read_metric("updates_to_99", RunResults(run))
    lines = []
    for update, right in ((4, "50"), (5, "99.1"), (6, "99.95")):
        for kind in ("valid", "test"):
            values = {"loss": 1 / update, "accuracy": right, "ppl": 1}
            values["num_updates"] = update
            lines.append(record(kind, **{f"{kind}_{k}": v for k, v in values.items()}))
    results = with_lines(run, *lines)
    assert read_metric("updates_to_99", results) == 5
    assert read_metric("test_accuracy", results) == pytest.approx(99.95)
    assert read_metric("test_loss", results) == pytest.approx(1 / 6)


def with_validations(report, name, validations, **selection) -> RunResults:
    """A run's results whose log has these; test figures are valid's plus 100."""
    run = report.add(name, 7.0, checkpoint=selection)
    (run.path / "train.log").write_text(record("train_inner", num_updates="1"))
    lines = []
    for update, values in validations.items():
        # the perplexity, so that equal ones can be told apart
        values = values | {"ppl": update}
        for kind, more in (("valid", 0), ("test", 100)):
            plain = {f"{kind}_{k}": str(v + more) for k, v in values.items()}
            lines.append(record(kind, **plain, **{f"{kind}_num_updates": str(update)}))
    return with_lines(run, *lines)


@pytest.mark.parametrize("maximize", [False, True])
def test_of_equal_validations_the_last_is_the_best(report, maximize):
    """fairseq overwrites checkpoint_best.pt by one that is as good."""
    sign = 1 if maximize else -1
    figures = {1: 3.0, 2: 3.0 + sign, 3: 3.0 + sign, 4: 3.0}
    results = with_validations(
        report,
        "run",
        {update: {"accuracy": value} for update, value in figures.items()},
        best_checkpoint_metric="accuracy",
        maximize_best_checkpoint_metric=maximize,
    )
    assert read_metric("valid_ppl", results) == 3
    assert read_metric("test_ppl", results) == 103


def test_99_percent_are_reached_at_99_and_not_below(report):
    shares = {10: 50.0, 20: 98.9, 30: 98.99, 40: 99.0, 50: 99.5}
    figures = {update: {"accuracy": share} for update, share in shares.items()}
    results = with_validations(report, "run", figures)
    assert read_metric("updates_to_99", results) == 40
    del figures[40], figures[50]
    results = with_validations(report, "less", figures)
    with refuses(NotMeasured, "99"):
        read_metric("updates_to_99", results)


@pytest.mark.parametrize("maximize", [False, True])
def test_a_sweep_takes_the_value_that_its_metric_calls_best(report, maximize):
    """The smallest loss or the largest accuracy, whichever checkpoints are kept by."""
    metric = "accuracy" if maximize else "loss"
    report.table = {
        "title": "Mine",
        "sweep": {"model.block_size": [16, 32, 128]},
        "columns": {"merit": {"metric": f"valid_{metric}" if not maximize else metric}},
        "rows": {"T2": {"config": "blm", "system": "t2"}},
    }
    for size, figure in ((16, 5.0), (32, 2.0), (128, 8.0)):
        with_validations(
            report,
            f"blm_t2+block_size={size}",
            {1: {metric: figure}},
            best_checkpoint_metric=metric,
            maximize_best_checkpoint_metric=maximize,
        )
    cell = report()[0]["rows"]["T2"]["merit"]
    assert [each["measured"] for each in cell["sweep"]] == [5.0, 2.0, 8.0]
    assert cell["measured"] == (8.0 if maximize else 2.0)


def test_curves_of_what_the_table_names(report):
    report.table = {
        "title": "Mine",
        "curve": "valid_loss",
        "columns": {"loss": {"metric": "valid_loss", "ranked": False}},
        "rows": {"T2": {"config": "blm", "system": "t2"}},
    }
    measured, page = report.of({"blm_t2": 7.0})
    assert "Order of the rows" not in page
    overview = report.out / "README.md"
    assert "| [Mine](mine.md) | loss | 1 of 1 |" in overview.read_text()
    curve = {"updates": [1, 2, 3], "valid_loss": [12.0, 7.0, 8.0]}
    assert measured["curves"]["T2"] == curve
    # a later report of another table lists both
    (report.out / "no_table.json").write_text('{"preset": "smoke"}')
    report.table = "table11"
    report()
    listed = overview.read_text().splitlines()[-3:]
    assert "| [Mine" in [line.split("]")[0] for line in listed]
    assert "(table11.md)" in "".join(listed)


@pytest.mark.parametrize(
    ("systems", "run", "most", "names"),
    [
        (["t1", "t2"], ["t1", "t2"], 20, ["mine a", "mine b"]),
        (["t2", "t2"], ["t2"], 20, ["mine"]),
        (["t1", "t2"], ["t2"], 1, ["mine b"]),  # the column that has been run most
    ],
)
def test_each_run_of_a_row_has_its_curve(
    report, monkeypatch, systems, run, most, names
):
    """Named by its column where a row has several runs, by its row alone otherwise."""
    monkeypatch.setattr(table_results, "MOST_CURVES", most)
    report.table = {
        "title": "Mine",
        "curve": "valid_loss",
        "columns": {
            name: {"config": "blm", "system": system, "metric": "valid_loss"}
            for name, system in zip("ab", systems, strict=True)
        },
        "rows": {"mine": {}},
    }
    curves = report.of({f"blm_{system}": 7.0 for system in run})[0]["curves"]
    assert list(curves) == names
    assert all(curve["valid_loss"] == [12.0, 7.0, 8.0] for curve in curves.values())


def test_memory_of_a_gpu_is_what_was_least_free(report):
    results = with_lines(
        report.add("run", 7.0),
        "rank 0: capabilities = 9.0 ; total memory = 80.0 GB ; name = X\n",
        *(
            record("train_inner", num_updates=number, wps="9", gb_free=free)
            for number, free in ((3, "70.5"), (4, "60.5"), (5, "61"))
        ),
    )
    assert read_metric("peak_memory_gib", results) == 19.5


def test_memory_is_that_of_the_gpu_an_attempt_had(report):
    """Resumed on a larger GPU, a run has not used what the smaller one lacked."""
    lines = []
    for total, number, free in ((80.0, 3, "20"), (140.0, 4, "79")):
        for rank in (0, 1):
            lines.append(f"rank {rank}: total memory = {total} GB ; name = X\n")
        lines.append(record("train_inner", num_updates=number, wps="9", gb_free=free))
    results = with_lines(report.add("run", 7.0), *lines)
    assert read_metric("peak_memory_gib", results) == 61


@pytest.mark.parametrize(
    ("first", "last", "names"),
    [
        (1, 3, []),
        (2, 3, ["2 of 3 updates"]),
        (1, 2, ["2 of 3 updates"]),
        (1, 0, ["gradient_statistics.jsonl"]),
    ],
)
def test_gradients_of_some_of_the_updates_are_no_figure(report, first, last, names):
    """They vary most in the first ones."""
    run = report.add("run", 7.0)
    lines = [{"parameters": {"a": 1}}]
    lines += [{"update": n, "norm": [n], "mean": [0]} for n in range(first, last + 1)]
    path = run.path / "gradient_statistics.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in lines))
    results = RunResults(run)
    if names:
        with refuses(NotMeasured, *names):
            read_metric("gradient_rsd", results)
    else:  # of 1, 2 and 3
        found = read_metric("gradient_rsd", results)
        assert found == pytest.approx((2 / 3) ** 0.5 / 2)


def test_a_run_without_results_has_no_figures(report):
    run = report.add("run", 7.0)
    (run.path / "train.log").write_text("nothing yet\n")
    for name in ("valid_ppl", "test_ppl", "params_m", "tokens_per_second"):
        assert read_metric(name, RunResults(run)) is None


def test_equal_figures_have_no_rank_correlation():
    found = agreement({"a": 1.0, "b": 2.0}, {"a": 3.0, "b": 3.0}, {})
    assert found["spearman"] is None and found["disagreements"] == []
    assert agreement({"a": 1.0}, {"a": 3.0}, {}) is None
    ties = agreement({"a": 1.0, "b": 1.0, "c": 2.0}, {"a": 1.0, "b": 2.0, "c": 3.0}, {})
    assert math.isclose(ties["kendall"], 2 / math.sqrt(6))


@pytest.mark.parametrize(
    ("difference", "within"), [(0.4, True), (0.49, True), (0.51, False), (0.69, False)]
)
def test_noise_is_the_deviation_of_a_difference(difference, within):
    """Of independent figures variances add: 0.3 and 0.4 make 0.5, not 0.7."""
    measured = {"a": 2.0 + difference, "b": 2.0}
    found = agreement({"a": 1.0, "b": 2.0}, measured, {"a": 0.3, "b": 0.4})
    (pair,) = found["disagreements"]
    assert pair["within_deviation"] is within


@pytest.mark.parametrize(
    ("deviations", "is_within"),
    [((), False), ((0.6,), True), ((0.6, 0.8), True), ((0.1, 0.2), False)],
)
def test_rows_within_their_standard_error_have_no_rank_correlation(
    deviations, is_within
):
    paper = dict(zip("abcd", (1.0, 2.0, 3.0, 4.0), strict=True))
    measured = dict(zip("abcd", (5.0, 5.4, 4.9, 6.1), strict=True))
    found = agreement(paper, measured, dict(zip("ab", deviations, strict=False)))
    assert found["is_within_error"] is is_within
    assert (correlations_of(found) == ["", ""]) is is_within
    more = {row: 100 for row in "abcd"}  # whose means are ten times as sure
    found = agreement(paper, measured, dict(zip("ab", deviations, strict=False)), more)
    assert not found["is_within_error"]


def test_a_tables_own_figure_is_made_of_its_finished_rows(report):
    report.table["figure"] = {
        "command": [
            "python", "-c",
            "import sys; open(sys.argv[1] + '/seen', 'w').write(str(sys.argv[2:]))",
            "{output}", "{data}",
        ],
        "each_row": ["{row}={checkpoint}"],
    }  # fmt: skip
    report.of({"blm_t2": 7.0})
    seen = (report.out / "mine/seen").read_text()
    assert "'data'" in seen and "T2=" in seen and "T1=" not in seen
    assert "blm_t2/seed1/checkpoints/checkpoint_best.pt" in seen


def test_pages_are_written_anew_from_their_json(table11, capsys):
    """Without runs: the same page, with what was remarked in the JSON by hand."""
    table11.of(dict(zip(SIZES[:2], (8.0, 7.0), strict=True)))
    shutil.rmtree(table11.folder / "runs")
    files = [table11.out / name for name in ("table11.md", "README.md", "table11.png")]
    before = {path: path.read_bytes() for path in files}
    for path in files:
        path.unlink()
    out = ["--preset", "smoke", "--out", str(table11.folder / "out")]
    assert main(["report", "--from-results", *out]) == 0
    assert {path: path.read_bytes() for path in files} == before
    remarks = {"remarks": ["Measured on a Monday."]}
    table11.change(lambda measured: measured.update(remarks), "table11.json")
    assert "\nMeasured on a Monday.\n" in table11("--from-results")[1]

    # what is not there, or of another form: one line, and nothing is written
    written = files[0].read_bytes()
    table11("table1", "--from-results", code=2)
    assert lines_naming(table11.output, "table1.json", "reported there: table11")
    table11.change(lambda measured: measured.pop("conditions"), "table11.json")
    table11("--from-results", code=2)
    assert lines_naming(table11.output, "table11.json", "'conditions'")
    assert files[0].read_bytes() == written


@pytest.mark.parametrize(
    "committed",
    sorted(path.parent for path in ROOT.glob("results/*/*/table4.json")),
    ids=lambda folder: f"{folder.parent.name}/{folder.name}",
)
def test_the_pages_in_results_are_those_of_their_json(committed, tmp_path, monkeypatch):
    def is_there(measured, *others):
        return (committed / others[-1].name).exists()

    for plot in ("plot_table", "plot_sweep", "plot_columns", "plot_bubbles"):
        monkeypatch.setattr(reporting, plot, is_there)
    folder = shutil.copytree(committed, tmp_path / committed.name)
    assert main(["report", "--from-results", "--preset", committed.name,
                 "--out", str(tmp_path)]) == 0  # fmt: skip
    pages = sorted(folder.glob("*.md"))
    assert len(pages) > 1
    for page in pages:
        assert page.read_text() == (committed / page.name).read_text(), page.name


def test_a_report_does_not_say_where_a_machine_has_its_files(table11):
    here = {"common": {"user_dir": str(ROOT)}, "task": {"data": "/here/data-bin"}}
    table11.add("blm_t1", 6.0, **here)
    table11.add(SIZES[2], 7.0, **here)
    measured, _ = table11()
    records = [measured["common_identity"]]
    for seeds in measured["runs"].values():
        records += [record["identity"] for record in seeds.values()]
    values = [str(value) for record in records for value in record.values()]
    assert "[0.1]" in values  # of the configuration
    assert not [value for value in values if value.startswith("/")]


@pytest.mark.parametrize(
    ("value", "deviation", "shown"),
    [
        (12.45, 0.00707, " ± 0.01"),
        (12.45, 0.0, " ± 0.00"),
        (0.197, 0.00312, " ± 0.00312"),
        (12.45, None, ""),
    ],
)
def test_a_deviation_is_no_finer_than_its_mean(value, deviation, shown):
    assert deviation_of(value, deviation) == shown
