"""Pages: the committed ones are those of the committed rows, and new ones."""

import functools
import shlex
import shutil

import pandas
import pytest

from fairseq_transnormer import cli
from fairseq_transnormer.reproduce import actions, commands, report, schema
from fairseq_transnormer.reproduce.results import RUNS, Results
from fairseq_transnormer.reproduce.runs import RunFolder
from fairseq_transnormer.reproduce.text import number, plus_minus
from tests.messages import assert_names, lines_naming
from tests.paths import CONFIGS, RESULTS

from .made import TABLE, files, validations, write_run, write_yaml

LABELS = sorted(set(pandas.read_csv(RESULTS / RUNS, usecols=["preset"])["preset"]))
LOADED = functools.cache(schema.load_table)
results = functools.cache(lambda: Results.read(RESULTS))


def conditions_of(label):
    """Of the command that the label's page names."""
    page = (RESULTS / f"tables/{label}.md").read_text()
    (made_by,) = [line for line in page.splitlines() if line.startswith("Made by `")]
    words = shlex.split(made_by.split("`")[1].removeprefix(commands.PROGRAM))
    assert words.pop(0) == "report"
    options = cli.parsed(commands.report_tables, "report", words).keywords["runs"]
    return actions.conditions_of(options, schema.load_preset(CONFIGS, options.preset))


def test_every_committed_page_has_rows():
    assert sorted(each.stem for each in (RESULTS / "tables").glob("*.md")) == LABELS


@pytest.mark.parametrize("label", LABELS)
def test_committed_pages_are_those_of_the_committed_rows(label, tmp_path, monkeypatch):
    """Byte for byte; and the pictures that they show are there."""
    monkeypatch.setattr(report, "load_table", LOADED)
    drawn = {}
    monkeypatch.setattr(report, "curves", lambda *g, **more: drawn.update({g[1]: g}))
    for path in (RESULTS / "tables").rglob("*.png"):
        copy = tmp_path / path.relative_to(RESULTS)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.touch()
    given = conditions_of(label)
    assert given.label == label
    report.write_page([], given, results(), tmp_path)
    for name in (f"tables/{label}.md", f"tables/{label}.csv"):
        assert (tmp_path / name).read_bytes() == (RESULTS / name).read_bytes()
    assert all((RESULTS / path.relative_to(tmp_path)).is_file() for path in drawn)


@pytest.fixture
def reported(tmp_path, place, command):
    """``(row, seed, perplexities)`` writes a run, ``()`` reports: page and CSV."""

    def run(*row, code=0, **given):
        if row:
            name, seed, *ppls = row
            path = tmp_path / f"runs/tiny/{name}/seed{seed}"
            own = {"model": {"_name": "x", "name": name}}
            log = validations(ppls)
            return write_run(path, log, seed=seed, configuration=own, **given)
        found, _, run.error = command("report", place / "mine.yaml")
        assert found == code, run.error
        page = tmp_path / "results/tables/tiny.md"
        return page.read_text(), pandas.read_csv(page.with_suffix(".csv"))

    return run


def cells_of(page):
    """The page's first table: row -> column -> text."""
    lines = [line for line in page.partition("\n|")[2].split("\n\n")[0].splitlines()]
    head, _, *rows = [[w.strip() for w in line.strip("|").split("|")] for line in lines]
    return {name: dict(zip(head[1:], row, strict=True)) for name, *row in rows}


