"""A checkpoint knows its dictionary, and another one of equal size is refused."""

import hashlib
import json
from types import SimpleNamespace

import pytest
from fairseq.data import Dictionary

from fairseq_transnormer.checkpoints.identity import (
    KEY,
    check_dictionary,
    check_dictionary_file,
    said_by,
    task_dictionary,
)
from fairseq_transnormer.checkpoints.safe_loading import CheckpointError
from fairseq_transnormer.data.subword_files import dictionary_sha256
from fairseq_transnormer.plugin.loading import identity
from tests.messages import refuses


def dictionary(*words, **special):
    made = Dictionary(**special)
    for word in words:
        made.add_symbol(word)
    return made


def saved_with(found):
    trainer = SimpleNamespace(
        task=SimpleNamespace(source_dictionary=found),
        cfg=SimpleNamespace(task=SimpleNamespace()),
    )
    return said_by({"extra_state": {"metrics": {}} | identity(trainer)})


def test_the_dictionary_of_the_training_passes():
    check_dictionary(saved_with(dictionary("a", "b")), dictionary("a", "b"), "x.pt")


def test_a_mask_that_a_task_appended_makes_no_difference():
    with_mask = dictionary("a", "b", "<mask>")
    check_dictionary(saved_with(with_mask), dictionary("a", "b"), "x.pt")
    check_dictionary(saved_with(dictionary("a", "b")), with_mask, "x.pt")


@pytest.mark.parametrize(
    "other",
    [
        dictionary("b", "a"),
        dictionary("a", "c"),
        dictionary("a"),
        dictionary("a", "b", "c"),
        dictionary("a", "<mask>", "b"),
        dictionary("b", extra_special_symbols=["a"]),
        dictionary("a b"),
        dictionary("a\nb"),
    ],
    ids=lambda each: repr(each.symbols[4:]),
)
def test_another_dictionary_is_refused(other):
    said = saved_with(dictionary("a", "b"))
    with refuses(CheckpointError, "x.pt", KEY, said[KEY]):
        check_dictionary(said, other, "x.pt")


def test_special_symbols_count():
    words = ["<s>", "<pad>", "</s>", "<unk>", "a", "b"]
    assert dictionary_sha256(words, 4) != dictionary_sha256(words, 5)


@pytest.mark.parametrize("state", [{}, {"extra_state": None}, {"extra_state": {}}])
def test_checkpoints_of_other_programs_pass(state):
    check_dictionary(said_by(state), dictionary("a"), "x.pt")


@pytest.mark.parametrize("found", [None, {"de": dictionary("a")}, "ab"])
def test_tasks_without_one_dictionary_save_nothing(found):
    assert KEY not in saved_with(found)
    assert task_dictionary(object()) is None


def test_a_dictionary_that_was_changed_after_the_data_was_prepared(tmp_path):
    path = tmp_path / "dict.txt"
    path.write_text("a 2\nb 1\n")
    check_dictionary_file(path)
    known = hashlib.sha256(path.read_bytes()).hexdigest()
    report = {"files": {"dict.txt": {"bytes": 8, "sha256": known}}}
    (tmp_path / "report.json").write_text(json.dumps(report))
    check_dictionary_file(path)
    path.write_text("b 1\na 2\n")
    with refuses(CheckpointError, path, "report.json", known):
        check_dictionary_file(path)


@pytest.mark.parametrize("report", ["[]", "null", "{}", '{"files": {"x": 1}}'])
def test_reports_of_others_say_nothing(report, tmp_path):
    (tmp_path / "dict.txt").write_text("a 2\n")
    (tmp_path / "report.json").write_text(report)
    check_dictionary_file(tmp_path / "dict.txt")


@pytest.mark.parametrize(
    "report",
    ["", "{", "[" * 100_000, b"\xff", '{"files": 3}', '{"files": {"dict.txt": 7}}',
     '{"files": {"dict.txt": {"sha256": 5}}}', '{"files": {"dict.txt": {}}}'],
)  # fmt: skip
def test_damaged_reports_are_refused(report, tmp_path):
    """Nobody knows whether the dictionary is the one of its data."""
    (tmp_path / "dict.txt").write_text("a 2\n")
    path = tmp_path / "report.json"
    path.write_bytes(report if isinstance(report, bytes) else report.encode())
    with refuses(CheckpointError, path):
        check_dictionary_file(tmp_path / "dict.txt")
    path.unlink()
    path.mkdir()
    with refuses(CheckpointError, path):
        check_dictionary_file(tmp_path / "dict.txt")
