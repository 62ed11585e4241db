"""Runs side by side: what is drawn, printed and refused."""

from pathlib import Path

import pytest

from fairseq_transnormer.analysis import run_curves
from fairseq_transnormer.analysis.figures import named_paths, pyplot
from tests.messages import command_refuses, refuses

from .logs import line, training_log


@pytest.fixture
def figures(monkeypatch):
    """Figures as they are when they are saved."""
    drawn = []

    def keep(figure, target):
        drawn.append(figure)
        figure.savefig(target, dpi=50)

    monkeypatch.setattr(run_curves, "save", keep)
    yield drawn
    pyplot().close("all")


def test_runs_side_by_side(tmp_path, figures, capsys):
    one, two = tmp_path / "one.log", tmp_path / "two" / "train.log"
    one.write_text(training_log([(10, 5.0), (20, 4.0)], [(20, 9.0)]))
    two.parent.mkdir()
    record = {"epoch": 1, "loss": 3.5, "wps": 7, "gnorm": 0.5, "gb_peak": 1.5}
    two.write_text(line("train_inner", record | {"mfu": 0.25, "num_updates": 5}))
    target = tmp_path / "runs.png"
    arguments = [f"one={one}", f"two={two.parent}", "--plot", str(target)]
    assert run_curves.main(arguments) == 0
    assert target.read_bytes().startswith(b"\x89PNG")
    out = capsys.readouterr().out.splitlines()
    assert out[2:] == [
        "| one | 20 | 4.0 | 100.5 | - | - | - |",
        "| two | 5 | 3.5 | 7 | 0.5 | 1.5 | 0.25 |",
    ]
    panels = [axes for axes in figures[0].axes if axes.get_title()]
    assert [axes.get_title() for axes in panels] == [
        title for title, _, _ in run_curves.PANELS.values()
    ]
    lines = {each.get_label(): each for each in panels[0].lines}
    assert lines["one"].get_xydata().tolist() == [[10, 5], [20, 4]]
    assert panels[0].lines[1].get_xydata().tolist() == [[20, 2]]
    assert panels[3].lines[1].get_xydata().tolist() == [[5, 1.5]]


def test_panels_without_values_are_left_out(tmp_path, figures):
    log = tmp_path / "train.log"
    log.write_text(training_log([(10, 5.0)]))
    assert run_curves.main([str(log), "--plot", str(tmp_path / "runs.png")]) == 0
    assert len([axes for axes in figures[0].axes if axes.get_title()]) == 2


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
    command_refuses(run_curves.main, arguments, capsys, *parts)
    assert not (tmp_path / "runs.png").exists()


def test_a_log_without_a_value_to_draw_is_named(tmp_path, capsys):
    log = tmp_path / "train.log"
    log.write_text(line("train_inner", {"num_updates": 10, "lr": 0.1}))
    arguments = [f"mine={log}", "--plot", tmp_path / "runs.png"]
    command_refuses(run_curves.main, arguments, capsys, "mine", "values", "loss", "wps")


def test_an_image_that_cannot_be_written_is_told_first(tmp_path, capsys):
    (tmp_path / "file").touch()
    target = tmp_path / "file" / "runs.png"
    arguments = ["none.log", "--plot", target]
    command_refuses(run_curves.main, arguments, capsys, "--plot", target.parent)
    for name in ("runs", "runs.svg", "runs.json"):
        arguments = ["none.log", "--plot", tmp_path / name]
        command_refuses(run_curves.main, arguments, capsys, name, "*.png", "*.pdf")


def test_a_path_that_there_is_may_have_an_equals_sign(tmp_path):
    """As the runner's folders have it."""
    path = tmp_path / "t1+lr=0.1" / "checkpoint.pt"
    path.parent.mkdir()
    path.touch()
    assert named_paths([str(path)]) == {str(path): path}
    assert named_paths([f"T1={path}"]) == {"T1": path}
    assert named_paths(["T1=no/such"]) == {"T1": Path("no/such")}


@pytest.mark.parametrize("arguments", [["a=x", "a=y"], ["x", "x"]])
def test_a_name_is_given_once(arguments):
    with refuses(ValueError, "names two files"):
        named_paths(arguments)
