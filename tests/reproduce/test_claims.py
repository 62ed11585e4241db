"""Verdicts on the paper's claims follow from what reports measured."""

import json

import pytest

from fairseq_transnormer.reproduce.arguments import PROGRAM
from fairseq_transnormer.reproduce.command_line import main
from fairseq_transnormer.reproduce.errors import ReproduceError
from fairseq_transnormer.reproduce.reports.claims import (
    CONTRADICTED,
    HOLDS,
    IN_KIND,
    NOT_RUN,
    UNCLEAR,
    Claim,
    judge,
    load_claims,
)
from fairseq_transnormer.reproduce.reports.claims_page import claims_page
from tests.messages import assert_names, refuses
from tests.paths import CONFIGS, ROOT

PAGE = ROOT / "docs/does_the_paper_hold.md"


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


def report(folder, rows, paper_sizes=False, table="mine", **by_hand):
    """A report of one column; row -> the figures of its seeds."""
    folder.mkdir(exist_ok=True, parents=True)
    content = {
        "table": table,
        "preset": folder.name,
        "title": "Mine",
        "paper_sizes": paper_sizes,
        "columns": ["ppl"],
        "rows": {row: {"ppl": cell(values)} for row, values in rows.items()},
        "agreement": {},
        "runs": {
            "run": {
                "1": {
                    "state": "finished",
                    "updates": 40.0,
                    "params_m": 0.5,
                    "devices": ["CPU, 1 at once"],
                }
            }
        },
        "conditions": {
            "equal": {"dataset.batch_size": 3},
            "data": [],
            "set_by_hand": by_hand,
        },
    }
    (folder / f"{table}.json").write_text(json.dumps(content), encoding="utf-8")
    return folder


def claim(pairs=("ab",), **more):
    pairs = [list(pair) for pair in pairs]
    return Claim("A is before B", "here", "mine", ["ppl"], pairs, "more", **more)


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
    report(of_paper, rows, paper_sizes=True, max_update=40)
    assert judge(claim(), [of_paper, other]).verdict == IN_KIND
    # half of the figures do not hide what has all
    for values in ([], [1.0]):
        report(of_paper, {"a": values, "b": []}, paper_sizes=True)
        assert judge(claim(), [of_paper, other]).verdict == CONTRADICTED
    assert judge(claim(), [of_paper]).verdict == UNCLEAR


def changed(folder, conditions=(), **cells):
    """The report with more in its cells and conditions; runs are called as rows."""
    path = folder / "mine.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    for row, columns in content["rows"].items():
        columns["ppl"] |= {"run": row, **cells.get(row, {})}
        content["runs"][row] = content["runs"]["run"]
    content["conditions"] |= dict(conditions)
    path.write_text(json.dumps(content), encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    "cells, unequal, names",
    [
        ({"b": {"unfinished": {"3": "failed"}}}, {}, ("seed 3 of b", "failed")),
        ({"a": {"not_measured": "ppl is inf with seed 3"}}, {}, ("a", "inf", "seed 3")),
        ({"a": {"not_complete": "not all have seed 2"}}, {}, ("a", "seed 2")),
        ({}, {"data": {"a/seed1": "x", "b/seed1": "y"}}, ("data", "x", "y")),
        ({}, {"common.fp16": {"a/seed1": True, "b/seed1": False}}, ("common.fp16",)),
        # of other rows, or nothing that figures depend on
        ({}, {"data": {"a/seed1": "x", "b/seed1": "x", "c/seed1": "y"}}, None),
        ({}, {"commit": {"a/seed1": "x", "b/seed1": "y"}}, None),
    ],
)
@pytest.mark.parametrize("values", [(1.0, 2.0), (5.0, 6.0)])
def test_rows_that_are_not_alike_or_not_whole_decide_nothing(
    tmp_path, cells, unequal, names, values
):
    rows = {"a": values, "b": [3.0, 4.0]}
    folder = report(tmp_path / "small", rows, paper_sizes=True)
    decided = judge(claim(), [changed(folder)]).verdict
    assert decided == (HOLDS if values < (3.0,) else CONTRADICTED)
    found = judge(claim(), [changed(folder, {"unequal": unequal}, **cells)])
    assert found.verdict == (decided if names is None else UNCLEAR)
    assert_names(found.why, *(names or ()))


