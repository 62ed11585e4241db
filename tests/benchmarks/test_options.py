"""Command lines and files: what is refused, what is written, what is left alone."""

import json
from dataclasses import dataclass

import pytest
import torch

from benchmarks import options as module
from benchmarks.options import Options, benchmark, option, parse
from tests.messages import command_refuses


@dataclass
class Some(Options):
    lengths: list[int] = option([1, 2], "n")
    batches: list[tuple[int, int]] = option([(2, 3)], "", type=module.two_numbers)
    quick: bool = option(False, "")

    def check(self):
        if 7 in self.lengths:
            raise ValueError("--lengths must not be 7, got 7")


@benchmark(Some)
def some(options, settings):
    """A benchmark."""
    settings["more"] = 5
    for length in options.lengths:
        if length == 9:
            raise KeyboardInterrupt
        yield [{"length": length, "seconds": [0.1]}]


def test_types_follow_the_defaults():
    found = parse(Some, "some", "", "--lengths 4 --batches 8x512 1x2 --quick".split())
    assert found.lengths == [4] and found.batches == [(8, 512), (1, 2)] and found.quick
    assert parse(Some, "some", "", []) == Some()


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        ("--device tpu", ["--device", "'tpu'"]),
        ("--lengths 0", ["--lengths", "'0'"]),
        ("--lengths 7", ["--lengths", "7"]),
        ("--batches 8", ["--batches", "'8'", "8x512"]),
        ("--seconds -1", ["--seconds", "'-1'"]),
        ("--time-limit 0", ["--time-limit", "'0'"]),
    ],
)
def test_mistakes_are_one_line(words, parts, capsys):
    command_refuses(some, words.split(), capsys, *parts)


def test_rows_are_written_as_they_come(tmp_path):
    path = tmp_path / "new" / "some.json"
    with pytest.raises(KeyboardInterrupt):
        some(["--lengths", "3", "9", "--output", str(path)])
    run = json.loads(path.read_text())
    assert [row["length"] for row in run["measurements"]] == [3]
    assert not run["complete"] and run["settings"]["lengths"] == [3, 9]
    assert run["settings"]["more"] == 5
    # a run of ours is replaced
    assert some(["--output", str(path)]) == 0
    assert json.loads(path.read_text())["complete"]


@pytest.mark.parametrize("text", ["{}", "[1]", "no JSON"])
def test_a_file_of_others_is_left_alone(text, tmp_path, capsys):
    path = tmp_path / "some.json"
    path.write_text(text)
    command_refuses(some, ["--output", str(path)], capsys, path)
    assert path.read_text() == text


def test_wrong_results_of_ours_are_the_exit_code(tmp_path):
    def command(*rows):
        def smoke(options, settings):
            yield [*rows]

        return benchmark(Options)(smoke)(["--output", str(tmp_path / "a.json")])

    assert command({"wrong": True, "ours": True}) == 1
    assert command({"wrong": True, "ours": False}, {"wrong": False, "ours": True}) == 0
    assert torch.get_num_threads() == Options().threads
