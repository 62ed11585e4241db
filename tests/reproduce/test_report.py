"""The report of runs whose figures are known."""

import json
import math
import shutil

import pytest
import yaml

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

from .stand_in import finished_run

CONFIGURATION = {
    "model": {"_name": "x"},
    "optimization": {"lr": [0.1], "max_update": 3},
    "common": {"seed": 1},
}


@pytest.fixture
def reported(tmp_path):
    """Table 11 as reported for given runs: {(row, column, seed): perplexity}."""

    def report(figures: dict, preset="smoke", **changes) -> tuple[dict, str]:
        for (size, variant, seed), ppl in figures.items():
            name = f"blm_{variant}" + (f"+block_size={size}" if size != 64 else "")
            configuration = json.loads(json.dumps(CONFIGURATION))
            configuration["common"]["seed"] = seed
            configuration["optimization"] |= changes.get(name, {})
            configuration["common"]["user_dir"] = str(ROOT / "fairseq_transnormer")
            configuration.setdefault("task", {})["data"] = "/here/data-bin/debian"
            folder = tmp_path / "runs" / preset / name / f"seed{seed}"
            finished_run(folder, configuration, ppl, seed)
        out = tmp_path / "results"
        options = ["--preset", preset, "--runs-dir", str(tmp_path / "runs")]
        assert main(["report", "table11", *options, "--out", str(out)]) == 0
        folder = out / preset
        assert "table11.md" in (folder / "README.md").read_text()
        measured = json.loads((folder / "table11.json").read_text())
        return measured, (folder / "table11.md").read_text()

    return report


def test_paper_measured_and_difference(reported):
    measured, page = reported(
        {(32, "t1", 1): 8.0, (64, "t1", 1): 7.0, (128, "t1", 1): 6.0}
    )
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


def test_figures_of_the_papers_sizes_are_subtracted(reported):
    _, page = reported({(64, "t1", 1): 7.0}, preset="paper")
    heading = "T1, paper | measured | difference | T2, paper | measured | difference"
    assert f"| | {heading} |" in page
    assert "| 64 | 3.82 | 7.00 | +3.18 | 3.81 |  |  |" in page


def test_a_column_that_the_paper_has_not_is_only_measured(tmp_path):
    folders = ["--runs-dir", str(tmp_path / "runs"), "--out", str(tmp_path / "out")]
    assert main(["report", "precision", "--preset", "paper", *folders]) == 0
    page = (tmp_path / "out" / "paper" / "precision.md").read_text()
    columns = ("ALM T1", "ALM T2", "BLM T1", "BLM T2")
    heading = " | ".join(f"{column}, measured" for column in columns)
    assert f"| | {heading} |\n" in page


def test_rows_in_another_order_are_listed(reported):
    """Paper: 3.90, 3.81, 3.69 for 32, 64, 128."""
    measured, page = reported(
        {(32, "t2", 1): 5.0, (64, "t2", 1): 6.0, (128, "t2", 1): 4.0}
    )
    found = measured["agreement"]["T2"]
    # ranks 3 2 1 against 2 3 1: rho = 1 - 6 * 2 / 24, tau = (2 - 1) / 3
    assert found["spearman"] == pytest.approx(0.5)
    assert found["kendall"] == pytest.approx(1 / 3)
    (pair,) = found["disagreements"]
    assert pair["rows"] == ["32", "64"]
    assert pair["measured_difference"] == -1.0
    assert lines_naming(page, "32 less 64", "+0.09", "-1.00")


def test_several_seeds_give_mean_and_standard_deviation(reported):
    measured, page = reported(
        {(64, "t1", seed): ppl for seed, ppl in ((1, 6.0), (2, 7.0), (3, 8.0))}
        | {(128, "t1", seed): ppl for seed, ppl in ((1, 6.5), (2, 7.5), (3, 8.5))}
    )
    cell = measured["rows"]["64"]["T1"]
    assert (cell["measured"], cell["deviation"]) == (7.0, 1.0)
    assert cell["seeds"] == {"1": 6.0, "2": 7.0, "3": 8.0}
    assert "7.00 ± 1.00" in page
    (pair,) = measured["agreement"]["T1"]["disagreements"]
    assert pair["within_deviation"] is True
    assert "within the seeds' deviation" in page


def test_unequal_conditions_are_told(reported):
    _, page = reported({(64, "t1", 1): 7.0, (128, "t1", 1): 6.0}, blm_t1={"lr": [0.2]})
    assert "**not equal**, `optimization.lr`: smoke/blm_t1/seed1: [0.2]" in page


