"""Trainings under the runner: killed, gone on with, evaluated, reported."""

import json
import re
import subprocess
import sys
import time

import pytest
import torch
import yaml

from fairseq_transnormer.reproduce import command_line
from fairseq_transnormer.reproduce.command_line import main
from fairseq_transnormer.reproduce.runs.forking import ForkedProcess
from tests.fairseq_tools.conftest import fairseq_command
from tests.messages import assert_names, command_refuses
from tests.paths import ROOT
from tests.tiny_data import write_tiny_data


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = write_tiny_data(tmp_path_factory.mktemp("data"))
    other = write_tiny_data(tmp_path_factory.mktemp("other"), lines=400)
    for kind in ("bin", "idx"):
        (folder / f"test.{kind}").write_bytes((other / f"valid.{kind}").read_bytes())
    return folder


@pytest.fixture
def command(data, tmp_path):
    """The runner on a table of one run, in the test's folder."""
    table = {
        "title": "One",
        "columns": {"T1": {"config": "blm", "system": "t1", "metric": "valid_ppl"}},
        "rows": {"32": {"overrides": {"model.block_size": 32}, "paper": [3.92]}},
    }
    (tmp_path / "one.yaml").write_text(yaml.safe_dump(table))
    preset = yaml.safe_load((ROOT / "configs/presets/smoke.yaml").read_text())
    preset["tasks"]["masked_lm"]["data"] = str(data)
    preset["overrides"] |= {"common.log_interval": 1, "task.tokens_per_sample": 64}
    preset["overrides"].pop("dataset.max_valid_steps")
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(preset))

    def arguments(*more: str) -> list[str]:
        return [
            "run", str(tmp_path / "one.yaml"), "--preset", str(tmp_path / "tiny.yaml"),
            "--runs-dir", str(tmp_path / "runs"), "--gpus", "none", *more,
        ]  # fmt: skip

    return arguments


@pytest.fixture
def refused(capsys):
    """refused(arguments, *parts): a command that ends with 2 and a line of these."""

    def run(arguments, *parts):
        parts = ("python -m fairseq_transnormer reproduce", "error", *parts)
        command_refuses(main, arguments, capsys, *parts, alone=True)

    return run


