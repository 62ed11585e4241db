"""The command: what it does, its exit codes, and mistakes in one line."""

import re

import pytest
import torch
import yaml

from fairseq_transnormer.checkpoints.identity import weights_fingerprint
from fairseq_transnormer.reproduce import data, launcher
from fairseq_transnormer.reproduce.data import Data
from fairseq_transnormer.reproduce.finetune import checkpoint_table
from fairseq_transnormer.reproduce.options import settings
from fairseq_transnormer.reproduce.runs import RunFolder
from fairseq_transnormer.reproduce.schema import load_preset
from tests.messages import assert_names
from tests.paths import CONFIGS

from .made import files, refused, write_yaml

RATE = "optimization.lr"
FOUR = ["0", "1", "2", "3"]


@pytest.fixture
def ended(monkeypatch):
    """What ``run_all`` was given; it returns all folders by ``ended["state"]``."""
    given = {"state": "finished"}

    def run_all(folders, runs, slots, *_):
        given.update(folders=folders, slots=slots)
        if given["state"] == "stopped":
            raise KeyboardInterrupt
        nothing = dict.fromkeys(("finished", "interrupted", "failed"), [])
        return nothing | {given["state"]: folders}

    monkeypatch.setattr(launcher, "run_all", run_all)
    return given


def test_exit_codes_and_gpus_of_a_run(place, command, ended, monkeypatch):
    monkeypatch.setattr(launcher, "visible_gpus", lambda: FOUR)
    one = ["run", place / "mine.yaml", "--rows", "T1"]
    codes = {"finished": 0, "interrupted": 75, "stopped": 130, "failed": 1}
    for state, expected in codes.items():
        ended["state"] = state
        code, out, error = command(*one, "--seeds", 1, 2, 1)
        assert code == expected and "2 runs, 2 to do" in out
        assert ("resumes" in out.splitlines()[-1]) == (state == "failed")
    ended["state"] = "finished"
    for words, gpus, slots in (
        (["--gpus", 2], 2, ["0,1", "2,3"]),
        (["--gpus", 0, "--jobs", 3], 1, [""] * 3),
    ):
        command(*one, *words)
        (folder,) = ended["folders"]
        cfg = RunFolder(folder.path).configuration
        assert ended["slots"].free == slots
        assert cfg["distributed_training"]["distributed_world_size"] == gpus
        assert cfg["dataset"]["batch_size"] * gpus == 4


def test_values_on_the_command_line():
    words = (("a.lr=[1e-3]", "a.b=true"), ("c=x y",), ("d={e: [1]}",))
    expected = {"a.lr": [0.001], "a.b": True, "c": "x y", "d": {"e": [1]}}
    assert dict(settings("--set", words)) == expected
    for value in ("[1", "a: b", "${x"):
        with refused("--set", f"c={value}"):
            dict(settings("--set", ((f"c={value}",),)))


def test_what_rows_compare_is_not_set_for_all(command, tmp_path):
    rows = {"t1": None, "t2": {"overrides": {"model.block_size": 32}}}
    columns = {"ppl": {"metric": "valid_ppl"}}
    content = {"title": "x", "config": "blm", "columns": columns, "rows": rows}
    table = write_yaml(tmp_path / "one.yaml", content)
    for task in ("", "masked_lm:"):
        words = ["run", table, "--dry-run", "--set", f"{task}model.block_size=32"]
        code, _, error = command(*words)
        assert code == 2
        assert_names(error, words[-1], "32")
        assert command(*words, "--rows", "TransNormer T2")[0] == 0


def test_all_are_checked_before_the_first_is_touched(place, command, ended, tmp_path):
    words, before = ["run", place / "mine.yaml"], files(place)
    code, out, _ = command(*words, "--dry-run", "--seeds", 1, 2)
    assert code == 0 and out.count("new ") == 4 and "tiny/blm_t2/seed2" in out
    assert not list(tmp_path.iterdir()) and files(place) == before
    assert command(*words, "--rows", "T2")[0] == 0
    path = tmp_path / "runs/tiny/blm_t2/seed1"
    (path / "checkpoints").mkdir()
    (path / "checkpoints/checkpoint_last.pt").touch()
    cfg = yaml.safe_load((path / "config.yaml").read_text())
    cfg["model"]["dropout"] = 0.7
    write_yaml(path / "config.yaml", cfg)
    before = files(tmp_path)
    code, _, error = command(*words)
    assert code == 2 and files(tmp_path) == before
    assert_names(error, path, "model.dropout", 0.1, 0.7)


