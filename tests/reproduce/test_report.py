"""Pages: the committed ones are those of the committed rows, and new ones."""

import functools
import shutil
from pathlib import Path

import matplotlib.image
import pandas
import pytest

from fairseq_transnormer.reproduce import commands, figures, report, schema
from fairseq_transnormer.reproduce.results import RUNS, Results
from fairseq_transnormer.reproduce.text import number, with_deviation
from tests.paths import RESULTS

from .made import validations, write_run

LABELS = sorted(set(pandas.read_csv(RESULTS / RUNS, usecols=["preset"])["preset"]))
LOADED = functools.cache(schema.load_table)


@functools.cache
def results():
    return Results.read(RESULTS)


def conditions_of(page):
    """Of the command that the page names."""
    made_by = page.read_text().strip().splitlines()[-1]
    assert made_by.count("`") == 2
    words = made_by.split("`")[1].removeprefix(commands.PROGRAM).split()
    return commands._conditions(commands._parser().parse_args(words))


@pytest.mark.parametrize("label", LABELS)
def test_committed_pages_are_those_of_the_committed_rows(label, tmp_path, monkeypatch):
    """Byte for byte; and the pictures that they show are there."""
    monkeypatch.setattr(report, "load_table", LOADED)
    drawn = []
    monkeypatch.setattr(figures, "curves", lambda *given: drawn.append(given[4]))
    for path in (RESULTS / "tables").rglob("*.png"):
        copy = tmp_path / path.relative_to(RESULTS)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.touch()
    committed = RESULTS / "tables" / f"{label}.md"
    given = conditions_of(committed)
    assert given.label == label
    report.write_page([], given, results(), tmp_path)
    for suffix in (".md", ".csv"):
        name = f"tables/{label}{suffix}"
        assert (tmp_path / name).read_bytes() == (RESULTS / name).read_bytes()
    assert all(path.relative_to(tmp_path).is_relative_to("tables") for path in drawn)
    for path in drawn:
        assert (RESULTS / path.relative_to(tmp_path)).is_file()


def test_every_committed_page_and_picture_is_of_rows():
    pages = {path.name.removesuffix(path.suffix) for path in folder_files("*.[mc]*")}
    assert pages == {*LABELS} and len(LABELS) > 4
    text = "".join(path.read_text() for path in folder_files("*.md"))
    for path in (RESULTS / "tables").rglob("*.png"):
        assert path.relative_to(RESULTS / "tables").as_posix() in text


def folder_files(pattern):
    return [path for path in (RESULTS / "tables").glob(pattern) if path.is_file()]


@pytest.fixture
def reported(tmp_path, place, command):
    """reported(row, seed, perplexities), ...; then () for the page and the CSV."""

    def run(*row, code=0, **given):
        if row:
            name, seed, *ppls = row
            path = tmp_path / f"runs/tiny/{name}/seed{seed}"
            own = {"model": {"_name": "x", "name": name}}
            log = validations(ppls)
            return write_run(path, log, seed=seed, configuration=own, **given)
        found, out, error = command("report", place / "mine.yaml")
        run.output, run.error = out, error
        assert found == code, error
        page = tmp_path / "results/tables/tiny.md"
        return page.read_text(), pandas.read_csv(page.with_suffix(".csv"))

    return run


def cells_of(page):
    """The page's first table: row -> column -> text."""
    lines = [line for line in page.splitlines() if line.startswith("|")]
    words = [[w.strip() for w in line.strip("|").split("|")] for line in lines]
    head, _, *rows = words[: next(i for i, w in enumerate([*words, []]) if not w)]
    return {name: dict(zip(head[1:], row, strict=True)) for name, *row in rows}


def test_a_page_has_the_papers_figures_and_ours(reported):
    reported("blm_t1", 1, 5.0, 6.0)
    reported("blm_t1", 2, 8.0)
    reported("blm_t2", 1, 7.25)
    page, frame = reported()
    found = cells_of(page)
    assert found["T1"]["ppl, paper"] == "3.00" and found["T2"]["test, paper"] == ""
    assert found["T1"]["ppl, here"] == "6.50 ± 2.12"
    assert found["T2"]["test, here"] == "8.25"
    own = frame.set_index(["row", "column"]).loc[("T1", "ppl")]
    assert (own["measured"], own["paper"], own["values"]) == (6.5, 3.0, "5.0 8.0")
    assert own["seeds"] == "1 2" and own["deviation"] == pytest.approx(2.1213203)
    # 3 beside 2 in the paper, 6.5 beside 7.25 here
    assert "* T1 - T2: paper +1.00, here -0.75" in page
    for said in ("words (d1)", "torch 2", "abc", "CPU, 1 threads"):
        assert said in page
    assert Path(frame["table"][0]).name == "mine"


