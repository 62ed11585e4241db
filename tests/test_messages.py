"""The helper that tests of messages rely on catches what it is for."""

import pytest

from tests.messages import assert_names, refuses

MESSAGE = "block_size=0; allowed: whole numbers from 1 to 512"


def test_a_message_that_names_all_passes():
    assert_names(MESSAGE, "block_size", 0, "from 1", 512)
    assert_names(ValueError(MESSAGE), "BLOCK_SIZE", "allowed")


@pytest.mark.parametrize("part", ["size", 51, "12", "num_layers", "512.5"])
def test_parts_of_words_and_numbers_do_not_count(part):
    with pytest.raises(AssertionError):
        assert_names(MESSAGE, part)


def test_a_traceback_is_no_message():
    with pytest.raises(AssertionError):
        assert_names("Traceback (most recent call last):\nValueError: x=1", "x", 1)


def test_refuses_looks_at_kind_and_message():
    with refuses(ValueError, "block_size", 0):
        raise ValueError(MESSAGE)
    with pytest.raises(AssertionError), refuses(ValueError, "block_size", 7):
        raise ValueError(MESSAGE)
    with pytest.raises(TypeError), refuses(ValueError, "block_size"):
        raise TypeError(MESSAGE)