# test_slurm.py interrupts and resumes rows, too
@pytest.mark.slow
def test_a_killed_row_resumes_and_is_reported(
    command, data, tmp_path, capsys, monkeypatch, refused
):
    arguments = command(
        "--set", "optimization.max_update=12", "dataset.validate_interval_updates=4"
    )
    runner = subprocess.Popen(
        [sys.executable, "-m", "fairseq_transnormer", "reproduce", *arguments],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    folder = tmp_path / "runs/tiny/blm_t1+block_size=32/seed1"
    last = folder / "checkpoints/checkpoint_last.pt"
    deadline = time.monotonic() + 200
    while not last.exists():
        assert runner.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    runner.terminate()
    output, _ = runner.communicate(timeout=60)
    assert runner.returncode == 130, output
    assert json.loads((folder / "status.json").read_text())["state"] == "interrupted"

    # what was a process of its own resumes as a fork
    monkeypatch.setattr(command_line, "LoggedProcess", ForkedProcess)
    assert main(arguments) == 0
    assert "1 runs, 1 to do" in capsys.readouterr().out
    log = (folder / "train.log").read_text()
    assert re.search(r"Loaded checkpoint checkpoints/checkpoint_last", log)
    state = torch.load(last, weights_only=True)
    assert state["optimizer_history"][-1]["num_updates"] == 12
    assert state["cfg"]["model"]["block_size"] == 32
    status = json.loads((folder / "status.json").read_text())
    assert status["state"] == "finished" and len(status["attempts"]) == 2

    assert main(arguments) == 0
    assert "1 runs, 0 to do" in capsys.readouterr().out
    changed = [each.replace("max_update=12", "max_update=14") for each in arguments]
    refused(changed, "optimization.max_update", 12, 14)

    report = ["report", *arguments[1:6], "--out", str(tmp_path / "out")]
    assert main(report) == 0
    measured = json.loads((tmp_path / "out/tiny/one.json").read_text())
    cell = measured["rows"]["32"]["T1"]
    assert 1 < cell["measured"] < 100
    assert measured["runs"]["tiny/blm_t1+block_size=32"]["1"]["peak_memory_gib"] > 0.1
    assert measured["curves"]["32"]["updates"][-1] == 12

    # what is read from the log is what fairseq-validate says of the best checkpoint
    validate = fairseq_command(
        *("validate", data, "--task", "masked_lm", "--valid-subset", "valid"),
        *("--path", folder / "checkpoints/checkpoint_best.pt", "--batch-size", 4),
        *("--required-batch-size-multiple", 1, "--log-format", "json"),
        "--skip-invalid-size-inputs-valid-test",
    )
    found = re.findall(r'"valid_ppl": "([\d.]+)"', validate)
    assert found, validate[-2000:]
    assert float(found[-1]) == pytest.approx(cell["measured"], rel=1e-3)


def test_mistakes_are_told_in_one_line(command, tmp_path, refused, monkeypatch):
    known = command()
    for arguments, *parts in (
        (["run", "table5x"], "'table5x'", "copy_task", "digits", "table5"),
        (["run", "table1", "--preset", "huge"], "'huge'", "paper", "small", "smoke"),
        ([*known, "--rows", "33"], "--rows '33'", "'32'"),
        ([*known, "--data", "masked_lm=/no/such"], "/no/such", "dict.txt"),
        ([*known, "--gpus", "7"], "--gpus 7", "auto", "none"),
        ([*known, "--set", "model.num_heads=0"], "num_heads=0", "at least 1"),
        ([*known, "--set", "model.block_sizee=8"], "block_sizee"),
        ([*known, "--set", "model.block_size=16"], "block_size=16", 32, "--rows"),
        # what the runner gives to a run: its report would say otherwise
        ([*known, "--set", "task.data=/a"], "task.data", "--data TASK=DIR"),
        ([*known, "--set", "common.seed=5"], "common.seed", "--seeds"),
        ([*known, "--set", "checkpoint.save_dir=/a"], "save_dir", "--runs-dir"),
        (
            [*known, "--set", "dataset.valid_subset=test"],
            "dataset.valid_subset",
            "reports",
        ),
        (
            [*known, "--set", "dataset.disable_validation=true"],
            "dataset.disable_validation=True",
            "false",
        ),
        ([*known, "--set", "checkpoint.no_save=true"], "checkpoint.no_save", "false"),
        ([*known, "--set", "model._name=transnormer_t1"], "model._name", "row"),
        ([*known, "--set", "task._name=language_modeling"], "task._name", "row"),
        # what no run takes
        ([*known, "--set", "optimization.max_updates=4"], "optimization.max_update"),
        ([*known, "--set", "optimisation.lr=[1]"], "'optimisation'", "optimization"),
        ([*known, "--set", "optimizer._name=adan"], "optimizer._name=adan", "adam"),
        ([*known, "--set", "criterion._name=x"], "criterion._name=x", "masked_lm"),
        ([*known, "--set", "bpe.x=1"], "'bpe'", "allowed: common"),
        ([*known, "--set", "optimization={}"], "optimization", "GROUP.NAME"),
        ([*known, "--set", "hydra.run.dir=/a"], "'hydra'"),
        ([*known, "--set", "optimization.lr=0.5"], "optimization.lr", "list"),
        ([*known, "--set", "optimization.max_update=ten"], "max_update", "Integer"),
        ([*known, "--set", "common.fp16=true", "common.fp16=false"], "twice", "fp16"),
        # fairseq trains without an end
        ([*known, "--set", "optimization.max_update=0"], "max_update=0", 1),
        ([*known, "--set", "optimization.max_update=-1"], "max_update=-1", 1),
        ([*known, "--data", "language_modeling=/a"], "language_modeling", "masked_lm"),
        ([*known, "--config-dir", "/no/such"], "--config-dir /no/such", "tables/"),
        (["execute", str(tmp_path)], tmp_path, "no run"),
    ):
        refused(arguments, *parts)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    paper = ["run", "table1", "--runs-dir", str(tmp_path)]
    refused(paper, "--preset paper", "8 GPUs", "none", "--gpus none")
    assert not (tmp_path / "runs").exists()


def test_a_checkpoint_of_another_model_is_refused(command, tmp_path, refused):
    folder = tmp_path / "runs/tiny/blm_t1+block_size=32/seed1"
    (folder / "checkpoints").mkdir(parents=True)
    other = {"model": {}, "cfg": {"model": {"_name": "roberta_transnormer_t2"}}}
    last = folder / "checkpoints/checkpoint_last.pt"
    torch.save(other, last)
    found = ("roberta_transnormer_t2", "roberta_transnormer_t1")
    refused(command(), last, *found)


def test_a_dry_run_touches_nothing(command, tmp_path, capsys):
    assert main(command("--dry-run")) == 0
    out = capsys.readouterr().out
    assert out.count("new ") == 1 and not (tmp_path / "runs").exists()


def test_a_dry_run_prepares_no_data(command, tmp_path, capsys):
    arguments, preset = command("--dry-run"), tmp_path / "tiny.yaml"
    content = yaml.safe_load(preset.read_text())
    content["tasks"]["masked_lm"]["data"] = str(tmp_path / "data")
    code = f"import pathlib; pathlib.Path({str(tmp_path / 'data')!r}).mkdir()"
    content["prepare"] = [["python", "-c", code]]
    preset.write_text(yaml.safe_dump(content))
    before = sorted(tmp_path.rglob("*"))
    assert main(arguments) == 0
    said = capsys.readouterr().out
    assert_names(said, tmp_path / "data", "blm_t1+block_size=32/seed1", "new")
    assert sorted(tmp_path.rglob("*")) == before
    content["prepare_automatically"] = False
    preset.write_text(yaml.safe_dump(content))
    assert main(arguments) == 0
    said = capsys.readouterr().out
    assert_names(said, tmp_path / "data", "--prepare", "--data", "block_size=32/seed1")
    assert main([*arguments, "--prepare"]) == 0
    assert sorted(tmp_path.rglob("*")) == before


def test_list_and_status_show_every_row(tmp_path, capsys):
    assert main(["list"]) == 0
    out = capsys.readouterr().out
    assert "TransNormer T2: valid_ppl 29.57, test_ppl 31.01" in out
    assert "preset smoke" in out
    options = ["--preset", "smoke", "--runs-dir", str(tmp_path)]
    assert main(["status", "table11", *options]) == 0
    assert capsys.readouterr().out.count("not run") == 6
