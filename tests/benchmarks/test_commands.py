"""Command lines and files: what is refused, what is written, what is left alone."""

import json
import shlex

import pytest

from benchmarks import __main__ as benchmarks
from benchmarks import commands, lra_speed, report
from fairseq_transnormer.cli import parsed
from tests.messages import command_refuses
from tests.paths import ROOT

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


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        ("ops --device tpu", ["device", "tpu"]),
        ("ops --lengths 0", ["--lengths", "0"]),
        ("ops --ops lineal", ["--ops", "'lineal'", "linear_attention"]),
        ("ops --dtype int8", ["--dtype", "'int8'", "bfloat16"]),
        ("update_cost --batches 8", ["--batches", "'8'"]),
        ("update_cost --batches 9x8", ["--batches", "9x8"]),
        ("launch_sweep", ["--device", "cuda", "cpu"]),
    ],
)
def test_mistakes_are_one_line(words, parts, capsys, tmp_path):
    words = [*words.split(), "--output", str(tmp_path / "a.json")]
    command_refuses(benchmarks.main, words, capsys, *parts, alone=True)
    assert not (tmp_path / "a.json").exists()


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


def test_the_commands_of_committed_runs_are_still_understood():
    runs = report.runs_of([ROOT / "results/benchmarks", ROOT / "results/gpu"])
    for run in runs.values():
        _, _, _, name, *words = shlex.split(run["command"])
        # what is written is not to be looked for here
        parsed(getattr(commands, name), name, [*words, "--output", "new.json"])
    assert len(runs) > 15
