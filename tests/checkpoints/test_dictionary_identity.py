"""A checkpoint knows its dictionary, and another one of equal size is refused."""

from types import SimpleNamespace

import pytest
from fairseq.data import Dictionary

from fairseq_transnormer.checkpoints.identity import (
    KEY,
    check_dictionary,
    said_by,
    task_dictionary,
)
from fairseq_transnormer.checkpoints.safe_loading import CheckpointError
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


@pytest.mark.parametrize("found", [None, {"de": dictionary("a")}, "ab"])
def test_tasks_without_one_dictionary_save_nothing(found):
    assert KEY not in saved_with(found)
    assert task_dictionary(object()) is None
