"""Verdicts on the paper's claims follow from rows of results."""

import math
import re
import shutil
from dataclasses import replace

import pandas
import pytest

from fairseq_transnormer.reproduce import claims
from fairseq_transnormer.reproduce.claims import VERDICTS, Claim, effect, judge
from fairseq_transnormer.reproduce.measured import measure
from fairseq_transnormer.reproduce.results import COLUMNS, FILES, Results
from fairseq_transnormer.reproduce.schema import Cell, Preset, Table, TableFile
from tests.messages import assert_names, refuses
from tests.paths import CONFIGS, ROOT

PAGE = ROOT / "docs/claims.md"
CONTRADICTED, HOLDS, IN_KIND, UNCLEAR, NOT_RUN = VERDICTS
AS_CLAIMED = {"a": [1.0, 2.0], "b": [3.0, 4.0]}
AGAINST = {"a": [3.0, 4.0], "b": [1.0, 2.0]}


def claim(pairs=("ab",), **more):
    return Claim("here", "mine", ["ppl"], [[*pair] for pair in pairs], **more)


def rows(label, row, values, sweep="", config="", **more):
    """A row a seed; instead of a value, why there is none."""
    common = dict.fromkeys(COLUMNS, "") | {"preset": label, "table": "mine", "row": row}
    common |= {"column": "ppl", "sweep": sweep, "run": f"{row} {sweep}", "data": "x"}
    common |= {"selected_by": "min loss", "config": config or row} | more
    there = [value if isinstance(value, float) else math.nan for value in values]
    return [
        common | {"seed": seed, "value": a, "selection": a, "note": "" if a == a else b}
        for seed, (a, b) in enumerate(zip(there, values, strict=True), start=1)
    ]


def table(of, label="small", metric="valid_ppl", sweep=(), settings=None):
    """One column, measured; row -> its seeds' values, or ``rows``."""
    found = []
    for row, its in of.items():
        is_rows = bool(its) and isinstance(its[0], dict)
        found += its if is_rows else rows(label, row, its)
    found = [line | {"metric": metric} for line in found]
    cell = Cell("", "ppl", "train", "x", {}, metric, paper=1.5)
    swept = {"lr": [*sweep]} if sweep else {}
    cells = [replace(cell, row=row, sweep=swept) for row in of]
    known = {row: {"task": "one"} for row in of} | (settings or {})
    results = Results(pandas.DataFrame(found, columns=list(COLUMNS)), known, None)
    mine = Table("mine", TableFile("Mine", {"ppl": None}, {}), cells)
    return measure(mine, results, label, Preset("", {}, label.partition("+")[0]))


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
        ([1.0], [3.0, 4.0], {"reservation": "another cause"}, UNCLEAR),
        ([3.0, 4.0], [1.0, 2.0], {"reservation": "another cause"}, CONTRADICTED),
        ([], [], {}, NOT_RUN),
    ],
)
def test_verdicts(a, b, more, verdict):
    found = judge(claim(**more), [table({"a": a, "b": b})])
    assert found.verdict == verdict
    if more.get("reservation") and verdict == UNCLEAR:
        assert found.why == "a row has one seed; " * (len(a) == 1) + "another cause"


def test_the_papers_size_comes_first_and_alone_confirms():
    paper, small = table(AS_CLAIMED, "paper"), table(AGAINST)
    assert judge(claim(), [paper, small], ["paper"]).verdict == HOLDS
    assert judge(claim(), [table({"a": [], "b": []}), small]).verdict == CONTRADICTED
    by_hand = table(AS_CLAIMED, "paper+optimization.max_update=40")
    assert judge(claim(), [by_hand, small], ["paper"]).verdict == IN_KIND
    # half of the figures do not hide what has all
    for values in ([], [1.0]):
        half = table({"a": values, "b": []}, "paper")
        assert judge(claim(), [half, small], ["paper"]).verdict == CONTRADICTED
    assert judge(claim(), [half], ["paper"]).verdict == UNCLEAR


@pytest.mark.parametrize(
    "third, settings, names",
    [
        ("failed", {}, ("seed 3 of b", "failed")),
        ("ppl is inf", {}, ("seed 3 of b", "ppl is inf")),
        (None, {"data": "y"}, ("data", "x", "y")),
        (None, {"config": "half"}, ("common.fp16",)),
        (None, {"config": "lost"}, ("lost is not known",)),
        (None, {"commit": "y", "versions": "torch 3", "machine": "other"}, None),
    ],
)
@pytest.mark.parametrize("a", [(1.0, 2.0), (5.0, 6.0)])
def test_rows_that_are_not_alike_or_not_whole_decide_nothing(third, settings, names, a):
    b = [3.0, 4.0, *([third] if third else [])]
    known = {"half": {"task": "one", "common.fp16": True}}
    of = {"a": a, "b": rows("paper", "b", b, **settings)}
    found = judge(claim(), [table(of, "paper", settings=known)], ["paper"])
    decided = HOLDS if a < (3.0,) else CONTRADICTED
    assert found.verdict == (decided if names is None else UNCLEAR)
    assert_names(found.why, *(names or ()))