def test_values_of_a_sweep_may_have_been_chosen_elsewhere(tmp_path):
    rows = {"a": [1.0, 2.0], "b": [3.0, 4.0]}
    folder = report(tmp_path / "tables" / "small", rows)
    rates = report(tmp_path / "rates" / "small", rows)

    def sweep(row, rate, without):
        tried, not_run = (cell(each) | {"not_measured": None} for each in ([1.0], []))
        values = [
            {**tried, "run": row, "values": {"lr": rate}},
            {**(not_run if without else tried), "run": "x", "values": {"lr": 5}},
        ]
        return {"sweep": values, "not_complete": without}

    some, whole = "the best of 1 of 2", None
    changed(folder, a=sweep("a", 1, some), b=sweep("b", 2, some))
    changed(rates, a=sweep("a", 1, whole), b=sweep("b", 2, whole))
    assert judge(claim(sweep_from="rates"), [folder]).verdict == IN_KIND
    # not said where; no such report; another value; a choice that was not whole
    found = judge(claim(), [folder])
    assert found.verdict == UNCLEAR
    assert_names(found.why, "sweep of a", "sweep of b", "1 of 2")
    assert judge(claim(sweep_from="none"), [folder]).verdict == UNCLEAR
    changed(rates, a=sweep("a", 3, whole))
    assert "sweep of a" in judge(claim(sweep_from="rates"), [folder]).why
    changed(rates, a=sweep("a", 1, some))
    assert judge(claim(sweep_from="rates"), [folder]).verdict == UNCLEAR
    # the table's own sweep is whole
    changed(folder, a=sweep("a", 1, whole), b=sweep("b", 2, whole))
    for where in ("", "rates"):
        assert judge(claim(sweep_from=where), [folder]).verdict == IN_KIND


def test_every_pair_counts_and_those_against_are_named(tmp_path):
    rows = {"a": [1.0, 1.0], "b": [2.0, 2.0], "c": [1.5, 2.5], "d": [0.0, 0.0]}
    folder = report(tmp_path / "small", rows)

    def verdict(*pairs):
        return judge(claim(pairs), [folder])

    assert verdict("ab", "ac").verdict == IN_KIND
    assert verdict("ab", "bc").verdict == UNCLEAR
    found = verdict("ab", "bc", "ad", "bd")
    assert found.verdict == CONTRADICTED
    assert_names(found.why, "a is worse than d", "b is worse than d")
    # a report of before the row was there
    assert verdict("ab", "ax").verdict == UNCLEAR


@pytest.mark.parametrize(
    "metric, says",
    [
        ("test_ppl", "a is worse than b"),
        ("valid_loss", "a is worse than b"),
        ("gradient_rsd", "a varies more than b"),
        ("infer_2K", "a is faster than b"),
        ("train_2K_memory", "a takes more memory than b"),
        ("test_accuracy_64", "a is better than b"),
        ("", "a is better than b"),  # a mean of scores
    ],
)
def test_a_contradiction_says_what_the_larger_figure_means(tmp_path, metric, says):
    folder = report(tmp_path / "small", {"a": [3.0, 4.0], "b": [1.0, 2.0]})
    changed(folder, a={"metric": metric}, b={"metric": metric})
    assert f"{says} (ppl)" in judge(claim(), [folder]).why


def test_the_page_shows_figures_and_conditions(tmp_path):
    folder = report(tmp_path / "small", {"a": [1.0, 2.0], "b": [3.0, 4.0]})
    page = claims_page({"Mine": [judge(claim(), [folder])]}, tmp_path / "docs", "made")
    short = "* **holds in kind** (1)\n    * A is before B\n"
    assert short in page and "```\nmade\n```" in page
    notes = {IN_KIND: "a | b.", CONTRADICTED: "never"}
    noted = judge(claim(notes=notes), [folder])
    page = claims_page({"Mine": [noted]}, tmp_path / "docs", "made")
    assert "**holds in kind**[^1] |" in page and "never" not in page
    assert "\n[^1]: a | b.\n" in page
    (row,) = [line for line in page.splitlines() if line.startswith("| A is before B")]
    assert "never" not in row
    # a telephone's width shows two columns
    assert row.split(" | ")[1].startswith("**holds in kind**")
    for part in ("a: 1.50; **1.50** ± 0.25 (1.00, 2.00)", "0.50 M", "40 updates of 3"):
        assert part in row
    assert "(../small/mine.md)" in row and row.count(" | ") == 4


def test_an_update_of_batches_by_tokens_has_at_most_so_many_samples(tmp_path):
    folder = report(tmp_path / "small", {"a": [1.0, 2.0], "b": [3.0, 4.0]})
    equal = {"dataset.batch_size": 3, "dataset.max_tokens": 1000}
    changed(folder, {"equal": equal | {"optimization.update_freq": [2]}})
    page = claims_page({"Mine": [judge(claim(), [folder])]}, tmp_path / "docs", "made")
    assert "40 updates of at most 6 samples and 2,000 tokens" in page


GOOD = """
Mine:
  A: {where: x, table: table2, columns: [gradient_rsd], less_than: [[Vanilla, 1+elu]],
      next: more}
"""


