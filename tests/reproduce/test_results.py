"""Rows of results: from folders of runs, files of several machines, and together."""

import io
import json
import math
import os
import shutil
import types

import pandas
import pytest

from fairseq_transnormer.reproduce import results as module
from fairseq_transnormer.reproduce.errors import ReproduceError
from fairseq_transnormer.reproduce.results import (
    COLUMNS,
    CONFIGURATIONS,
    CURVES,
    RUNS,
    Results,
    from_runs,
)
from fairseq_transnormer.reproduce.schema import load_table
from tests.messages import refuses
from tests.paths import CONFIGS, RESULTS

from .made import record, validations, write_run, write_yaml

FILES = (RUNS, CONFIGURATIONS, CURVES)
MODELS = {"T1": "blm_t1", "T2": "blm_t2"}


@pytest.fixture
def runs(tmp_path, place, conditions):
    """runs.of(row, seed, perplexities, ...) writes a run, runs() has all their rows."""
    table = load_table(CONFIGS, str(place / "mine.yaml"))
    folder = tmp_path / "runs"

    def of(row, seed, *ppls, log=(), **given):
        path = folder / f"tiny/{MODELS[row]}/seed{seed}"
        own = {"model": {"_name": "x", "width": len(row) + int(row[1])}}
        lines = [*validations(ppls), *log]
        return write_run(path, lines, seed=seed, configuration=own, **given)

    def found(table=table, **changed):
        return from_runs([table], conditions(**changed), folder)

    found.of, found.table = of, table
    return types.SimpleNamespace(of=of, all=found, folder=folder)


def values(results, column="ppl"):
    rows = results.runs[results.runs["column"] == column]
    return {(row.row, row.seed): row.value for row in rows.itertuples()}


def notes(results):
    rows = results.runs[results.runs["column"] == "ppl"]
    return {(row.row, row.seed): row.note for row in rows.itertuples()}


def test_a_row_is_a_figure_of_a_run(runs):
    runs.of("T1", 1, 9.0, 5.0, 6.0)
    runs.of("T2", 1, 8.0)
    runs.of("T2", 2, 7.0)
    (runs.folder / "tiny/blm_t2/seed3").mkdir()  # nothing of a run in it
    shutil.copytree(runs.folder / "tiny/blm_t2/seed2", runs.folder / "tiny/blm_t2/old")
    found = runs.all()
    assert list(found.runs.columns) == list(COLUMNS) and len(found.runs) == 6
    assert values(found) == {("T1", 1): 5.0, ("T2", 1): 8.0, ("T2", 2): 7.0}
    assert values(found, "test") == {("T1", 1): 6.0, ("T2", 1): 9.0, ("T2", 2): 8.0}
    first = found.runs.iloc[0]
    expected = {
        "preset": "tiny", "metric": "valid_ppl", "note": "", "updates": 3,
        "selected_by": "min loss", "selection": 5.0, "seconds": 90.0, "commit": "abc",
        "run": "tiny/blm_t1", "data": "words (d1)", "versions": "torch 2",
    }  # fmt: skip
    assert {key: first[key] for key in expected} == expected
    assert found.settings[first["config"]]["model.width"] == 3
    its = found.curves[found.curves["run"] == "tiny/blm_t1"]
    ppl = its[its["metric"] == "valid_ppl"]
    assert [*zip(ppl["updates"], ppl["value"], strict=True)] == [(1, 9), (2, 5), (3, 6)]
    # of other settings there are no runs
    assert len(runs.all(overrides={"optimization.lr": [1.0]}).runs) == 0


def test_the_seed_is_the_configurations(runs):
    """A copied folder is no second seed."""
    runs.of("T1", 1, 5.0)
    folder = runs.folder / "tiny/blm_t1"
    (folder / "seed1").rename(folder / "seed7")
    assert values(runs.all()) == {("T1", 1): 5.0}
    shutil.copytree(folder / "seed7", folder / "seed2")
    with refuses(ReproduceError, "row T1", "seed 1", "two lines", alone=True):
        runs.all()


def test_runs_that_are_not_finished_say_why(runs):
    nan = math.nan
    runs.of("T1", 1, 5.0, exit_code=75)
    runs.of("T1", 2, 5.0, exit_code=1)
    runs.of("T1", 3, nan, nan)
    runs.of("T1", 4)
    runs.of("T1", 5, math.inf)
    runs.of("T1", 6, 5.0, exit_code=None)
    found = runs.all()
    assert all(math.isnan(each) for each in values(found).values())
    told = {seed: note for (_, seed), note in notes(found).items()}
    assert (told[1], told[2], told[6]) == ("interrupted", "failed", "interrupted")
    assert "nan" in told[3] and "valid_ppl" in told[4] and "inf" in told[5]
    # what they were stays known
    assert set(found.runs["commit"]) == {"abc"}
    assert found.curves["value"].map(math.isfinite).all()


