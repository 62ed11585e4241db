"""Command lines and files: what is refused, what is written, what is left alone."""

import json

import pytest

from benchmarks import __main__ as benchmarks
from benchmarks import lra_speed
from tests.messages import command_refuses

from .runs import run_command

SOME = ["lra_speed", "--systems", "1+elu", "--lengths", "32", "--output"]


@pytest.fixture
def rows(monkeypatch):
    """What the benchmark yields, in the place of measurements."""
    rows = [{"length": 3, "seconds": [0.1]}]

    def measured(options, settings):
        settings["more"] = 5
        for row in rows:
            if row["length"] == 9:
                raise KeyboardInterrupt
            yield [row]

    monkeypatch.setattr(lra_speed, "lra_speed", measured)
    return rows


def test_rows_are_written_as_they_come(tmp_path, rows):
    path = tmp_path / "new" / "some.json"
    rows.append({"length": 9})
    assert run_command([*SOME, str(path)]) == 130
    run = json.loads(path.read_text())
    assert [row["length"] for row in run["measurements"]] == [3]
    assert not run["complete"] and run["settings"]["lengths"] == [32]
    assert run["settings"]["more"] == 5 and run["settings"]["batch"] == 1
    rows.pop()
    # a run of ours is replaced
    assert run_command([*SOME, str(path)]) == 0
    assert json.loads(path.read_text())["complete"]


@pytest.mark.parametrize("text", ["{}", "[1]", "no JSON"])
def test_a_file_of_others_is_left_alone(text, tmp_path, capsys):
    path = tmp_path / "some.json"
    path.write_text(text)
    command_refuses(benchmarks.main, [*SOME, str(path)], capsys, path, alone=True)
    assert path.read_text() == text


def test_wrong_results_of_ours_are_the_exit_code(tmp_path, rows, capsys):
    words = [*SOME, str(tmp_path / "a.json")]
    rows[:] = [{"length": 1, "wrong": True, "ours": False}]
    assert run_command(words) == 0
    rows[0]["ours"] = True
    assert run_command(words) == 1
    assert "WRONG" in capsys.readouterr().out
