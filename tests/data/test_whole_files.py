"""A file is the old or the new one at every moment, and nothing else is left."""

import json
import math

import numpy
import pytest

from fairseq_transnormer.data.whole_files import (
    copy_whole,
    write_json,
    write_text,
    write_whole,
)
from tests.messages import refuses


def names(folder):
    return sorted(each.name for each in folder.iterdir())


def test_the_old_file_stands_until_the_new_one_is_finished(tmp_path):
    target = tmp_path / "file"
    target.write_bytes(b"old")

    def write(file):
        file.write(b"new")
        file.flush()
        assert target.read_bytes() == b"old"
        assert len(names(tmp_path)) == 2

    write_whole(target, write)
    assert target.read_bytes() == b"new" and names(tmp_path) == ["file"]


@pytest.mark.parametrize("error", [OSError, RuntimeError, KeyboardInterrupt])
def test_what_fails_leaves_the_old_file_alone(tmp_path, error):
    target = tmp_path / "file"
    target.write_bytes(b"old")

    def write(file):
        file.write(b"half")
        raise error("why")

    with refuses(error, "why"):
        write_whole(target, write)
    assert target.read_bytes() == b"old" and names(tmp_path) == ["file"]


def test_two_writers_of_one_file(tmp_path):
    """One may be told to stop while it writes, and the next has begun."""
    target, seen = tmp_path / "checkpoint_last.pt", []

    def write(file):
        file.write(b"outer")
        if not seen:
            seen.append(None)
            write_whole(target, write)
            assert target.read_bytes() == b"outer"

    write_whole(target, write)
    assert names(tmp_path) == [target.name]


def test_text_copies_and_json(tmp_path):
    write_text(tmp_path / "text", "naïve\r\n日本\n")
    copy_whole(tmp_path / "text", tmp_path / "copy")
    expected = "naïve\r\n日本\n".encode()
    assert (tmp_path / "copy").read_bytes() == expected
    write_json(tmp_path / "json", {"a": [1, "é"]})
    assert json.loads((tmp_path / "json").read_text()) == {"a": [1, "é"]}
    assert names(tmp_path) == ["copy", "json", "text"]


def test_json_has_no_number_that_other_languages_refuse(tmp_path):
    bad = [math.nan, (math.inf, {"deep": -math.inf}), numpy.float64("nan"), 1.5]
    write_json(tmp_path / "json", {"losses": bad, "ppl": numpy.float64(2)})
    text = (tmp_path / "json").read_text()
    assert json.loads(text, parse_constant=pytest.fail) == {
        "losses": [None, [None, {"deep": None}], None, 1.5],
        "ppl": 2,
    }