def test_metrics_are_those_of_the_best_checkpoint(tmp_path):
    finished_run(tmp_path / "run", CONFIGURATION, 7.0)
    results = RunResults(RunFolder(tmp_path / "run"))
    assert read_metric("valid_ppl", results) == 7.0
    assert read_metric("test_ppl", results) == 8.0
    assert read_metric("updates", results) == 3


def test_losses_and_shares_of_right_predictions(tmp_path):
    finished_run(tmp_path / "run", CONFIGURATION, 7.0)
    results = RunResults(RunFolder(tmp_path / "run"))
    assert (read_metric("valid_loss", results), read_metric("test_loss", results)) == (
        7.0, 7.0
    )  # fmt: skip
    assert read_metric("test_accuracy", results) is None
    with refuses(NotMeasured, "99"):
        read_metric("updates_to_99", results)
    log = tmp_path / "run" / "train.log"
    with log.open("a") as file:
        for update, right in ((4, "50"), (5, "99.1"), (6, "99.95")):
            for kind in ("valid", "test"):
                record = {"loss": str(1 / update), "accuracy": right, "ppl": "1"}
                record = {f"{kind}_{k}": v for k, v in record.items()}
                record[f"{kind}_num_updates"] = str(update)
                file.write(f"[2026][{kind}][INFO] - {json.dumps(record)}\n")
    results = RunResults(RunFolder(tmp_path / "run"))
    assert read_metric("updates_to_99", results) == 5
    assert read_metric("test_accuracy", results) == pytest.approx(99.95)
    assert read_metric("test_loss", results) == pytest.approx(1 / 6)


def run_with_validations(folder, validations, **selection):
    """A run's results whose log has these; test figures are valid's plus 100."""
    finished_run(folder, CONFIGURATION | {"checkpoint": selection}, 7.0)
    lines = ["[2026][train_inner][INFO] - " + json.dumps({"num_updates": "1"})]
    for update, values in validations.items():
        for kind, more in (("valid", 0), ("test", 100)):
            record = {f"{kind}_{k}": str(v + more) for k, v in values.items()}
            record[f"{kind}_num_updates"] = str(update)
            # so that equal ones can be told apart
            record[f"{kind}_ppl"] = str(update + more)
            lines.append(f"[2026][{kind}][INFO] - {json.dumps(record)}")
    (folder / "train.log").write_text("\n".join(lines) + "\n")
    return RunResults(RunFolder(folder))


@pytest.mark.parametrize("maximize", [False, True])
def test_of_equal_validations_the_last_is_the_best(tmp_path, maximize):
    """fairseq overwrites checkpoint_best.pt by one that is as good."""
    sign = 1 if maximize else -1
    figures = {1: 3.0, 2: 3.0 + sign, 3: 3.0 + sign, 4: 3.0}
    results = run_with_validations(
        tmp_path / "run",
        {update: {"accuracy": value} for update, value in figures.items()},
        best_checkpoint_metric="accuracy",
        maximize_best_checkpoint_metric=maximize,
    )
    assert read_metric("valid_ppl", results) == 3
    assert read_metric("test_ppl", results) == 103


def test_99_percent_are_reached_at_99_and_not_below(tmp_path):
    shares = {10: 50.0, 20: 98.9, 30: 98.99, 40: 99.0, 50: 99.5}
    figures = {update: {"accuracy": share} for update, share in shares.items()}
    results = run_with_validations(tmp_path / "run", figures)
    assert read_metric("updates_to_99", results) == 40
    del figures[40], figures[50]
    results = run_with_validations(tmp_path / "less", figures)
    with refuses(NotMeasured, "99"):
        read_metric("updates_to_99", results)


@pytest.mark.parametrize("maximize", [False, True])
def test_a_sweep_takes_the_value_that_its_metric_calls_best(tmp_path, maximize):
    """The smallest loss or the largest accuracy, whichever checkpoints are kept by."""
    metric = "accuracy" if maximize else "loss"
    table = {
        "title": "Mine",
        "sweep": {"model.block_size": [16, 32, 128]},
        "columns": {"merit": {"metric": f"valid_{metric}" if not maximize else metric}},
        "rows": {"T2": {"config": "blm", "system": "t2"}},
    }
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(table))
    for size, figure in ((16, 5.0), (32, 2.0), (128, 8.0)):
        run_with_validations(
            tmp_path / f"runs/small/blm_t2+block_size={size}/seed1",
            {1: {metric: figure}},
            best_checkpoint_metric=metric,
            maximize_best_checkpoint_metric=maximize,
        )
    options = ["--preset", "small", "--runs-dir", str(tmp_path / "runs")]
    assert main(["report", str(path), *options, "--out", str(tmp_path / "out")]) == 0
    measured = json.loads((tmp_path / "out/small/mine.json").read_text())
    cell = measured["rows"]["T2"]["merit"]
    assert [each["measured"] for each in cell["sweep"]] == [5.0, 2.0, 8.0]
    assert cell["measured"] == (8.0 if maximize else 2.0)


