"""Rows of results: from folders of runs, files of several machines, and together."""

import math
import os
import shutil
import types

import pandas
import pytest
import torch

from fairseq_transnormer.reproduce.results import COLUMNS, RUNS, Results, from_runs
from fairseq_transnormer.reproduce.schema import load_table
from tests.messages import assert_names
from tests.paths import CONFIGS, RESULTS

from .made import TABLE, record, refused, validations, write_run, write_yaml

FILES = (RUNS, "configurations.csv", "curves.csv")
NAN = math.nan


@pytest.fixture
def runs(tmp_path, conditions):
    """``of(row, seed, perplexities)`` writes a run, ``all()`` has the rows of all."""

    def of(row, seed, *ppls, rate=0.1, **given):
        path = tmp_path / f"runs/tiny/blm_{row.lower()}/seed{seed}"
        own = {"model": {"_name": "x", "name": row}, "optimization": {"lr": [rate]}}
        return write_run(path, validations(ppls), seed=seed, configuration=own, **given)

    def found(changes=TABLE, **given):
        own = load_table(CONFIGS, str(write_yaml(tmp_path / "mine.yaml", changes)))
        return from_runs([own], conditions(**given), tmp_path / "runs")

    return types.SimpleNamespace(of=of, all=found, folder=tmp_path / "runs/tiny")


def of_column(results, what="value", column="ppl"):
    rows = results.runs[results.runs["column"] == column]
    return {(row.row, row.seed): getattr(row, what) for row in rows.itertuples()}


def written(results, folder):
    folder.mkdir(parents=True, exist_ok=True)
    results.write(folder)
    return folder


def test_a_row_is_a_figure_of_a_run(runs):
    runs.of("T1", 1, 9.0, 5.0, 6.0)
    runs.of("T2", 1, 8.0)
    runs.of("T2", 2, 7.0)
    (runs.folder / "blm_t2/seed3").mkdir()  # nothing of a run in it
    shutil.copytree(runs.folder / "blm_t2/seed2", runs.folder / "blm_t2/old")
    found = runs.all()
    assert list(found.runs.columns) == list(COLUMNS) and len(found.runs) == 6
    expected = {("T1", 1): 5.0, ("T2", 1): 8.0, ("T2", 2): 7.0}
    assert of_column(found) == expected
    assert not len(runs.all(TABLE | {"conditions": "a task it lacks"}).runs)
    assert of_column(found, column="test") == {k: v + 1 for k, v in expected.items()}
    first, said = found.runs.iloc[0], {"preset": "tiny", "metric": "valid_ppl"}
    said |= {"note": "", "selected_by": "min loss", "selection": 5.0, "updates": 3}
    said |= {"run": "tiny/blm_t1", "data": "words (d1)", "versions": "torch 2"}
    said |= {"seconds": 90.0, "commit": "abc"}
    assert {key: first[key] for key in said} == said
    assert found.settings[first["config"]]["model.name"] == "T1"
    ppl = found.curves[found.curves["metric"] == "valid_ppl"]
    its = ppl[ppl["run"] == "tiny/blm_t1"]
    assert [*zip(its["updates"], its["value"], strict=True)] == [(1, 9), (2, 5), (3, 6)]
    # of other settings there are no runs
    assert len(runs.all(overrides={"optimization.lr": [1.0]}).runs) == 0


def test_a_sweep_has_a_row_a_value_and_a_mean_none(runs):
    columns = {"ppl": {"metric": "valid_ppl"}, "AVG": {"mean_of": ["ppl"]}}
    path = runs.of("T1", 1, 5.0, rate=0.5)
    path.parent.rename(runs.folder / "blm_t1+optimization.lr=0.5")
    runs.of("T1", 1, 6.0, rate=0.002)  # 0.002 is the preset's own
    sweep = {"optimization.lr": [[0.002], [0.5]]}
    found = runs.all(TABLE | {"sweep": sweep, "columns": columns, "rows": {"t1": None}})
    rows = {(row.column, row.sweep): row.value for row in found.runs.itertuples()}
    values = {"optimization.lr=0.002": 6.0, "optimization.lr=0.5": 5.0}
    assert rows == {("ppl", key): value for key, value in values.items()}


