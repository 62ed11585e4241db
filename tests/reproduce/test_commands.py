"""The command: what it does, its exit codes, and mistakes in one line."""

import sys

import pytest
import torch
import yaml

from fairseq_transnormer.checkpoints.identity import weights_fingerprint
from fairseq_transnormer.reproduce import commands, data, launcher
from fairseq_transnormer.reproduce.data import Data
from fairseq_transnormer.reproduce.runs import RunFolder
from fairseq_transnormer.reproduce.schema import load_preset
from tests.messages import assert_names
from tests.paths import CONFIGS

from .made import TABLE, write_yaml

RATE = "optimization.lr"


def files(folder):
    return {p: p.is_file() and p.read_bytes() for p in folder.rglob("*")}


def mistakes(place):
    mine, topics = ["run", place / "mine.yaml"], ["run", "topics", "--dry-run"]
    tuned = "sentence_prediction:"
    return (
        (["run"], "TABLE"),
        (["run", "table5x"], "'table5x'", "digits", "table5"),
        ([*mine, "--preset", "huge"], "'huge'", "small"),
        ([*mine, "--preset", "smoke", "--data", "lm=/a"], "lm", "masked_lm"),
        ([*mine, "--rows", "T3"], "--rows 'T3'", "'T1'", "'T2'"),
        ([*mine, "--columns", "AVG"], "--columns 'AVG'", "'ppl'"),
        ([*mine, "--data", "masked_lm=/no/such"], "/no/such", "dict.txt", "--data"),
        ([*mine, "--data", "language_modeling=/a"], "language_modeling", "masked_lm"),
        ([*mine, "--set", "language_modeling:a.b=1"], "language_modeling", "masked_lm"),
        ([*mine, "--set", "mlm:a.b=1"], "mlm", "masked_lm"),
        ([*mine, "--set", "model=blm_t1"], "model=blm_t1", "blm_t2", "--rows"),
        ([*mine, "--set", "common.seed=5"], "common.seed", "--seeds"),
        ([*mine, "--set", "model.num_heads=0"], "num_heads=0"),
        ([*mine, "--seeds", "-1"], "--seeds", -1),
        ([*mine, "--set", "a.b"], "--set", "a.b", "KEY=VALUE"),
        ([*mine, "--gpus", "7"], "--gpus 7", 4),
        ([*mine, "--config-dir", "/no/such"], "--config-dir /no/such", "tables/"),
        ([*topics, "--set", f"{RATE}=[0.5]"], f"--set {RATE}", "--sweep"),
        ([*topics, "--sweep", f"{RATE}=0.5"], f"--sweep {RATE}=0.5", 0.0001),
        (
            [*topics, "--set", f"{tuned}model.block_size=16"],
            "model.block_size",
            "pooling",
        ),
        (["run", place / "typo.yaml"], "'ppl'", "valid_NAME"),
        (["finetune", "none.pt", "own"], "none.pt"),
        (["finetune", "none.pt", "mrcp"], "'mrcp'", "mrpc"),
        (["report", "table5x"], "'table5x'"),
        (["report", place / "mine.yaml"], "tiny", "runs.csv"),
    )


def test_mistakes_are_one_line_and_touch_nothing(place, tmp_path, command, monkeypatch):
    monkeypatch.setattr(launcher, "visible_gpus", lambda: ["0", "1", "2", "3"])
    own = tmp_path / "own"
    typo = TABLE | {"columns": {"a": {"metric": "ppl"}}, "rows": {"t1": None}}
    write_yaml(place / "typo.yaml", typo)
    for words, *parts in mistakes(place):
        code, out, error = command(*words)
        assert code == 2, (words, error)
        *usage, last = error.strip().splitlines()
        assert_names(last, "error", *parts)
        assert not usage or usage[0].startswith("usage"), error
    assert not [path for path in tmp_path.iterdir() if path != own]
    monkeypatch.setitem(sys.modules, "pandas", None)
    code, _, error = command("report", place / "mine.yaml")
    assert code == 2 and error.count("\n") == 1
    assert_names(error, "pandas", "install")
    monkeypatch.setattr(launcher, "visible_gpus", lambda: [])
    code, _, error = command("run", "table1", "--preset", "paper", "--cluster", "local")
    assert code == 2 and "\n" not in error.strip()


