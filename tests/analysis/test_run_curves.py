"""Runs side by side: what is drawn, printed and refused."""

import json
from pathlib import Path

import pytest

from fairseq_transnormer.analysis.run_curves import PANELS, panels_of
from fairseq_transnormer.analysis.training_log import read_training_log
from fairseq_transnormer.outputs import named_paths
from tests.commands import command
from tests.messages import command_refuses

from .logs import line, training_log

main = command("analyse", "run_curves")


def test_runs_side_by_side(tmp_path, capsys):
    one, two = tmp_path / "one.log", tmp_path / "two" / "train.log"
    one.write_text(training_log([(10, 5.0), (20, 4.0)], [(20, 9.0)]))
    two.parent.mkdir()
    record = {"epoch": 1, "loss": 3.5, "wps": 7, "gnorm": 0.5, "gb_peak": 1.5}
    two.write_text(line("train_inner", record | {"mfu": 0.25, "num_updates": 5}))
    target = tmp_path / "runs.png"
    assert main([f"one={one}", f"two={two.parent}", "--plot", str(target)]) == 0
    assert target.read_bytes().startswith(b"\x89PNG")
    out = capsys.readouterr().out.splitlines()
    assert out == [
        "| run | update | loss | valid_loss | wps | gnorm | gb_peak | mfu |",
        "|---|--:|--:|--:|--:|--:|--:|--:|",
        "| one | 20 | 4.0 | 2.0 | 100.5 | - | - | - |",
        "| two | 5 | 3.5 | - | 7 | 0.5 | 1.5 | 0.25 |",
    ]
    runs = {"one": read_training_log(one), "two": read_training_log(two)}
    panels = panels_of(runs)
    assert [panel.title for panel in panels] == [
        panel.title for panel in PANELS.values()
    ]
    drawn = [(label, x, y) for label, x, y, _ in panels[0].lines]
    assert drawn[:2] == [("one", [10, 20], [5, 4]), ("one", [20], [2])]
    assert [each[:3] for each in panels[3].lines] == [("two", [5], [1.5])]


def test_perplexities_and_evaluations(tmp_path, capsys):
    """One unit, where a training has it; logs of fairseq-eval-lm; a file of it all."""
    log, before, target = (tmp_path / each for each in ("log", "before", "out.json"))
    record = {"num_updates": 10, "loss": 5.0, "ppl": 32.0}
    valid = {"valid_num_updates": 10, "valid_loss": 4.0, "valid_ppl": 16.0}
    log.write_text(line("train_inner", record) + line("valid", valid))
    before.write_text("... | Loss (base 2): 9.97, Perplexity: 1000.25\n")
    words = [f"T2={log}", "--evaluations", before, "--output", target]
    assert main(words) == 0
    *_, row, evaluation = capsys.readouterr().out.splitlines()
    assert row == "| T2 | 10 | 32.0 | 16.0 |" and "1000.25" in evaluation
    found = json.loads(target.read_text())
    assert found["perplexities"] == {str(before): 1000.25}
    assert found["runs"]["T2"]["train_inner"][0]["loss"] == "5.0"
    words = [f"T2={log}", "--evaluations", log]
    command_refuses(main, words, capsys, log, "perplexity", "fairseq-eval-lm")


def test_panels_without_values_are_left_out(tmp_path):
    log = tmp_path / "train.log"
    log.write_text(training_log([(10, 5.0)]))
    assert len(panels_of({"one": read_training_log(log)})) == 2


@pytest.mark.parametrize(
    ("runs", "parts"),
    [
        (["none.log"], ["none.log"]),
        (["a=empty.log"], ["empty.log", "training records", "fairseq-train"]),
        (["a=empty.log", "a=none.log"], ["'a'", "two files", "NAME=PATH"]),
    ],
)
def test_what_is_refused(runs, parts, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty.log").touch()
    arguments = [*runs, "--plot", "runs.png"]
    command_refuses(main, arguments, capsys, *parts)
    assert not (tmp_path / "runs.png").exists()


def test_an_image_that_cannot_be_written_is_told_first(tmp_path, capsys):
    (tmp_path / "file").touch()
    target = tmp_path / "file" / "runs.png"
    arguments = ["none.log", "--plot", target]
    command_refuses(main, arguments, capsys, "--plot", target.parent)
    for name in ("runs", "runs.svg", "runs.json"):
        arguments = ["none.log", "--plot", tmp_path / name]
        command_refuses(main, arguments, capsys, name, "*.png", "*.pdf")


def test_a_path_that_there_is_may_have_an_equals_sign(tmp_path):
    """As the runner's folders have it."""
    path = tmp_path / "t1+lr=0.1" / "checkpoint.pt"
    path.parent.mkdir()
    path.touch()
    assert named_paths([str(path)]) == {str(path): path}
    assert named_paths([f"T1={path}"]) == {"T1": path}
    assert named_paths(["T1=no/such"]) == {"T1": Path("no/such")}
