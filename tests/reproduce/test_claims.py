"""Verdicts on the paper's claims follow from what reports measured."""

import json

import pytest

from fairseq_transnormer.reproduce.arguments import PROGRAM
from fairseq_transnormer.reproduce.claims import (
    CONTRADICTED,
    HOLDS,
    IN_KIND,
    NOT_RUN,
    UNCLEAR,
    Claim,
    claims_page,
    judge,
    load_claims,
)
from fairseq_transnormer.reproduce.command_line import main
from fairseq_transnormer.reproduce.errors import ReproduceError
from fairseq_transnormer.reproduce.tables import load_table
from tests.messages import refuses
from tests.paths import CONFIGS, ROOT

PAGE = ROOT / "docs/does_the_paper_hold.md"
SECTIONS = load_claims(CONFIGS / "claims" / f"{PAGE.stem}.yaml")
CLAIMS = [claim for claims in SECTIONS.values() for claim in claims]


def cell(values):
    values = dict(enumerate(values, start=1))
    return {
        "metric": "valid_ppl",
        "paper": 1.5,
        "measured": sum(values.values()) / len(values) if values else None,
        "deviation": 0.25 if len(values) > 1 else None,
        "seeds": {str(seed): value for seed, value in values.items()},
        "run": "run",
    }


def report(folder, rows, paper_sizes=False, table="mine"):
    """A report of one column; row -> the figures of its seeds."""
    folder.mkdir(exist_ok=True)
    content = {
        "table": table,
        "preset": folder.name,
        "title": "Mine",
        "paper_sizes": paper_sizes,
        "columns": ["ppl"],
        "rows": {row: {"ppl": cell(values)} for row, values in rows.items()},
        "agreement": {},
        "runs": {
            "run": {"1": {"updates": 40.0, "params_m": 0.5, "devices": ["CPU, 1 at"]}}
        },
        "conditions": {"equal": {"dataset.batch_size": 3}, "data": []},
    }
    (folder / f"{table}.json").write_text(json.dumps(content), encoding="utf-8")
    return folder


def claim(orders=(("a", "b"),), **more):
    orders = [list(order) for order in orders]
    return Claim("A is before B", "here", "mine", ["ppl"], orders, "more", **more)


@pytest.mark.parametrize(
    "a, b, more, verdict",
    [
        ([1.0, 2.0], [3.0, 4.0], {}, IN_KIND),
        ([3.0, 4.0], [1.0, 2.0], {}, CONTRADICTED),
        ([1.0, 3.5], [3.0, 4.0], {}, UNCLEAR),
        ([1.0, 3.0], [3.0, 4.0], {}, UNCLEAR),  # equal figures are no order
        ([1.0], [3.0, 4.0], {}, UNCLEAR),
        ([1.0], [], {}, UNCLEAR),
        ([1.0], [1.3], {"least_ratio": 1.2}, IN_KIND),
        ([1.3], [1.0], {"least_ratio": 1.2}, CONTRADICTED),
        ([1.0], [1.1], {"least_ratio": 1.2}, UNCLEAR),
        ([1.0, 2.0], [3.0, 4.0], {"reservation": "another cause"}, UNCLEAR),
        ([3.0, 4.0], [1.0, 2.0], {"reservation": "another cause"}, CONTRADICTED),
        ([], [], {}, NOT_RUN),
    ],
)
def test_verdicts(tmp_path, a, b, more, verdict):
    folder = report(tmp_path / "small", {"a": a, "b": b})
    found = judge(claim(**more), [folder])
    assert found.verdict == verdict
    if more.get("reservation") and verdict == UNCLEAR:
        assert found.why == "another cause"


def test_the_papers_size_comes_first_and_alone_confirms(tmp_path):
    rows = {"a": [1.0, 2.0], "b": [3.0, 4.0]}
    other = report(tmp_path / "small", {"a": [3.0, 4.0], "b": [1.0, 2.0]})
    of_paper = report(tmp_path / "paper", rows, paper_sizes=True)
    assert judge(claim(), [of_paper, other]).verdict == HOLDS
    assert judge(claim(), [tmp_path / "none", other]).verdict == CONTRADICTED
    report(of_paper, {"a": [], "b": []}, paper_sizes=True)
    assert judge(claim(), [of_paper, other]).verdict == CONTRADICTED


def test_every_pair_counts(tmp_path):
    rows = {"a": [1.0, 1.0], "b": [2.0, 2.0], "c": [1.5, 2.5], "d": [0.0, 0.0]}
    folder = report(tmp_path / "small", rows)

    def verdict(*orders):
        return judge(claim(orders), [folder]).verdict

    assert verdict("ab", "ac") == IN_KIND
    assert verdict("abc") == UNCLEAR
    assert verdict("abc", "ad") == CONTRADICTED


def test_the_page_shows_figures_and_conditions(tmp_path):
    folder = report(tmp_path / "small", {"a": [1.0, 2.0], "b": [3.0, 4.0]})
    page = claims_page({"Mine": [judge(claim(), [folder])]}, tmp_path / "docs", "made")
    assert "Claims: 1; holds in kind 1." in page and "```\nmade\n```" in page
    (row,) = [line for line in page.splitlines() if line.startswith("| A is before B")]
    for part in ("a: 1.50; **1.50 ± 0.25** (2 seeds)", "0.50 M", "40 updates", "of 3"):
        assert part in row
    assert "(../small/mine.md)" in row and row.count(" | ") == 4


def test_mistakes_are_named(tmp_path, capsys):
    folder = report(tmp_path / "small", {"a": [1.0]})
    with refuses(ReproduceError, "'A is before B'", "'b'", "allowed: a"):
        judge(claim(), [folder])
    path = tmp_path / "claims.yaml"
    for text, *parts in (
        ("Mine: {A: {where: x, tables: y}}", "A", "tables", "allowed"),
        ("Mine: {A: {where: x}}", "A", "table"),
        ("Mine: [1]", "Mine", "allowed"),
    ):
        path.write_text(text, encoding="utf-8")
        with refuses(ReproduceError, str(path), *parts):
            load_claims(path)
    assert main(["claims", "--results", str(tmp_path), "--presets", "paper"]) == 2
    assert f"--results {tmp_path}" in capsys.readouterr().err


@pytest.mark.parametrize("of", CLAIMS, ids=lambda each: each.sentence)
def test_claims_name_rows_of_their_tables(of):
    table = load_table(CONFIGS, of.table)
    assert set(of.columns) <= set(table.columns)
    assert set(of.rows()) <= set(table.rows)
    assert all(len(order) > 1 for order in of.orders)


def test_the_page_is_that_of_the_results(monkeypatch, tmp_path):
    monkeypatch.chdir(ROOT)
    made = tmp_path / PAGE.name
    assert main(["claims", "--page", str(made)]) == 0
    assert verdicts(made) == verdicts(PAGE)


def verdicts(page):
    """Without links and the command, which tell where the page is."""
    return [
        line.partition("](")[0] + line.partition(".md)")[2]
        for line in page.read_text(encoding="utf-8").splitlines()
        if not line.startswith(PROGRAM)
    ]
