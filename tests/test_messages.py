"""The helper that tests of messages rely on catches what it is for."""

import sys

import pytest

from tests.messages import assert_names, command_refuses, lines_naming, refuses

MESSAGE = "block_size=0; allowed: whole numbers from 1 to 512"


def test_a_message_that_names_all_passes():
    assert_names(MESSAGE, "block_size", 0, "from 1", 512)
    assert_names(ValueError(MESSAGE), "BLOCK_SIZE", "allowed")


@pytest.mark.parametrize("part", ["size", 51, "12", "num_layers", "512.5"])
def test_parts_of_words_and_numbers_do_not_count(part):
    with pytest.raises(AssertionError):
        assert_names(MESSAGE, part)


def test_decimals_are_parts_of_their_number():
    with pytest.raises(AssertionError):
        assert_names("dropout=1.5; allowed: below 1", "5")


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
    with pytest.raises(AssertionError), refuses(ValueError, "block_size", alone=True):
        raise ValueError(f"{MESSAGE}\nand more")


def test_lines_that_name_all_are_found():
    log = "update 3: loss 2.5\nupdate 31: loss 2\nloss 3 of update 4\n"
    assert lines_naming(log, "update", 3) == [
        "update 3: loss 2.5",
        "loss 3 of update 4",
    ]
    assert lines_naming(log, "update", 4) == ["loss 3 of update 4"]
    assert lines_naming(log, "update", 5) == []


def command(code, text, raises=False):
    def main(arguments):
        print(text, file=sys.stderr)
        if raises:
            raise SystemExit(code)
        return code

    return main


@pytest.mark.parametrize("raises", [False, True])
def test_a_command_that_refuses(raises, capsys):
    text = f"usage: x [--block-size N] [--depth 3]\nx: error: {MESSAGE}"
    told = command_refuses(command(2, text, raises), [], capsys, "block_size", 512)
    assert told == f"x: error: {MESSAGE}"
    for wrong in (command(1, text, raises), command(0, text, raises)):
        with pytest.raises(AssertionError):
            command_refuses(wrong, [], capsys, "block_size")
    # the usage is no answer
    with pytest.raises(AssertionError):
        command_refuses(command(2, text, raises), [], capsys, "depth", 3)
    with pytest.raises(AssertionError):
        command_refuses(command(2, text, raises), [], capsys, alone=True)
    crashed = f"Traceback (most recent call last):\n{MESSAGE}"
    with pytest.raises(AssertionError):
        command_refuses(command(2, crashed, raises), [], capsys, "block_size")
