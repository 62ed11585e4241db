"""train.log of each run, however it is logged besides; the bar of a terminal."""

import errno
import json
import os
import re
import signal

import pytest

from fairseq_transnormer.analysis.training_log import read_training_log
from fairseq_transnormer.data.training_records import LOG
from tests.forked_trainings import logged
from tests.messages import assert_names

from .trainings import LAST, line_with

UPDATES = list(range(1, LAST + 1))
TIMED = re.compile("(train_|valid_)*(wps|ups|wall|train_wall|gb_peak)$")


def records(run, kind: str) -> list[dict]:
    lines = (run.save_dir / LOG).read_text().splitlines()
    return [each for each in map(json.loads, lines) if each["kind"] == kind]


def updates(run, kind: str = "train_inner") -> list[int]:
    key = "num_updates" if kind == "train_inner" else f"{kind}_num_updates"
    return [each[key] for each in records(run, kind)]


def untimed(record: dict) -> dict:
    """Without kind, fairseq's place in the epoch, and what a clock says."""
    left_out = {"kind", "update"} | {name for name in record if TIMED.match(name)}
    return {name: each for name, each in record.items() if name not in left_out}


@pytest.mark.parametrize("kind", ["train_inner", "valid", "train"])
def test_the_records_are_those_of_fairseqs_json(undisturbed, kind):
    run = undisturbed()
    expected = logged(run.logs[0].read_text(), kind)
    found = records(run, kind)
    assert len(found) == len(expected) >= 1
    for ours, theirs in zip(found, expected, strict=True):
        ours, theirs = untimed(ours), untimed(theirs)
        assert ours.keys() == theirs.keys()
        for name, text in theirs.items():
            # fairseq writes six digits
            assert ours[name] == pytest.approx(float(text), rel=1e-5), name


@pytest.mark.parametrize("log_format", ["simple", "none"])
def test_no_setting_of_logs_changes_them(training, undisturbed, log_format, tmp_path):
    run = training(log_format=log_format, log_file=tmp_path / "fairseq.log")
    assert run.run() == [0], run.text()
    for kind in ("train_inner", "valid"):
        whole = [untimed(each) for each in records(undisturbed(), kind)]
        assert [untimed(each) for each in records(run, kind)] == whole
    if log_format == "simple":
        losses = [r["loss"] for r in read_training_log(run.save_dir)["train_inner"]]
        assert losses == [each["loss"] for each in records(run, "train_inner")]


def test_of_two_workers_one_writes(undisturbed):
    assert updates(undisturbed(2)) == UPDATES


def test_a_killed_run_appends_when_it_resumes(training, undisturbed):
    run = training()
    codes = run.run(("signalled_before", 5, signal.SIGKILL))
    assert codes == [-signal.SIGKILL] and updates(run) == UPDATES[:4]
    assert run.run() == [0], run.text()
    assert updates(run) == [*UPDATES[:4], *UPDATES[3:]]
    # the later record of an update is the first one, and that of an undisturbed run
    losses = {each["num_updates"]: each["loss"] for each in records(run, "train_inner")}
    whole = [each["loss"] for each in records(undisturbed(), "train_inner")]
    assert list(losses.values()) == whole
    # a finished run has nothing to add
    size = (run.save_dir / LOG).stat().st_size
    assert run.run() == [0]
    assert (run.save_dir / LOG).stat().st_size == size


def test_a_run_that_begins_anew_keeps_the_records_of_one_before_apart(training):
    run = training()
    # no checkpoint is written by then
    codes = run.run(("signalled_before", 3, signal.SIGKILL))
    assert codes == [-signal.SIGKILL]
    before = (run.save_dir / LOG).read_text()
    run.options["max-update"] = 2
    for number in (1, 2):
        assert run.run() == [0], run.text()
        assert updates(run) == UPDATES[:2]
        assert (run.save_dir / f"{LOG}.earlier-{number}").read_text() == before
        before = (run.save_dir / LOG).read_text()
        for path in run.save_dir.glob("*.pt"):
            path.unlink()


def test_a_file_that_cannot_be_written_ends_no_training(training):
    run = training(max_update=2)
    (run.save_dir / LOG).mkdir(parents=True)
    assert run.run() == [0], run.text()
    said = line_with(run.text(), "no more records")
    assert_names(said, run.save_dir / LOG, os.strerror(errno.EISDIR))
    assert run.text().count("no more records") == 1


def test_a_run_that_saves_nothing_writes_none(training):
    run = training(flags=("--no-save",), max_update=2)
    assert run.run() == [0], run.text()
    assert not (run.save_dir / LOG).exists()