def test_a_run_of_another_value_is_none_of_a_row(runs, tmp_path):
    """That was given on the command line, or by a table with other conditions."""
    runs.of("T1", 1, 5.0)
    rows = {"t1": {"overrides": {"model.dropout": 0.1}}}
    table = TABLE | {"rows": rows, "sweep": {"optimization.lr": [[0.002]]}}
    for key, value, many in (
        ("optimization.lr", 0.002, 2),
        ("optimization.lr", 0.5, 0),
        ("masked_lm:model.dropout", 0.5, 0),
        ("model.attention_dropout", 0.5, 2),
    ):
        name = f"tiny+{key.replace(':', '.')}={value}"
        shutil.copytree(runs.folder, tmp_path / "runs" / name)
        assert len(runs.all(table, overrides={key: value}).runs) == many, name
    for conditions, many in (("masked_lm", 2), ("harder", 0)):
        runs.of("T1", 1, 5.0, conditions=conditions)
        assert len(runs.all().runs) == many


def test_a_usual_value_that_was_edited_since_is_none_of_a_row(runs):
    """The name of a run leaves out what was usual when it was made."""
    runs.of("T1", 1, 5.0)
    (runs.folder / "blm_t1").rename(runs.folder / "blm_t1+dropout=0.2")
    rows = {"T1": {"system": "t1", "overrides": {"model.dropout": 0.2}}}
    found = runs.all(TABLE | {"rows": rows})
    assert math.isnan(of_column(found)["T1", 1])
    assert_names(of_column(found, "note")["T1", 1], "model.dropout", 0.1, 0.2)


def test_the_seed_is_the_configurations(runs):
    """A copied folder is no second seed."""
    folder = runs.of("T1", 1, 5.0).parent
    (folder / "seed1").rename(folder / "seed7")
    assert of_column(runs.all()) == {("T1", 1): 5.0}
    shutil.copytree(folder / "seed7", folder / "seed2")
    with refused("row T1", "seed 1", "two lines"):
        runs.all()


def test_runs_without_a_figure_keep_a_row_and_say_why(runs, tmp_path):
    torch.save({"model": {"w": torch.ones(2)}}, tmp_path / "x.pt")
    other = {"attempts": [{"weights": "0" * 64}], "start": f"{tmp_path}/x.pt"}
    cases = [([5.0], {"exit_code": 75}, "interrupted"), ([NAN, NAN], {}, "nan")]
    cases += [([5.0], {"exit_code": 1}, "failed"), ([math.inf], {}, "inf")]
    cases += [([5.0], {"exit_code": None}, "interrupted"), ([], {}, "valid_ppl")]
    cases += [([5.0], other, "0" * 64)]  # its pre-training has other weights today
    for seed, (ppls, given, part) in enumerate(cases):
        runs.of("T1", seed, *ppls, **given)
        found = runs.all()
        assert math.isnan(of_column(found)["T1", seed])
        assert part in of_column(found, "note")["T1", seed]
    assert set(found.runs["commit"]) == {"abc"}  # what they were stays known
    assert found.curves["value"].map(math.isfinite).all()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("train.log", None),
        ("train.log", '{"valid_ppl": [1], "valid_loss": [1], "valid_num_updates": 1}'),
        ("train.log", record("valid", 1, ppl="x", loss="y")),
        *(("run.json", text) for text in ("{", "[]", "{}")),
        *(("config.yaml", text) for text in ("a: [b", "[]", None)),
    ],
)
def test_what_cannot_be_read_is_one_runs_matter(runs, name, content, tmp_path):
    for seed in (1, 2, 3):
        path = runs.of("T1", seed, 5.0) / name
        if seed == 1:
            continue
        path.unlink()
        path.mkdir() if content is None else path.write_text(content)
    runs.of("T2", 1, 7.0)
    found = runs.all()
    values, notes = of_column(found), of_column(found, "note")
    assert values["T1", 1] == 5.0 and values["T2", 1] == 7.0 and len(values) == 4
    for seed in (2, 3):
        assert math.isnan(values["T1", seed])
        assert notes["T1", seed].partition(":")[0] in ("unreadable", "new")
    texts = [name for name, kind in COLUMNS.items() if kind is str]
    assert not found.runs[texts].isna().any(axis=None)
    assert of_column(Results.read(written(found, tmp_path)), "note") == notes