def test_a_preset_of_many_gpus_needs_them(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(launcher, "visible_gpus", lambda: [])
    words = ["run", "table1", "--preset", "paper", "--runs-dir", str(tmp_path)]
    assert commands.main(words) == 2
    assert_names(capsys.readouterr().err, "--preset paper", 8, "--gpus 0")


@pytest.fixture
def ended(monkeypatch):
    """What ``run_all`` was given; ``ended.codes``: state -> folders that it returns."""
    given = {}

    def run_all(folders, runs, slots, in_process, interval):
        given.update(folders=folders, slots=slots, in_process=in_process)
        state = given.get("state", "finished")
        return {"finished": [], "interrupted": [], "failed": []} | {state: folders}

    monkeypatch.setattr(launcher, "run_all", run_all)
    return given


def test_exit_codes(place, command, ended):
    one = ["run", place / "mine.yaml", "--rows", "T1"]
    for state, expected in (("finished", 0), ("interrupted", 75), ("failed", 1)):
        ended["state"] = state
        code, out, _ = command(*one, "--seeds", 1, 2, 1)
        assert code == expected and "2 runs, 2 to do" in out
        assert ("mine.yaml" in out.splitlines()[-1]) == (state == "failed")


def test_gpus_are_those_of_a_run(place, command, ended, monkeypatch, tmp_path):
    monkeypatch.setattr(launcher, "visible_gpus", lambda: ["0", "1", "2", "3"])
    one = ["run", place / "mine.yaml", "--rows", "T1"]
    for words, gpus, slots in (
        (["--gpus", 2], 2, ["0,1", "2,3"]),
        (["--gpus", 4, "--jobs", 2], 4, ["0,1,2,3"] * 2),
        (["--gpus", 0, "--jobs", 3], 1, [""] * 3),
    ):
        assert command(*one, *words)[0] == 0
        assert ended["slots"].free == slots
        (folder,) = ended["folders"]
        cfg = RunFolder(folder.path).configuration
        assert cfg["distributed_training"]["distributed_world_size"] == gpus
        assert cfg["dataset"]["batch_size"] * gpus == 4


def test_a_dry_run_touches_nothing(place, command, tmp_path):
    before = files(place)
    code, out, _ = command("run", place / "mine.yaml", "--dry-run", "--seeds", 1, 2)
    assert code == 0 and out.count("new ") == 4 and "tiny/blm_t2/seed2" in out
    assert not list(tmp_path.iterdir()) and files(place) == before


def test_all_are_checked_before_the_first_is_touched(place, command, ended, tmp_path):
    words = ["run", place / "mine.yaml"]
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
    preset = yaml.safe_load((place / "tiny.yaml").read_text())
    made = tmp_path / "made"
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
    given = [*words, "--data", f"masked_lm={tmp_path}/mine", "--prepare"]
    code, _, error = command(*given)
    assert code == 2 and "--prepare makes" not in error and not made.exists()
    data.fingerprint.cache_clear()
    preset = load_preset(CONFIGS, str(own))
    where = Data(made, "masked_lm", "masked_lm")
    assert data.require(preset, [where], tmp_path, True, False) == set()
    assert made.is_dir() and data.fault(where) == ""


def test_list_and_status(command, tmp_path):
    code, out, _ = command("list")
    assert code == 0 and "preset smoke" in out
    assert "TransNormer T2: valid_ppl 29.57, test_ppl 31.01" in out
    code, out, _ = command("status")
    assert code == 0 and out.count("\n") == 1 and not list(tmp_path.iterdir())


def test_from_pre_training_to_a_page(place, command, tmp_path):
    """Two trainings, by the commands, in this process."""
    columns = {
        "accuracy": {
            "metric": "valid_accuracy",
            "overrides": {"classification": "own"},
        },
        "ppl": {"metric": "valid_ppl", "job": "train"},
    }
    rows = {"T2": {"system": "t2", "paper": [90.0, 7.0]}}
    content = {"title": "x", "config": "blm", "job": "finetune"}
    content |= {"columns": columns, "rows": rows, "sweep": {RATE: [[0.01]]}}
    table = write_yaml(tmp_path / "one.yaml", content)
    words = ["run", table, "--cluster", "debug"]
    code, out, error = command(*words)
    assert code == 0 and "2 runs, 2 to do" in out, out + error
    runs = tmp_path / "runs/tiny"
    tuned = runs / "blm_t2+classification=own+optimization.lr=0.01/seed1"
    start = runs / "blm_t2/seed1/checkpoints/checkpoint_best.pt"
    (attempt,) = RunFolder(tuned).attempts
    assert attempt["weights"] == weights_fingerprint(start)
    left = sorted(path.name for path in (tuned / "checkpoints").glob("*.pt"))
    assert left == ["checkpoint_best.pt"]
    assert "2 runs, 0 to do" in command(*words)[1]
    code, out, error = command("report", table)
    assert code == 0, error
    page = (tmp_path / "results/tables/tiny.md").read_text()
    assert "90.00" in page and "accuracy" in page
    # other weights at its start are another run, and so is its score
    state = torch.load(start, weights_only=True)
    state["model"] = {k: v + 1 for k, v in state["model"].items()}
    torch.save(state, start)
    code, _, error = command(*words)
    assert code == 2
    assert_names(error, tuned, attempt["weights"], weights_fingerprint(start))
    code, _, error = command("report", table)
    assert code == 1 and attempt["weights"] in error