def test_values_of_a_sweep_may_have_been_chosen_elsewhere():
    def swept(label, a, b, tried=()):
        """Row a and row b at their values, and at worse ones."""
        of = {}
        for row, chosen, values in (("a", a, [1.0, 2.0]), ("b", b, [3.0, 4.0])):
            of[row] = rows(label, row, values, f"lr={chosen}")
            for value in {*tried} - {chosen}:
                of[row] += rows(label, row, [9.0, 9.0], f"lr={value}")
        return table(of, label, sweep=(1, 2, 3))

    some = swept("small", 1, 2)
    elsewhere = claim(sweep_from="small+short")
    whole = swept("small+short", 1, 2, (1, 2, 3))
    assert judge(elsewhere, [some, whole]).verdict == IN_KIND
    # not said where; no such rows; another value; a choice that was not whole
    found = judge(claim(), [some, whole])
    assert found.verdict == UNCLEAR
    assert_names(found.why, "a: 1 of 3", "b: 1 of 3")
    assert judge(elsewhere, [some]).verdict == UNCLEAR
    other = judge(elsewhere, [some, swept("small+short", 3, 2, (1, 2, 3))])
    assert_names(other.why, "a: 1 of 3")
    half = judge(elsewhere, [some, swept("small+short", 1, 2, (1, 2))])
    assert half.verdict == UNCLEAR
    # of another size
    of_other = [some, swept("medium+short", 1, 2, (1, 2, 3))]
    assert judge(claim(sweep_from="medium+short"), of_other).verdict == UNCLEAR
    # the table's own sweep is whole
    assert judge(claim(), [swept("small", 1, 2, (1, 2, 3))]).verdict == IN_KIND


@pytest.mark.parametrize(
    "more, names",
    [
        ({}, ()),
        ({"config": "half"}, ("common.fp16",)),
        ({"data": "y"}, ("data", "y")),
        ({"weights": "w2"}, ("different weights",)),
    ],
)
def test_a_mean_of_columns_is_as_sure_as_they_are(more, names):
    lines = []
    for name in "pq":
        own = more if name == "q" else {}
        of = {"column": name, "metric": "valid_ppl", "weights": "w1"}
        lines += rows("small", "a", [1.0, 2.0], **of)
        lines += rows("small", "b", [3.0, 4.0], **of | own)
    part = Cell("", "", "train", "x", {}, "valid_ppl")
    cells = [replace(part, row=row, column=name) for row in "ab" for name in "pq"]
    cells += [replace(part, row=x, column="AVG", mean_of=("p", "q")) for x in "ab"]
    known = {row: {"task": "one"} for row in "ab"}
    known["half"] = known["a"] | {"common.fp16": True}
    results = Results(pandas.DataFrame(lines, columns=list(COLUMNS)), known, None)
    file = TableFile("Mine", dict.fromkeys(("p", "q", "AVG")), {})
    mine = measure(
        Table("mine", file, cells), results, "small", Preset("", {}, "small")
    )
    found = judge(Claim("here", "mine", ["AVG"], [["a", "b"]]), [mine])
    assert found.verdict == (UNCLEAR if names else IN_KIND), found.why
    assert_names(found.why, *names)


def test_every_pair_counts_and_those_against_are_named():
    there = table({"a": [1.0, 1.0], "b": [2.0, 2.0], "c": [1.5, 2.5], "d": [0.1, 0.1]})

    def judged(*pairs):
        return judge(claim(pairs), [there])

    assert judged("ab", "ac").verdict == IN_KIND
    assert judged("ab", "bc").verdict == UNCLEAR
    found = judged("ab", "bc", "ad", "bd")
    assert found.verdict == CONTRADICTED
    for row in "ab":
        assert f"{row}'s perplexity is higher (worse) than d's" in found.why


def test_the_effect_is_that_of_the_weakest_pair():
    there = table({"a": [1.0, 2.0], "b": [3.0, 4.0], "c": [2.0, 1.0], "d": [4.0]})

    def of(*pairs, measured=there):
        return effect(judge(claim(pairs), [measured]).pairs)

    assert of("ab", "ac") == ([2.0, 0.5], 1.0)
    assert of("ad")[0] == [4.0, 2.0]  # of other seeds
    assert of("ab", measured=table({"a": [], "b": []})) == ([], 1.0)


def test_the_page_is_that_of_the_results(tmp_path):
    page = tmp_path / PAGE.name
    presets = ("paper", "medium", "small")
    for name in FILES:
        shutil.copy(ROOT / "results" / name, tmp_path)
    claims.write(CONFIGS, page, tmp_path, presets, "made")
    assert (tmp_path / "claims.png").read_bytes()[1:4] == b"PNG"
    made, links = page.read_text("utf-8"), re.compile(r"\]\([^)]*\)|Made by .*")
    assert links.sub("", made) == links.sub("", PAGE.read_text("utf-8"))
    (line,) = re.findall(r"^\| The norm in place of the scaling is .*", made, re.M)
    sentence, figures, note = line.strip("| ").split(" | ")
    assert "[table1, medium](" in sentence
    assert "medium.md#table-1-normalisation-instead-of-scaling" in sentence
    assert "NormAttention: 4.94, **68.67** (67.72–70.29)<br>1+elu: 4.98, " in figures
    assert note.startswith("**seeds overlap**. ")
    not_run = made.split("### not run (1)")[1]
    assert not_run.split("\n")[4].startswith("| A pre-trained T1 is better than")
    with refuses(ValueError, "--page", page):  # before anything is worked out
        claims.write(CONFIGS, page / "b.md", tmp_path, presets, "made")