def test_curves_of_what_the_table_names(tmp_path):
    table = {
        "title": "Mine",
        "curve": "valid_loss",
        "columns": {"loss": {"metric": "valid_loss", "ranked": False}},
        "rows": {"T2": {"config": "blm", "system": "t2"}},
    }
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(table))
    finished_run(tmp_path / "runs" / "smoke" / "blm_t2" / "seed1", CONFIGURATION, 7.0)
    options = ["--preset", "smoke", "--runs-dir", str(tmp_path / "runs")]
    assert main(["report", str(path), *options, "--out", str(tmp_path / "out")]) == 0
    folder = tmp_path / "out" / "smoke"
    assert "Order of the rows" not in (folder / "mine.md").read_text()
    assert "| [Mine](mine.md) | loss | 1 of 1 |" in (folder / "README.md").read_text()
    # a later report of another table lists both
    table["title"] = "Another"
    (tmp_path / "another.yaml").write_text(yaml.safe_dump(table))
    (folder / "no_table.json").write_text('{"preset": "smoke"}')
    report = ["report", str(tmp_path / "another.yaml"), *options]
    assert main([*report, "--out", str(tmp_path / "out")]) == 0
    listed = (folder / "README.md").read_text().splitlines()[-2:]
    assert [line.split("]")[0] for line in listed] == ["| [Another", "| [Mine"]
    measured = json.loads((folder / "mine.json").read_text())
    assert measured["curves"]["T2"] == {
        "updates": [1, 2, 3],
        "valid_loss": [12.0, 7.0, 8.0],
    }


@pytest.mark.parametrize(
    ("systems", "run", "most", "names"),
    [
        (["t1", "t2"], ["t1", "t2"], 20, ["mine a", "mine b"]),
        (["t2", "t2"], ["t2"], 20, ["mine"]),
        (["t1", "t2"], ["t2"], 1, ["mine b"]),  # the column that has been run most
    ],
)
def test_each_run_of_a_row_has_its_curve(
    tmp_path, monkeypatch, systems, run, most, names
):
    """Named by its column where a row has several runs, by its row alone otherwise."""
    monkeypatch.setattr(table_results, "MOST_CURVES", most)
    table = {
        "title": "Mine",
        "curve": "valid_loss",
        "columns": {
            name: {"config": "blm", "system": system, "metric": "valid_loss"}
            for name, system in zip("ab", systems, strict=True)
        },
        "rows": {"mine": {}},
    }
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(table))
    for system in run:
        folder = tmp_path / "runs" / "smoke" / f"blm_{system}" / "seed1"
        finished_run(folder, CONFIGURATION, 7.0)
    options = ["--preset", "smoke", "--runs-dir", str(tmp_path / "runs")]
    assert main(["report", str(path), *options, "--out", str(tmp_path / "out")]) == 0
    curves = json.loads((tmp_path / "out/smoke/mine.json").read_text())["curves"]
    assert list(curves) == names
    assert all(curve["valid_loss"] == [12.0, 7.0, 8.0] for curve in curves.values())


def test_memory_of_a_gpu_is_what_was_least_free(tmp_path):
    finished_run(tmp_path / "run", CONFIGURATION, 7.0)
    log = tmp_path / "run" / "train.log"
    with log.open("a") as file:
        file.write("rank 0: capabilities = 9.0 ; total memory = 80.0 GB ; name = X\n")
        for number, free in ((3, "70.5"), (4, "60.5"), (5, "61")):
            record = {"num_updates": str(number), "wps": "9", "gb_free": free}
            file.write(f"[2026][train_inner][INFO] - {json.dumps(record)}\n")
    results = RunResults(RunFolder(tmp_path / "run"))
    assert read_metric("peak_memory_gib", results) == 19.5


