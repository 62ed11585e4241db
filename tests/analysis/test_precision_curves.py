"""Runs of several precisions: what is read, compared, drawn and refused."""

import json

import pytest
import yaml

from fairseq_transnormer.reproduce.reports import precision_curves
from fairseq_transnormer.reproduce.reports.precision_curves import (
    compare,
    main,
    read_runs,
)
from tests.messages import command_refuses, refuses

from .logs import line, training_log

PLAIN = {
    "fp16": False, "bf16": False, "amp": False,
    "memory_efficient_fp16": False, "memory_efficient_bf16": False,
}  # fmt: skip


def write_run(folder, losses, valid, seed=1, extra="", **common):
    """A folder as reproduce makes it; one loss in 50 updates."""
    folder.mkdir(parents=True)
    configuration = {
        "common": PLAIN | {"seed": seed} | common,
        "model": {"_name": "t2", "attention_types": "diag,norm", "embed_dim": 64},
        "optimization": {"max_update": 50 * len(losses)},
    }
    (folder / "configuration.yaml").write_text(yaml.safe_dump(configuration))
    updates = [50 * (i + 1) for i in range(len(losses))]
    log = training_log(zip(updates, losses, strict=True))
    log += line("valid", {"valid_loss": valid, "valid_num_updates": updates[-1]})
    (folder / "train.log").write_text(log + extra)
    attempt = {
        "step": "train",
        "started": 0,
        "machine": "vm",
        "device": "CPU",
        "versions": {"torch": "2"},
    }
    status = {"state": "finished", "steps_done": ["train"], "attempts": [attempt]}
    (folder / "status.json").write_text(json.dumps(status))


def change(folder, changes):
    path = folder / "configuration.yaml"
    configuration = yaml.safe_load(path.read_text())
    for section, values in changes.items():
        configuration[section] |= values
    path.write_text(yaml.safe_dump(configuration))


@pytest.fixture
def runs(tmp_path):
    folder = tmp_path / "runs"
    write_run(folder / "a" / "seed1", [9, 5, 4], 4.0)
    write_run(folder / "a" / "seed2", [9, 7, 6], 4.2, seed=2)
    flags = {"bf16": True, "memory_efficient_bf16": True}
    write_run(folder / "b" / "seed1", [9, 8, 5], 4.5, **flags)
    note = "| INFO | fairseq.trainer | NOTE: gradient overflow detected, ignoring\n"
    write_run(folder / "c" / "seed2", [9, 8, float("nan")], 4.3, 2, note, fp16=True)
    return folder


def test_each_is_compared_with_float32_of_its_seed(runs):
    # what an earlier attempt left is no run
    write_run(runs / "a" / "seed1" / "earlier-1", [9, 9], 9.0)
    plain, efficient, half = (
        {row["precision"]: row for row in compare(read_runs(runs))}[name]
        for name in ("fp32", "bf16 memory-efficient", "fp16")
    )
    # means of the last 100 updates: 4.5 and 6.5; 4.0 and 4.2 deviate by 0.2 / sqrt(2)
    assert plain["final_loss"] == 5.5 and plain["seeds"] == [1, 2]
    assert plain["valid_loss_difference"] is None
    assert efficient["final_loss_difference"] == 2.0
    assert efficient["valid_loss_difference"] == pytest.approx(0.5)
    assert efficient["valid_loss_in_noise"] == pytest.approx(0.5 / 0.02**0.5)
    assert half["valid_loss_difference"] == pytest.approx(0.1)
    assert efficient["all_finite"] and not half["all_finite"]
    assert (efficient["overflows_skipped"], half["overflows_skipped"]) == (0, 1)


def test_runs_under_way_are_compared_at_the_same_update(runs):
    write_run(runs / "e" / "seed1", [9, 8], 5.0, bf16=True)
    change(runs / "e" / "seed1", {"optimization": {"max_update": 150}})
    rows = {row["precision"]: row for row in compare(read_runs(runs))}
    # fp32 after 100 updates: mean of 9 and 5; it has not been validated by then
    assert rows["bf16"]["final_loss_difference"] == 8.5 - 7.0
    assert rows["bf16"]["valid_loss_difference"] is None
    assert rows["bf16"]["updates"] == 100 and rows["fp32"]["final_loss"] == 5.5


@pytest.mark.parametrize(
    ("seed", "changes", "names"),
    [
        (2, {}, ("fp32", "seed 2")),
        (3, {"model": {"attention_types": "diag,diag"}}, ("attention_types", "norm")),
        (3, {"optimization": {"max_update": 400}}, ("max_update", 400, 150)),
    ],
)
def test_runs_of_another_experiment_are_refused(runs, seed, changes, names):
    other = runs / "other"
    write_run(other, [9, 5, 4], 4.0, seed)
    change(other, changes)
    with refuses(ValueError, other, *names):
        read_runs(runs)


def test_table_json_and_picture(runs, tmp_path, capsys):
    (runs / "d").mkdir()
    (runs / "d" / "configuration.yaml").write_text("{}")  # has not begun
    files = [tmp_path / "out" / name for name in ("curves.json", "curves.png")]
    arguments = [str(runs), "--json", str(files[0]), "--plot", str(files[1])]
    assert main(arguments) == 0
    rows = capsys.readouterr().out.splitlines()[2:]
    expected = "| t2 | bf16 memory-efficient | 1 | 150 | none | 6.500 | +2.000 | 4.500"
    assert rows[2].startswith(expected) and len(rows) == 3
    found = json.loads(files[0].read_text())
    assert [run["loss"] for run in found["runs"]][:2] == [[9, 5, 4], [9, 7, 6]]
    assert files[1].read_bytes().startswith(b"\x89PNG")


def test_losses_of_the_same_update_are_subtracted_in_the_picture(runs, monkeypatch):
    """A log that lacks an update, as of a full disk, does not shift those after it."""
    figures = []
    monkeypatch.setattr(precision_curves, "save", lambda *each: figures.append(each[0]))
    log = runs / "b" / "seed1" / "train.log"
    log.write_text(log.read_text().split("\n", 2)[2])
    precision_curves.plot(read_runs(runs), runs / "unused.png")
    below = figures[0].axes[1].lines
    drawn = [(list(each.get_xdata()), list(each.get_ydata())) for each in below]
    assert drawn[0] == ([50, 100, 150], [0, 2, 2])  # the other seed of fp32
    assert drawn[2] == ([100, 150], [3, 1])


def test_a_folder_without_runs_is_refused(tmp_path, capsys):
    arguments = [str(tmp_path), "--json", "a.json", "--plot", "a.png"]
    command_refuses(main, arguments, capsys, tmp_path, "no runs", "reproduce")