def test_files_of_two_machines_are_concatenated(runs, tmp_path):
    runs.of("T1", 1, 1 / 3, 5.0)
    one = written(runs.all(), tmp_path / "one")
    again = written(Results.read(one), tmp_path / "again")
    assert of_column(Results.read(one))["T1", 1] == 1 / 3
    runs.of("T1", 2, 4.0)
    shutil.rmtree(runs.folder / "blm_t1/seed1")
    runs.of("T2", 1, 7.0)
    two = written(runs.all(), tmp_path / "two")
    (tmp_path / "both").mkdir()
    for name in FILES:
        parts = [(folder / name).read_bytes() for folder in (one, two, one)]
        assert (again / name).read_bytes() == parts[0] and b"\r" not in parts[0]
        (tmp_path / "both" / name).write_bytes(b"".join(parts))
    found = Results.read(tmp_path / "both")
    assert of_column(found) == {("T1", 1): 1 / 3, ("T1", 2): 4.0, ("T2", 1): 7.0}
    assert len(found.settings) == 3 and len(found.curves) == 2 * (2 + 1 + 1)
    assert found.runs["seed"].dtype.kind == "i"
    assert len(Results.read(tmp_path / "nothing").runs) == 0
    # and the committed ones are written as they are, and have all their updates
    for name in FILES:
        path = written(ours := Results.read(RESULTS), tmp_path / "again") / name
        assert path.read_bytes() == (RESULTS / name).read_bytes()
    all_ = {k: v.get("optimization.max_update", NAN) for k, v in ours.settings.items()}
    ended = ours.runs.query("note == ''")
    assert {*(ended["config"].map(all_) - ended["updates"]).dropna()} == {0}


def test_a_figure_counts_once(runs, tmp_path):
    runs.of("T1", 1, 5.0)
    path = written(runs.all(), tmp_path) / RUNS
    rows = pandas.read_csv(path, dtype=str, keep_default_na=False)
    for changes, *parts in (
        ({"value": "4.0"}, "two lines", "row T1", "column ppl", "seed 1"),
        ({"seed": "2"}, "two seeds", "row T1", "column ppl"),
        ({"value": "high"},),
    ):
        pandas.concat([rows, rows[:1].assign(**changes)]).to_csv(path, index=False)
        with refused(path, *parts):
            Results.read(tmp_path)
    pandas.concat([rows, rows[:1]]).to_csv(path, index=False)
    assert len(Results.read(tmp_path).runs) == 2
    # concatenated with a file of other columns, whose values stand elsewhere
    other = ["preset", *[*COLUMNS][:0:-1]]
    for text in ("preset,table\na,b\n", f"{','.join(COLUMNS)}\n{','.join(other)}\n"):
        path.write_text(text)
        with refused(path):
            Results.read(tmp_path)


def test_rows_are_replaced_by_newer_finished_ones_alone(runs):
    def after(*states):
        found = Results.read(RESULTS / "none")
        for ppls, code in states:
            runs.of("T1", 1, *ppls, exit_code=code)
            found = found.add(runs.all())
        ppl = found.curves[found.curves["metric"] == "valid_ppl"]
        (value,), (note,) = of_column(found).values(), of_column(found, "note").values()
        return note or value, [*ppl["value"]]

    finished, newer, unfinished = ([6.0, 5.0], 0), ([4.0], 0), ([9.0], 75)
    diverged, failed = ([NAN], 0), ([], 1)
    # a curve is that of the attempt that the row is of
    assert after(finished, newer) == (4.0, [4.0])
    assert after(finished, unfinished) == (5.0, [6.0, 5.0])
    assert after(unfinished, finished) == (5.0, [6.0, 5.0])
    assert after(unfinished, unfinished) == ("interrupted", [9.0])
    assert after(diverged, newer)[0] == 4.0 and after(failed, finished)[0] == 5.0
    assert after(finished, failed) == (5.0, [6.0, 5.0])
    for first, second in ((unfinished, diverged), (finished, diverged)):
        assert "nan" in after(first, second)[0]
    assert "nan" in after(diverged, unfinished)[0]


def test_a_run_that_cannot_be_read_replaces_nothing(runs):
    path = runs.of("T1", 1, 5.0)
    found = Results.read(RESULTS / "none").add(runs.all())
    (path / "config.yaml").unlink()
    again = found.add(runs.all())
    assert of_column(again) == of_column(found) and again.curves.equals(found.curves)


def test_a_failed_write_loses_nothing(runs, tmp_path, monkeypatch):
    runs.of("T1", 1, 5.0)
    folder = written(runs.all(), tmp_path / "a")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    runs.of("T2", 1, 7.0)
    more = Results.read(folder).add(runs.all())

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError):
        more.write(folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