def test_what_is_not_there_is_said(reported):
    reported("blm_t1", 1, 5.0)
    reported("blm_t1", 2, 5.0, exit_code=75)
    path = reported("blm_t2", 1, 7.0)
    reported("blm_t2", 2, float("nan"))
    (path / "config.yaml").write_text("[")
    page, frame = reported(code=1)
    for said in ("seed 2 (interrupted)", "unreadable", "nan"):
        assert said in page
    assert cells_of(page)["T2"]["ppl, here"] == "-"
    told = reported.error.splitlines()
    assert [line for line in told if "blm_t1/seed2" in line and "interrupted" in line]
    assert [line for line in told if "blm_t2/seed1" in line and "unreadable" in line]
    assert set(frame.dropna(subset="measured")["row"]) == {"T1"}


def test_a_report_twice_gives_the_same_bytes(reported, tmp_path):
    reported("blm_t1", 1, *range(9, 3, -1))
    reported("blm_t2", 1, *range(12, 6, -1))
    reported()
    folder = tmp_path / "results"
    before = {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    reported()
    assert {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()} == before
    # a page that was edited is no source of figures, nor is its CSV
    for suffix in (".md", ".csv"):
        path = folder / f"tables/tiny{suffix}"
        path.write_text(path.read_text().replace("4", "3"))
    shutil.rmtree(tmp_path / "runs")
    reported()
    assert {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()} == before
    # six validations of two rows are a picture
    picture = folder / "tables/tiny/mine.png"
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert "(tiny/mine.png)" in (folder / "tables/tiny.md").read_text()
    image = matplotlib.image.imread(picture)
    assert image.shape[1] > 400 and image[..., :3].std() > 0


def test_few_validations_are_no_picture(reported, tmp_path):
    reported("blm_t1", 1, 9.0, 8.0, 7.0)
    reported("blm_t2", 1, 9.0, 8.0, 7.0)
    page, _ = reported()
    assert "![" not in page and not list((tmp_path / "results").rglob("*.png"))


def test_sweeps_are_drawn_over_their_values(tmp_path, monkeypatch):
    """Of committed rows, whose means pandas has."""
    label, drawn = "medium+max_update=1500", {}
    monkeypatch.setattr(figures, "curves", lambda *g: drawn.update({g[4].stem: g}))
    given = conditions_of(RESULTS / f"tables/{label}.md")
    report.write_page([], given, results(), tmp_path)
    lines, axis, unit, _, _, logarithmic = drawn["table4"]
    frame = results().runs
    own = frame[(frame["preset"] == label) & (frame["table"] == "table4")]
    own = own[(own["row"] == "TransNormer T2") & (own["column"] == "valid_ppl")]
    means = own.groupby("sweep")["value"].mean().dropna()
    expected = {float(key.split("=")[1]): value for key, value in means.items()}
    assert len(expected) > 2 and logarithmic == (True, True)
    assert axis == "optimization.lr" and "perplexity" in unit
    points = lines["TransNormer T2"]
    assert {x: y for x, y, _ in points} == pytest.approx(expected)


def test_numbers_are_as_fine_as_their_deviation():
    for given, expected in (
        ((12.3, None), "12.30"),
        ((12.3, 0.0812), "12.30 ± 0.08"),
        ((0.00123, None), "0.00123"),
        ((0.5, 0.00123), "0.50 ± 0.00123"),
        ((12.3, 0.00123), "12.30 ± 0.00"),
        ((0.0, None), "0.00"),
        ((None, None), ""),
    ):
        assert with_deviation(*given) == expected
    assert [number(x, sign=True) for x in (1.0, -1.0, 0.0)] == [
        "+1.00",
        "-1.00",
        "0.00",
    ]