def damage(path, name, content):
    if content is None:
        (path / name).unlink()
        (path / name).mkdir()
    else:
        (path / name).write_text(content)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("train.log", None),
        ("train.log", record("valid", 1, ppl="x", loss="y")),
        ("train.log", '{"valid_ppl": [1], "valid_loss": [1], "valid_num_updates": 1}'),
        ("run.json", "{"),
        ("run.json", "[]"),
        ("run.json", "{}"),
        ("config.yaml", "a: [b"),
        ("config.yaml", "[]"),
        ("config.yaml", None),
    ],
)
def test_what_cannot_be_read_is_one_runs_matter(runs, name, content, tmp_path):
    runs.of("T1", 1, 5.0)
    for seed in (2, 3):
        path = runs.of("T1", seed, 4.0)
        damage(path, name, content)
    runs.of("T2", 1, 7.0)
    found = runs.all()
    assert values(found)["T1", 1] == 5.0 and values(found)["T2", 1] == 7.0
    seeds = {key: note for key, note in notes(found).items() if note}
    assert len(seeds) == 2 and {row for row, _ in seeds} == {"T1"}
    assert all(not math.isfinite(values(found)[key]) for key in seeds)
    if content != record("valid", 1, ppl="x", loss="y"):
        assert all(note.startswith("unreadable: ") for note in seeds.values())
    assert (
        not found.runs[[k for k, kind in COLUMNS.items() if kind is str]]
        .isna()
        .any(axis=None)
    )
    found.write(tmp_path)
    assert notes(Results.read(tmp_path)) == notes(found)


def test_scores_of_other_weights_are_none(runs, tmp_path):
    """The pre-training has other weights than those that a run started from."""
    import torch

    torch.save({"model": {"w": torch.ones(2)}}, tmp_path / "x.pt")
    runs.of("T1", 1, 5.0, attempts=[{"weights": "0" * 64}], start=f"{tmp_path}/x.pt")
    runs.of("T2", 1, 5.0)
    found = runs.all()
    assert "0" * 64 in notes(found)["T1", 1] and values(found)["T2", 1] == 5.0
    assert math.isnan(values(found)["T1", 1])


def write(results, folder):
    folder.mkdir(parents=True, exist_ok=True)
    results.write(folder)
    return folder


def same(one, other):
    return [
        (frame.map(str) == more.map(str)).all(axis=None)
        for frame, more in ((one.runs, other.runs), (one.curves, other.curves))
    ] == [True, True] and one.settings == other.settings


def test_files_are_read_as_they_were_written(runs, tmp_path):
    runs.of("T1", 1, 1 / 3, 5.0)
    runs.of("T2", 1, math.nan)
    found = runs.all()
    written = Results.read(write(found, tmp_path / "a"))
    assert values(written)["T1", 1] == 1 / 3
    again = write(written, tmp_path / "b")
    for name in FILES:
        content = (tmp_path / "a" / name).read_bytes()
        assert (again / name).read_bytes() == content and b"\r" not in content
    assert len(Results.read(tmp_path / "nothing").runs) == 0


def test_files_of_two_machines_are_concatenated(runs, tmp_path):
    runs.of("T1", 1, 9.0, 5.0)
    one = write(runs.all(), tmp_path / "one")
    runs.of("T1", 2, 4.0)
    shutil.rmtree(runs.folder / "tiny/blm_t1/seed1")
    runs.of("T2", 1, 7.0)
    two = write(runs.all(), tmp_path / "two")
    both = tmp_path / "both"
    both.mkdir()
    for name in FILES:
        parts = [(folder / name).read_bytes() for folder in (one, two, one)]
        (both / name).write_bytes(b"".join(parts))
    found = Results.read(both)
    expected = {("T1", 1): 5.0, ("T1", 2): 4.0, ("T2", 1): 7.0}
    assert values(found) == expected
    assert len(found.settings) == 3 and len(found.curves) == 2 * (2 + 1 + 1)
    assert found.runs["seed"].dtype.kind == "i"


def edited(folder, change, name=RUNS):
    """The file's rows, changed as text."""
    frame = pandas.read_csv(folder / name, dtype=str, keep_default_na=False)
    pandas.concat([frame, change(frame)]).to_csv(folder / name, index=False)


def test_a_figure_counts_once(runs, tmp_path):
    runs.of("T1", 1, 5.0)
    runs.of("T2", 1, 7.0)
    folder = write(runs.all(), tmp_path / "a")
    for changes, *parts in (
        ({"value": "4.0"}, "two lines", "row T1", "column ppl", "seed 1"),
        ({"seed": "2"}, "two seeds", "row T1", "column ppl"),
    ):
        own = shutil.copytree(folder, tmp_path / parts[0])
        edited(own, lambda frame: frame[:1].assign(**changes))  # noqa: B023
        with refuses(ReproduceError, own / RUNS, *parts, alone=True):
            Results.read(own)
    edited(folder, lambda frame: frame[:1])
    assert len(Results.read(folder).runs) == 4