def test_missing_data(place, command, tmp_path):
    """What would make them is said, and run where it is asked for."""
    preset, made = yaml.safe_load((place / "tiny.yaml").read_text()), tmp_path / "made"
    copy = f"import shutil; shutil.copytree({str(place / 'text')!r}, {str(made)!r})"
    preset["tasks"]["masked_lm"]["data"] = str(made)
    preset |= {"prepare_automatically": False, "prepare": [["python", "-c", copy]]}
    own = write_yaml(tmp_path / "tiny.yaml", preset)
    words = ["run", place / "mine.yaml", "--rows", "T1", "--preset", own]
    code, _, error = command(*words)
    assert code == 2
    assert_names(error, made, "dict.txt", "--prepare", "--data TASK=DIR")
    code, out, _ = command(*words, "--prepare", "--dry-run")
    assert code == 0 and not made.exists()
    assert_names(out, made, "copytree", "not checked without data")
    # of a folder that the user names the commands would make another one
    mine = ["--data", f"masked_lm={tmp_path}/mine", "--prepare"]
    code, _, error = command(*words, *mine)
    assert code == 2 and "--prepare makes" not in error and not made.exists()
    where = Data(made, "masked_lm", "masked_lm")
    own = load_preset(CONFIGS, str(own))
    assert data.require(own, [where], tmp_path, True, False) == set()
    assert made.is_dir() and not data._missing([where])


def test_from_pre_training_to_a_page(place, command, tmp_path):
    """Two trainings, by the commands, in this process."""
    tuned = {"metric": "valid_accuracy", "overrides": {"classification": "own"}}
    columns = {"accuracy": tuned, "ppl": {"metric": "valid_ppl", "job": "train"}}
    rows = {"T2": {"system": "t2", "paper": [90.0, 7.0]}}
    content = {"title": "x", "config": "blm", "job": "finetune", "columns": columns}
    content |= {"rows": rows, "sweep": {RATE: [[0.01]]}}
    table = write_yaml(tmp_path / "one.yaml", content)
    words = ["run", table, "--cluster", "debug"]
    code, out, error = command(*words)
    assert code == 0 and "2 runs, 2 to do" in out, out + error
    runs = tmp_path / "runs/tiny"
    tuned = runs / "blm_t2+classification=own+optimization.lr=0.01/seed1"
    start = runs / "blm_t2/seed1/checkpoints/checkpoint_best.pt"
    (attempt,) = RunFolder(tuned).attempts
    assert attempt["weights"] == weights_fingerprint(start)
    left = [path.name for path in (tuned / "checkpoints").glob("*.pt")]
    assert left == ["checkpoint_best.pt"]
    assert "2 runs, 0 to do" in command(*words)[1]
    code, out, error = command("report", table)
    assert code == 0, error
    assert "90.00" in (tmp_path / "results/tables/tiny.md").read_text()
    given = ["finetune", start, "own", "--lr", 0.01, "--cluster", "debug"]
    code, out, error = command(*given)
    assert code == 0 and "1 run, 1 to do" in out, out + error
    page = (tmp_path / "results/tables/tiny.md").read_text()
    assert re.search(r"own: accuracy \(largest class: \d\d\.\d\d\)", page)
    # another pooling is another row
    tables = [
        checkpoint_table(CONFIGS, start, ["own"], [0.01], name, pooling)
        for name in (None, "mine")
        for pooling in (None, "first", "mean")
    ]
    assert len({table.name for table in tables}) == len(tables)
    # other weights at its start are another run, and so is its score
    state = torch.load(start, weights_only=True)
    state["model"] = {key: value + 1 for key, value in state["model"].items()}
    torch.save(state, start)
    code, _, error = command(*words)
    assert code == 2
    assert_names(error, tuned, attempt["weights"], weights_fingerprint(start))
    code, _, error = command("report", table)
    assert code == 1 and attempt["weights"] in error
