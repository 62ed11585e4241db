"""Runs of several precisions: what is read, compared, drawn and refused."""

import json
import math

import pytest
import yaml

from fairseq_transnormer.analysis.precision_curves import compare, panels_of, read_runs
from tests.commands import command
from tests.messages import command_refuses, refuses

from .logs import line, training_log

PLAIN = {
    "fp16": False, "bf16": False, "amp": False,
    "memory_efficient_fp16": False, "memory_efficient_bf16": False,
}  # fmt: skip


def write_run(folder, losses, valid, seed=1, groups=(), log="train.log", **common):
    """A training's folder; one loss in 50 updates, and a validation after the last."""
    configuration = {
        "_name": None,
        "common": PLAIN | {"seed": seed} | common,
        "model": {"_name": "t2", "attention_types": "diag,norm"},
        "task": {"seed": seed},
        "checkpoint": {"save_dir": str(folder)},
        "optimization": {"max_update": 150},
        "bpe": None,
    }
    updates = [50 * (i + 1) for i in range(len(losses))]
    text = training_log(zip(updates, losses, strict=True))
    text += line("valid", {"valid_loss": valid, "valid_num_updates": updates[-1]})
    (folder / log).parent.mkdir(parents=True)
    (folder / log).write_text(text)
    (folder / "config.yaml").write_text(yaml.safe_dump(configuration | dict(groups)))


main = command("analyse", "precision_curves")


@pytest.fixture
def runs(tmp_path):
    folder = tmp_path / "runs"
    write_run(folder / "a" / "seed1", [9, 5, 4], 4.0)
    write_run(folder / "a" / "seed2", [9, 7, 6], 4.2, 2, log="checkpoints/train.log")
    flags = {"bf16": True, "memory_efficient_bf16": True}
    write_run(folder / "b" / "seed1", [9, 8, 5], 4.5, **flags)
    write_run(folder / "c" / "seed2", [9, 8, math.nan], 4.3, 2, fp16=True)
    return folder


def compared(runs):
    return {row["precision"]: row for row in compare(read_runs(runs))}


def test_each_is_compared_with_float32_of_its_seed(runs):
    rows = compared(runs)
    plain, efficient, half = (
        rows[name] for name in ("fp32", "bf16 memory-efficient", "fp16")
    )
    # means of the last 100 updates: 4.5 and 6.5; 4.0 and 4.2 deviate by 0.2 / sqrt(2)
    assert plain["loss"] == 5.5 and plain["seeds"] == 2
    assert plain["valid_loss_noise"] == pytest.approx(0.02**0.5)
    assert efficient["loss_minus_fp32"] == 2.0
    assert efficient["valid_loss_minus_fp32"] == pytest.approx(0.5)
    assert efficient["valid_loss_in_noise"] == pytest.approx(0.5 / 0.02**0.5)
    assert half["valid_loss_minus_fp32"] == pytest.approx(0.1)
    assert efficient["finite"] and not half["finite"]
    assert half["loss"] == math.inf


def test_runs_under_way_are_compared_at_the_same_update(runs):
    write_run(runs / "e" / "seed1", [9, 8], 5.0, bf16=True)
    rows = compared(runs)
    # fp32 after 100 updates: mean of 9 and 5; it has not been validated by then
    assert rows["bf16"]["loss_minus_fp32"] == 8.5 - 7.0
    assert math.isnan(rows["bf16"]["valid_loss_minus_fp32"])
    assert rows["bf16"]["loss_updates"] == 100 and rows["fp32"]["loss"] == 5.5


@pytest.mark.parametrize(
    ("seed", "groups", "names"),
    [
        (2, {}, ("fp32", "seed 2")),
        (
            3,
            {"model": {"_name": "t2", "attention_types": "diag,diag"}},
            ("attention_types",),
        ),
        (3, {"optimization": {}}, ("max_update",)),
    ],
)
def test_runs_of_another_experiment_are_refused(runs, seed, groups, names):
    other = runs / "other"
    write_run(other, [9, 5, 4], 4.0, seed, groups)
    with refuses(ValueError, other / "config.yaml", *names):
        read_runs(runs)


def test_table_json_and_picture(runs, tmp_path, capsys):
    write_run(runs / "d", [9, 8, 7], 4.4, groups={"model": {"_name": "t1"}}, amp=True)
    (runs / "e").mkdir()
    (runs / "e" / "config.yaml").write_text("{}")  # has not begun
    files = [tmp_path / "out" / name for name in ("curves.json", "curves.png")]
    assert main([str(runs), "--output", str(files[0]), "--plot", str(files[1])]) == 0
    rows = capsys.readouterr().out.splitlines()[2:]
    assert [row.split(" | ")[:2] for row in rows] == [
        ["| t1", "amp"],
        ["| t2", "fp32"],
        ["| t2", "fp16"],
        ["| t2", "bf16 memory-efficient"],
    ]
    assert " | 6.500 | 2.000 | " in rows[3] and " nan | nan " in rows[0]
    found = json.loads(files[0].read_text())
    assert found["loss"]["t2 fp32 2"] == {"50": 9, "100": 7, "150": 6}
    assert found["rows"][0]["valid_loss_minus_fp32"] is None
    assert files[1].read_bytes().startswith(b"\x89PNG")


def test_losses_of_the_same_update_are_subtracted_in_the_picture(runs):
    """A log that lacks an update, as of a full disk, does not shift those after it."""
    log = runs / "b" / "seed1" / "train.log"
    log.write_text(log.read_text().split("\n", 2)[2])
    below = panels_of(read_runs(runs)["loss"])[1].lines
    drawn = [(list(x), list(y)) for _, x, y, _ in below]
    assert drawn[1] == ([50, 100, 150], [0, 2, 2])  # the other seed of fp32
    assert drawn[3] == ([100, 150], [3, 1])


def test_a_folder_without_runs_is_refused(tmp_path, capsys):
    files = ["--output", tmp_path / "a.json", "--plot", tmp_path / "a.png"]
    command_refuses(main, [tmp_path, *files], capsys, tmp_path, "no runs", "train")