def test_a_page_has_the_papers_figures_and_ours(reported):
    reported("blm_t1", 1, 5.0, 6.0)
    reported("blm_t1", 2, 8.0)
    path = reported("blm_t2", 1, 7.25)
    page, frame = reported()
    found = cells_of(page)
    assert found["T1"]["ppl, paper"] == "3.00" and found["T2"]["test, paper"] == ""
    assert found["T1"]["ppl, here"] == "6.50 ± 2.12"
    assert found["T2"]["test, here"] == "8.25" and "![" not in page
    own = frame.set_index(["row", "column"]).loc[("T1", "ppl")]
    assert (own["measured"], own["paper"], own["values"]) == (6.5, 3.0, "5.0 8.0")
    assert own["seeds"] == "1 2" and own["deviation"] == pytest.approx(2.1213203)
    # the paper has 3 and 2; seed 1, the only one of both rows, has 5 and 7.25
    assert "* T1 - T2: paper +1.00, here -2.25" in page
    for said in ("words (d1)", "torch 2", "abc", "CPU, 1 threads"):
        assert said in page
    # what is not there is said
    reported("blm_t1", 3, 5.0, exit_code=75)
    reported("blm_t1", 4, 5.0, exit_code=1)
    reported("blm_t2", 2, float("nan"))
    (path / "config.yaml").write_text("[")
    shutil.rmtree(path.parents[3] / "results")
    page, frame = reported(code=1)
    assert all(said in page for said in ("seed 3 (interrupted)", "unreadable", "nan"))
    assert cells_of(page)["T2"]["ppl, here"] == "-"
    assert {*frame.dropna(subset="measured")["row"]} == {"T1"}
    why = {"blm_t1/seed3": "interrupted", "blm_t1/seed4": "failed"}
    why["blm_t2/seed1"] = "unreadable"
    for line, run in zip(reported.error.splitlines(), why, strict=True):
        assert_names(line, run, why[run])


def test_lines_that_the_table_lacks_stay_on_the_page(reported, command, tmp_path):
    """A fine-tuning on other problems has the table of these problems alone."""
    reported("blm_t1", 1, 5.0)
    reported("blm_t2", 1, 7.25)
    reported()
    column = {"ppl": {"metric": "valid_ppl", "ranked": False}}
    column["mean"] = {"mean_of": ["ppl"]}
    rows = {"T1": {"system": "t1"}}
    own = TABLE | {"columns": column, "rows": rows}
    assert command("report", write_yaml(tmp_path / "mine.yaml", own))[0] == 0
    page = (tmp_path / "results/tables/tiny.md").read_text()
    frame = pandas.read_csv(tmp_path / "results/tables/tiny.csv")
    found = frame.pivot(index="row", columns="column", values="measured")
    assert found.to_dict("index") == {
        "T1": {"ppl": 5.0, "mean": 5.0, "test": 6.0},
        "T2": {"ppl": 7.25, "mean": 7.25, "test": 8.25},
    }
    assert TABLE["title"] in page and "values were run" not in page


def test_replaced_figures_of_other_data_are_said(reported, command, place):
    reported("blm_t1", 1, 5.0)
    reported()
    where = place / "mine.yaml"
    assert not lines_naming(command("report", where)[1], "replaced figures")
    reported("blm_t1", 1, 6.0, data_fingerprint="d2")
    (line,) = lines_naming(command("report", where)[1], "replaced figures")
    assert_names(line, "other", "data", 2)


def test_a_report_twice_gives_the_same_bytes(reported, tmp_path, monkeypatch):
    reported("blm_t1", 1, *range(9, 3, -1))
    reported("blm_t2", 1, *range(12, 6, -1))
    folder = tmp_path / "results"

    def add(mine, found, add=Results.add):  # a report that ends now waits
        assert RunFolder(folder).is_locked()
        return add(mine, found)

    monkeypatch.setattr(Results, "add", add)
    page, _ = reported()
    before = files(folder)
    # six validations of two rows are a picture
    assert before[folder / "tables/tiny/mine.png"].startswith(b"\x89PNG")
    assert "(tiny/mine.png)" in page
    # a page that was edited is no source of figures, nor is its CSV
    for suffix in (".md", ".csv"):
        path = folder / f"tables/tiny{suffix}"
        path.write_text(path.read_text().replace("4", "3"))
    shutil.rmtree(tmp_path / "runs")
    reported()
    assert files(folder) == before


def test_numbers_are_as_fine_as_their_deviation():
    given = [(12.3, None), (12.3, 0.0812), (0.00123, None), (0.5, 0.00123), (0, None)]
    shown = ["12.30", "12.30 ± 0.08", "0.00123", "0.50 ± 0.00123", "0.00"]
    assert [number(a) + plus_minus(a, b) for a, b in given] == shown
    signs = [number(each, sign=True) for each in (1.0, -1.0, 0.0, None)]
    assert signs == ["+1.00", "-1.00", "0.00", ""]