def test_memory_is_that_of_the_gpu_an_attempt_had(tmp_path):
    """Resumed on a larger GPU, a run has not used what the smaller one lacked."""
    finished_run(tmp_path / "run", CONFIGURATION, 7.0)
    with (tmp_path / "run" / "train.log").open("a") as file:
        for total, number, free in ((80.0, 3, "20"), (140.0, 4, "79")):
            for rank in (0, 1):
                file.write(f"rank {rank}: total memory = {total} GB ; name = X\n")
            record = {"num_updates": str(number), "wps": "9", "gb_free": free}
            file.write(f"[2026][train_inner][INFO] - {json.dumps(record)}\n")
    results = RunResults(RunFolder(tmp_path / "run"))
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
def test_gradients_of_some_of_the_updates_are_no_figure(tmp_path, first, last, names):
    """They vary most in the first ones."""
    finished_run(tmp_path / "run", CONFIGURATION, 7.0)
    lines = [{"parameters": {"a": 1}}]
    lines += [{"update": n, "norm": [n], "mean": [0]} for n in range(first, last + 1)]
    path = tmp_path / "run" / "gradient_statistics.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in lines))
    results = RunResults(RunFolder(tmp_path / "run"))
    if names:
        with refuses(NotMeasured, *names):
            read_metric("gradient_rsd", results)
    else:  # of 1, 2 and 3
        found = read_metric("gradient_rsd", results)
        assert found == pytest.approx((2 / 3) ** 0.5 / 2)


def test_a_run_without_results_has_no_figures(tmp_path):
    finished_run(tmp_path / "run", CONFIGURATION, 7.0)
    (tmp_path / "run" / "train.log").write_text("nothing yet\n")
    results = RunResults(RunFolder(tmp_path / "run"))
    for name in ("valid_ppl", "test_ppl", "params_m", "tokens_per_second"):
        assert read_metric(name, results) is None


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


def test_a_tables_own_figure_is_made_of_its_finished_rows(tmp_path):
    table = {
        "title": "Mine",
        "columns": {"valid_ppl": {"metric": "valid_ppl"}},
        "config": "blm",
            "rows": {"T2": {"system": "t2"}, "T1": {"system": "t1"}},
        "figure": {
            "command": [
                "python", "-c",
                "import sys; open(sys.argv[1] + '/seen', 'w').write(str(sys.argv[2:]))",
                "{output}", "{data}",
            ],
            "each_row": ["{row}={checkpoint}"],
        },
    }  # fmt: skip
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(table))
    finished_run(tmp_path / "runs" / "smoke" / "blm_t2" / "seed1", CONFIGURATION, 7.0)
    options = ["--preset", "smoke", "--runs-dir", str(tmp_path / "runs")]
    out = ["--out", str(tmp_path / "results")]
    assert main(["report", str(path), *options, *out]) == 0
    seen = (tmp_path / "results" / "smoke" / "mine" / "seen").read_text()
    assert "'data'" in seen and "T2=" in seen and "T1=" not in seen
    assert "blm_t2/seed1/checkpoints/checkpoint_best.pt" in seen


def test_pages_are_written_anew_from_their_json(tmp_path, capsys):
    """Without runs: the same page, with what was remarked in the JSON by hand."""
    runs = tmp_path / "runs"
    for size, ppl in ((32, 8.0), (64, 7.0)):
        name = "blm_t1" + (f"+block_size={size}" if size != 64 else "")
        finished_run(runs / "smoke" / name / "seed1", CONFIGURATION, ppl)
    out = ["--preset", "smoke", "--out", str(tmp_path / "out")]
    assert main(["report", "table11", *out, "--runs-dir", str(runs)]) == 0
    shutil.rmtree(runs)
    folder = tmp_path / "out" / "smoke"
    page, overview = folder / "table11.md", folder / "README.md"
    before = {path: path.read_bytes() for path in (page, overview)}
    picture = (folder / "table11.png").read_bytes()
    for path in (page, overview, folder / "table11.png"):
        path.unlink()
    assert main(["report", "--from-results", *out]) == 0
    assert {path: path.read_bytes() for path in before} == before
    assert (folder / "table11.png").read_bytes() == picture
    content = json.loads((folder / "table11.json").read_text())
    content["remarks"] = ["Measured on a Monday."]
    (folder / "table11.json").write_text(json.dumps(content))
    assert main(["report", "table11", "--from-results", *out]) == 0
    assert "\nMeasured on a Monday.\n" in page.read_text()

    # what is not there, or of another form: one line, and nothing is written
    written = page.read_bytes()
    capsys.readouterr()
    assert main(["report", "table11", "table1", "--from-results", *out]) == 2
    assert lines_naming(
        capsys.readouterr().err, "table1.json", "reported there: table11"
    )
    del content["conditions"]
    (folder / "table11.json").write_text(json.dumps(content))
    assert main(["report", "table11", "--from-results", *out]) == 2
    assert lines_naming(capsys.readouterr().err, "table11.json", "'conditions'")
    assert page.read_bytes() == written


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


def test_a_report_does_not_say_where_a_machine_has_its_files(reported):
    measured, _ = reported({(64, "t1", 1): 6.0, (128, "t1", 1): 7.0})
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