@pytest.mark.parametrize(
    "text", ["preset,table\na,b\n", "\x00", "", 'a,"b\n', None, "value"]
)
def test_a_file_that_is_none_of_ours(runs, tmp_path, text):
    runs.of("T1", 1, 5.0)
    write(runs.all(), tmp_path)
    path = tmp_path / RUNS
    if text == "value":
        edited(tmp_path, lambda frame: frame[:1].assign(value="high"))
    else:
        path.unlink()
        path.mkdir() if text is None else path.write_text(text)
    with refuses(ReproduceError, path):
        Results.read(tmp_path)


def test_rows_are_replaced_by_newer_finished_ones_alone(runs):
    def after(first, second):
        found = Results.read(RESULTS / "none")
        for log, given in (first, second):
            runs.of("T1", 1, *log, **given)
            found = found.add(runs.all())
        (value,), (note,) = values(found).values(), notes(found).values()
        return note or value

    finished, newer = ([5.0], {}), ([4.0], {})
    unfinished = ([9.0], {"exit_code": 75})
    diverged, failed = ([math.nan], {}), ([], {"exit_code": 1})
    assert after(finished, newer) == 4.0
    assert after(finished, unfinished) == 5.0
    assert after(unfinished, finished) == 5.0
    assert after(unfinished, unfinished) == "interrupted"
    assert "nan" in after(unfinished, diverged) and "nan" in after(finished, diverged)
    assert after(diverged, newer) == 4.0
    assert after(failed, finished) == 5.0
    assert "nan" in after(diverged, unfinished)


def test_others_rows_stay(runs):
    runs.of("T1", 1, 5.0)
    runs.of("T1", 2, 6.0)
    before = runs.all()
    shutil.rmtree(runs.folder / "tiny/blm_t1/seed1")
    runs.of("T1", 2, 3.0, 2.0)
    after = before.add(runs.all())
    assert values(after) == {("T1", 1): 5.0, ("T1", 2): 2.0}
    its = after.curves[(after.curves["seed"] == 2)]
    assert set(its[its["metric"] == "valid_ppl"]["value"]) == {3.0, 2.0}


def test_an_unfinished_attempt_keeps_the_curve_of_the_row(runs):
    """The validations of a run that is trained anew are no part of its row's run."""
    runs.of("T1", 1, 6.0, 5.0)
    before = runs.all()
    runs.of("T1", 1, 9.0, exit_code=75)
    after = before.add(runs.all())
    ppl = after.curves[after.curves["metric"] == "valid_ppl"]
    assert values(after) == {("T1", 1): 5.0} and [*ppl["value"]] == [6.0, 5.0]


def test_a_failed_write_loses_nothing(runs, tmp_path, monkeypatch):
    runs.of("T1", 1, 5.0)
    folder = write(runs.all(), tmp_path / "a")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    runs.of("T2", 1, 7.0)
    more = Results.read(folder).add(runs.all())

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError):
        more.write(folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_a_sweep_has_a_row_a_value_and_a_mean_none(runs, place, conditions, tmp_path):
    content = {
        "title": "x",
        "config": "blm",
        "sweep": {"optimization.lr": [[0.002], [0.5]]},
        "columns": {"ppl": {"metric": "valid_ppl"}, "AVG": {"mean_of": ["ppl"]}},
        "rows": {"T1": {"system": "t1"}},
    }
    own = load_table(CONFIGS, str(write_yaml(tmp_path / "own.yaml", content)))
    runs.of("T1", 1, 5.0)  # 0.002 is the preset's own
    (runs.folder / "tiny/blm_t1").rename(runs.folder / "tiny/blm_t1+x")
    shutil.move(
        runs.folder / "tiny/blm_t1+x/seed1",
        runs.folder / "tiny/blm_t1+optimization.lr=0.5/seed1",
    )
    runs.of("T1", 1, 6.0)
    found = runs.all(own).runs
    assert dict(zip(found["sweep"], found["value"], strict=True)) == {
        "optimization.lr=0.002": 6.0,
        "optimization.lr=0.5": 5.0,
    }
    assert set(found["column"]) == {"ppl"}


def test_the_committed_results_are_written_as_they_are(tmp_path):
    write(Results.read(RESULTS), tmp_path)
    for name in FILES:
        assert (tmp_path / name).read_bytes() == (RESULTS / name).read_bytes()
    assert module.UNFINISHED and io and json
