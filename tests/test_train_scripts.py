"""scripts/train_alm.sh and train_blm.sh: what they run, and what they refuse."""

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from .resolved_configs import ROOT, command_line_config, flattened, hydra_config
from .tiny_data import write_tiny_data

ARCHITECTURES = {
    "alm_t1": "transnormer_t1",
    "alm_t2": "transnormer_t2",
    "blm_t1": "roberta_transnormer_t1",
    "blm_t2": "roberta_transnormer_t2",
    "alm_vanilla": "vanilla_transformer",
    "blm_performer": "roberta_performer",
}
# Where the run lies, and what only translation reads.
NOT_COMPARED = re.compile(r"task\.data$|checkpoint\.save_dir$|scoring(\.|$)")


def script(task: str, *arguments, **options) -> subprocess.CompletedProcess:
    """Run scripts/train_TASK.sh with the Python of the tests first on the path."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        ["bash", ROOT / "scripts" / f"train_{task}.sh", *map(str, arguments)],
        capture_output=True,
        text=True,
        env=os.environ | {"PATH": path},
        **options,
    )


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    return write_tiny_data(tmp_path_factory.mktemp("data") / "with space")


@pytest.fixture(scope="module")
def before_training():
    """scripts/before_training.py as a module."""
    path = ROOT / "scripts" / "before_training.py"
    spec = importlib.util.spec_from_file_location("before_training", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def dry_run(task: str, *arguments) -> list[str]:
    """The arguments that the script gives to fairseq-train."""
    done = script(task, "--dry-run", *arguments)
    assert done.returncode == 0, done.stderr
    command, *flags = shlex.split(done.stdout)
    assert command == "fairseq-train"
    return flags


@pytest.mark.parametrize(
    ("primary", "run", "precision"),
    [
        ("alm_t1", "gpus8", "fp32"),
        ("alm_t2", "gpus4", "fp16"),
        ("alm_t2", "gpus1", "bf16"),
        ("alm_t2", "cpu", "fp32"),
        ("blm_t1", "gpus4", "bf16"),
        ("blm_t2", "gpus8", "fp32"),
        ("blm_t2", "gpus2", "fp16"),
        ("blm_t2", "gpus1", "fp32"),
        ("blm_t2", "cpu", "fp32"),
        ("alm_vanilla", "gpus8", "fp32"),
        ("blm_performer", "gpus8", "fp32"),
    ],
)
def test_script_and_configuration_train_the_same(data, primary, run, precision):
    gpus = "0" if run == "cpu" else run.removeprefix("gpus")
    flags = dry_run(
        primary.split("_")[0],
        *("--arch", ARCHITECTURES[primary], "--data", data),
        *("--gpus", gpus, "--precision", precision),
    )
    by_script = flattened(command_line_config(flags))
    by_hydra = flattened(hydra_config(primary, f"run={run}", f"precision={precision}"))
    differences = {
        key: (by_script.get(key), by_hydra.get(key))
        for key in by_script.keys() | by_hydra.keys()
        if by_script.get(key) != by_hydra.get(key) and not NOT_COMPARED.match(key)
    }
    assert not differences
    assert by_script["task.data"] == str(data)
    assert by_script["checkpoint.save_dir"] == f"runs/{ARCHITECTURES[primary]}"
    assert len(by_script) > 200


def flag(flags: list[str], name: str) -> int:
    return int(flags[flags.index(name) + 1])


@pytest.mark.parametrize(
    ("task", "options", "batch", "update_freq"),
    [
        ("alm", ["--gpus", 32], 4, 1),
        ("alm", ["--gpus", 128], 1, 1),
        ("alm", ["--gpus", 1, "--batch-size", 128], 128, 1),
        ("blm", ["--gpus", 8, "--batch-size", 16], 16, 4),
        ("blm", ["--gpus", 0, "--batch-size", 1], 1, 512),
    ],
)
def test_batches_fill_the_update_exactly(data, task, options, batch, update_freq):
    flags = dry_run(task, "--data", data, *options)
    assert flag(flags, "--batch-size") == batch
    assert flag(flags, "--update-freq") == update_freq
    processes = flag(flags, "--distributed-world-size")
    assert processes * batch * update_freq == {"alm": 128, "blm": 512}[task]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--gpus", "3"], "--gpus 3 does not divide an update's 128 sequences"),
        (["--gpus", "256"], "--gpus 256 does not divide"),
        (["--batch-size", "3"], "--batch-size 3 does not divide the 16 sequences"),
        (["--batch-size", "32"], "--batch-size 32 does not divide the 16 sequences"),
        (["--gpus", "two"], "--gpus two; allowed: 0 (CPU), 1, 2"),
        (["--gpus", "-1"], "--gpus -1; allowed"),
        (["--gpus", "08"], "--gpus 08; allowed"),
        (["--batch-size", "0"], "--batch-size 0; allowed: 1, 2"),
        (["--precision", "fp8"], "--precision fp8; allowed: fp32, fp16, bf16"),
        (["--precision", "fp16", "--gpus", "0"], "--precision fp16 needs a GPU"),
        (["--max-update", "3"], "unknown argument '--max-update'"),
        (["--arch"], "--arch needs a value"),
    ],
)
def test_bad_options_are_refused_with_the_reason(data, options, message):
    done = script("alm", "--dry-run", "--data", data, *options)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("train_alm.sh: ")
    assert message in done.stderr


def test_missing_data_is_named(data, tmp_path):
    done = script("blm", "--dry-run", "--data", tmp_path / "none")
    assert (done.returncode, "none has no dict.txt" in done.stderr) == (2, True)
    half = tmp_path / "half"
    shutil.copytree(data, half)
    (half / "train.bin").unlink()
    done = script("blm", "--dry-run", "--data", half)
    assert (done.returncode, "half has no train.bin" in done.stderr) == (2, True)


@pytest.mark.parametrize("task", ["alm", "blm"])
def test_help_names_every_option_and_the_defaults(task):
    done = script(task, "--help")
    assert done.returncode == 0
    options = ["arch", "data", "gpus", "batch-size", "precision", "save-dir", "dry-run"]
    assert all(f"  --{option} " in done.stdout for option in options)
    arch = {"alm": "transnormer_t2", "blm": "roberta_transnormer_t2"}[task]
    assert f"(default: {arch})" in done.stdout


def test_flags_behind_two_dashes_win(data):
    flags = dry_run("alm", "--data", data, "--", "--lr", "0.25", "--block-size", "32")
    cfg = command_line_config(flags)
    assert (cfg.optimization.lr, cfg.model.block_size) == ([0.25], 32)


def test_script_trains_and_goes_on(data, tmp_path):
    """One update of 128 sequences on the CPU, then a second in another process."""
    options = ["--gpus", 0, "--arch", "transnormer_t2_tiny", "--data", data]
    small = ["--tokens-per-sample", 16, "--max-update"]
    done = script("alm", *options, "--", *small, 1, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("fairseq-train ")
    last = tmp_path / "runs" / "transnormer_t2_tiny" / "checkpoint_last.pt"
    last.write_bytes(last.read_bytes()[:-1000])  # as a kill while copying leaves it
    done = script("alm", *options, "--", *small, 2, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "checkpoint_last.pt was damaged" in done.stdout
    assert "going on from" in done.stdout
    assert re.search(r"Loaded checkpoint .*checkpoint_last.pt", done.stdout)
    state = torch.load(last, weights_only=True)
    assert state["optimizer_history"][-1]["num_updates"] == 2


def test_a_failed_check_ends_the_script_before_training(data, tmp_path):
    done = script("alm", "--gpus", 64, "--data", data, cwd=tmp_path)
    assert done.returncode == 2
    assert "before_training.py: --gpus 64: this machine has" in done.stderr
    assert not (tmp_path / "runs").exists()


def test_known_architectures_pass_and_others_are_listed(before_training):
    before_training.check_architecture("transnormer_t1", "language_modeling")
    before_training.check_architecture("transformer_lm", "language_modeling")
    with pytest.raises(ValueError, match="transnormer_t3 is no model.*transnormer_t2"):
        before_training.check_architecture("transnormer_t3", "language_modeling")
    with pytest.raises(ValueError, match="for masked_lm; .*roberta_transnormer_t1"):
        before_training.check_architecture("transnormer_t2", "masked_lm")


def test_more_gpus_than_there_are_is_an_error(before_training, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    before_training.check_gpus(2)
    with pytest.raises(ValueError, match="--gpus 4: this machine has 2"):
        before_training.check_gpus(4)