@pytest.mark.parametrize(
    "old, new, names",
    [
        ("where", "places", ["A", "places"]),
        ("next: more", "", ["A", "next"]),
        ("next: more", "next: more, notes: {sometimes: x}", ["sometimes", IN_KIND]),
        ("next: more", "next: more, least_ratio: 1.0", ["least_ratio", "1.0"]),
        ("[gradient_rsd]", "[ppl]", ["ppl", "gradient_rsd"]),
        ("[gradient_rsd]", "[]", ["columns"]),
        ("table2", "nope", ["nope", "table1"]),
        ("1+elu", "2+elu", ["2+elu", "NormAttention"]),
        ("[[Vanilla, 1+elu]]", "[[Vanilla]]", ["less_than"]),
        ("[[Vanilla, 1+elu]]", "[[1+elu, 1+elu]]", ["less_than"]),
        ("[[Vanilla, 1+elu]]", "[]", ["less_than"]),
    ],
)
def test_mistakes_in_claims_are_named(tmp_path, old, new, names):
    configs = tmp_path / "configs"
    configs.mkdir()
    for folder in CONFIGS.iterdir():
        (configs / folder.name).symlink_to(folder)
    (configs / "claims").unlink()
    (configs / "claims").mkdir()
    path = configs / "claims/mine.yaml"
    path.write_text(GOOD, encoding="utf-8")
    assert load_claims(configs, "mine")["Mine"][0].rows() == ["Vanilla", "1+elu"]
    path.write_text(GOOD.replace(old, new), encoding="utf-8")
    with refuses(ReproduceError, *names):
        load_claims(configs, "mine")


def test_mistakes_of_a_call_are_named(tmp_path, capsys):
    results = ["--results", str(ROOT / "results/tables"), "--presets", "small"]
    page = tmp_path / "no/such" / PAGE.name
    for words, *names in (
        (["--results", str(tmp_path), "--presets", "paper"], f"--results {tmp_path}"),
        ([*results, "--page", str(page)], f"--page {page}"),
    ):
        assert main(["claims", *words]) == 2
        assert_names(capsys.readouterr().err, *names)
    folder = report(tmp_path / "small", {"a": [1.0], "b": [2.0]})
    path = folder / "mine.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    for change in ({"preset": "other"}, {"paper_sizes": None, "conditions": {}}):
        path.write_text(json.dumps(content | change), encoding="utf-8")
        with refuses(ReproduceError, str(path)):
            judge(claim(), [folder])


def figures(content, row="a"):
    return content["rows"][row]["ppl"]


@pytest.mark.parametrize(
    ("change", "names"),
    [
        (lambda c: figures(c).update(measured="1.0"), ("row a", "ppl", "measured")),
        (lambda c: figures(c).update(measured=1.1), ("row a", "ppl", "measured", 1.1)),
        (lambda c: figures(c).update(measured=None), ("row a", "ppl", "measured")),
        (lambda c: figures(c).update(seeds={}), ("row a", "ppl", "measured")),
        (lambda c: figures(c).update(seeds={"1": "x"}), ("row a", "ppl", "seeds")),
        (lambda c: figures(c).update(seeds={"one": 1.0}), ("row a", "ppl", "seeds")),
        (lambda c: figures(c).update(sweep=[{}]), ("row a", "ppl", "sweep")),
        (lambda c: figures(c).pop("paper"), ("row a", "ppl", "paper")),
        (lambda c: c["rows"].update(a=3), ("rows",)),
        (lambda c: c["runs"]["run"]["1"].update(updates="4"), ("run/seed1", "updates")),
        (lambda c: c["runs"]["run"]["1"].pop("devices"), ("run/seed1", "devices")),
        (lambda c: c["conditions"].pop("equal"), ("conditions", "equal")),
        (
            lambda c: c["conditions"]["equal"].update({"dataset.batch_size": "3"}),
            ("conditions", "dataset.batch_size"),
        ),
        (
            lambda c: c["conditions"]["equal"].update({"dataset.max_valid_steps": "9"}),
            ("conditions", "dataset.max_valid_steps"),
        ),
        (lambda c: c.pop("columns"), ("mine", "columns")),
        (lambda c: c.update(table="table4"), ("mine", "table4")),
    ],
)
def test_a_report_that_cannot_be_believed_is_named(tmp_path, change, names):
    folder = report(tmp_path / "small", {"a": [1.0], "b": [2.0]})
    path = folder / "mine.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    assert judge(claim(), [folder]).measured == content
    change(content)
    path.write_text(json.dumps(content), encoding="utf-8")
    with refuses(ReproduceError, path, *names, alone=True):
        judge(claim(), [folder])


def test_the_report_that_chose_a_sweep_is_held_to_the_same(tmp_path):
    folder = report(tmp_path / "tables/small", {"a": [1.0], "b": [2.0]})
    rates = report(tmp_path / "rates/small", {"a": [1.0], "b": [2.0]})
    path = rates / "mine.json"
    path.write_text(path.read_text().replace('"measured": 1.0', '"measured": 3.0'))
    with refuses(ReproduceError, path, "row a", "measured"):
        judge(claim(sweep_from="rates"), [folder])


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
