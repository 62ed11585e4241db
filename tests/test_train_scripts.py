"""scripts/train_alm.sh and train_blm.sh: what they run, and what they refuse."""

import importlib.util
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from tests.messages import assert_names, lines_naming, process_refuses, refuses

from .forked_trainings import start_command, wait_for
from .resolved_configs import ROOT, command_line_config, flattened, hydra_config
from .tiny_data import write_tiny_data

# GPUs of this machine, as messages say it
HERE = f"has {torch.cuda.device_count()}"
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
# What fairseq learns from Slurm, and a configuration from torchrun's environment.
TOLD_BY_STARTER = re.compile(
    r"(distributed_training|bmuf)\.distributed_(world_size|init_method|no_spawn)$"
)


def with_this_python() -> dict[str, str]:
    """The environment, with the Python of the tests first on the path."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return os.environ | {"PATH": path}


def script(task: str, *arguments, **options) -> subprocess.CompletedProcess:
    """Run scripts/train_TASK.sh with the Python of the tests."""
    return subprocess.run(
        ["bash", ROOT / "scripts" / f"train_{task}.sh", *map(str, arguments)],
        capture_output=True,
        text=True,
        env=with_this_python(),
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


def dry_run(task: str, *arguments, starter: str = "") -> list[str]:
    """The arguments that the script gives to fairseq-train, behind its ``starter``."""
    done = script(task, "--dry-run", *arguments)
    assert done.returncode == 0, done.stderr
    before, command, flags = done.stdout.partition("fairseq-train ")
    assert (before.strip(), command) == (starter, "fairseq-train ")
    return shlex.split(flags)


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
    assert_same(flags, primary, f"run={run}", f"precision={precision}", data=data)


@pytest.mark.parametrize(
    ("run", "options", "starter", "filled"),
    [
        (
            "torchrun",
            ["--nodes", "2", "--rendezvous", "node0:29400", "--gpus", "8"],
            "torchrun --rdzv-backend c10d --rdzv-endpoint node0:29400 --rdzv-id "
            "transnormer_t2 --nnodes 2 --nproc-per-node 8 --no-python",
            "1",
        ),
        (
            "cpu_torchrun",
            ["--gpus", "0", "--workers", "4"],
            "torchrun --standalone --nproc-per-node 4 --no-python",
            "4",
        ),
        ("slurm", ["--nodes", "2", "--gpus", "8"], "", "1"),
    ],
)
def test_started_by_others_they_train_the_same_too(
    data, run, options, starter, filled, monkeypatch
):
    if run == "slurm":
        monkeypatch.setenv("SLURM_STEP_NUM_NODES", "2")
        monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "2")
    flags = dry_run("alm", "--data", data, *options, starter=starter)
    assert flag(flags, "--update-freq") == int(filled)
    processes = flags[flags.index("--distributed-world-size") + 1]
    monkeypatch.setenv("WORLD_SIZE", processes)
    monkeypatch.setenv("RANK", "0")
    assert_same(
        flags,
        "alm_t2",
        f"run={run}",
        f"optimization.update_freq=[{filled}]",  # worked out when training starts
        data=data,
        told_by_starter=run != "torchrun",
    )


def assert_same(flags, primary, *overrides, data, told_by_starter=False):
    """fairseq-train with ``flags`` trains what the configuration says."""
    by_script = flattened(command_line_config(flags))
    # not from the cache: the environment is in it
    by_hydra = flattened(hydra_config.__wrapped__(primary, *overrides))
    differences = {
        key: (by_script.get(key), by_hydra.get(key))
        for key in by_script.keys() | by_hydra.keys()
        if by_script.get(key) != by_hydra.get(key)
        and not NOT_COMPARED.match(key)
        and not (told_by_starter and TOLD_BY_STARTER.match(key))
    }
    assert not differences
    arch = ARCHITECTURES[primary]
    assert by_script["task.data"] == str(data)
    assert by_script["checkpoint.save_dir"] == f"runs/{arch}"
    assert len(by_script) > 200


def flag(flags: list[str], name: str) -> int:
    return int(flags[flags.index(name) + 1])


@pytest.mark.parametrize(
    ("task", "options", "batch", "update_freq"),
    [
        ("alm", ["--gpus", 32], 4, 1),
        ("alm", ["--nodes", 4, "--gpus", 8, "--rendezvous", "a:1"], 4, 1),
        ("blm", ["--nodes", 2, "--gpus", 4, "--rendezvous", "a:1"], 32, 2),
        ("blm", ["--gpus", 0, "--workers", 2], 32, 8),
        ("alm", ["--gpus", 128], 1, 1),
        ("alm", ["--gpus", 1, "--batch-size", 128], 128, 1),
        ("blm", ["--gpus", 8, "--batch-size", 16], 16, 4),
        ("blm", ["--gpus", 0, "--batch-size", 1], 1, 512),
    ],
)
def test_batches_fill_the_update_exactly(data, task, options, batch, update_freq):
    done = script(task, "--dry-run", "--data", data, *options)
    assert done.returncode == 0, done.stderr
    assert_names(done.stderr, f"{batch} at once", f"{update_freq} accumulated")
    flags = shlex.split(done.stdout)
    assert flag(flags, "--batch-size") == batch
    assert flag(flags, "--update-freq") == update_freq
    processes = flag(flags, "--distributed-world-size")
    assert processes * batch * update_freq == {"alm": 128, "blm": 512}[task]


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (["--gpus", "3"], ["3 workers", "128 sequences", 2, 4]),
        (["--gpus", "256"], ["256 workers", "128 sequences", ": 128"]),
        (
            ["--nodes", "3", "--rendezvous", "a:1"],
            ["--nodes 3", "8 processes", "24 workers", "128 sequences", 16, 32],
        ),
        (["--nodes", "2"], ["--nodes 2", "--rendezvous HOST:PORT"]),
        (["--nodes", "0"], ["--nodes 0", 1, 2]),
        (["--rendezvous", "host"], ["--rendezvous host", "HOST:PORT"]),
        (["--workers", "2"], ["--workers 2", "--gpus 8", "--gpus 0"]),
        (["--batch-size", "3"], ["batch of 3", "16 sequences", "8 workers", 2, 4]),
        (["--batch-size", "32"], ["batch of 32", "16 sequences", "8 workers", 16]),
        (["--gpus", "two"], ["--gpus two", 0, "CPU", 1, 2]),
        (["--gpus", "-1"], ["--gpus -1", 0, "CPU", 1, 2]),
        (["--gpus", "08"], ["--gpus 08", 0, "CPU", 1, 2]),
        (["--batch-size", "0"], ["--batch-size 0", 1, 2]),
        (["--precision", "fp8"], ["--precision fp8", "fp32", "fp16", "bf16"]),
        (
            ["--precision", "fp16", "--gpus", "0"],
            ["--precision fp16", "GPU", "--gpus 0", "fp32", "bf16"],
        ),
        (["--max-update", "3"], ["'--max-update'", "--help"]),
        (["--arch"], ["--arch", "value"]),
    ],
)
def test_bad_options_are_refused_with_the_reason(data, options, parts):
    done = script("alm", "--dry-run", "--data", data, *options)
    assert done.stdout == ""
    process_refuses(done, "train_alm.sh", *parts, alone=True)


@pytest.mark.parametrize("sequences", ["0", "abc", "-8", "1.5"])
def test_bad_numbers_of_sequences_are_refused(data, sequences, monkeypatch):
    monkeypatch.setenv("SEQUENCES_PER_UPDATE", sequences)
    done = script("alm", "--dry-run", "--data", data)
    assert done.stdout == ""
    field = f"SEQUENCES_PER_UPDATE={sequences}"
    process_refuses(done, "train_alm.sh", field, 1, 2, "nothing", alone=True)


@pytest.mark.parametrize(
    ("sequences", "options", "batch", "update_freq"),
    [
        ("96", ["--gpus", 3], 8, 4),
        ("", ["--gpus", 3], 8, 1),
        ("", ["--gpus", 3, "--batch-size", 5], 5, 1),
    ],
)
def test_the_environment_chooses_the_update(
    data, sequences, options, batch, update_freq, monkeypatch
):
    monkeypatch.setenv("SEQUENCES_PER_UPDATE", sequences)
    done = script("alm", "--dry-run", "--data", data, *options)
    assert done.returncode == 0, done.stderr
    flags = shlex.split(done.stdout)
    assert flag(flags, "--batch-size") == batch
    assert flag(flags, "--update-freq") == update_freq
    sizes = (f"{batch} at once", f"{update_freq} accumulated")
    in_all = f"{3 * batch * update_freq} sequences"
    assert_names(done.stderr, "update", in_all, "3 workers", *sizes)


@pytest.mark.parametrize(
    "words", [["--batch-size", "4"], ["--update-freq=4"], ["--max-tokens", "4096"]]
)
def test_flags_that_make_another_update_are_named(data, words, monkeypatch):
    done = script("alm", "--dry-run", "--data", data, "--", *words)
    assert done.returncode == 0, done.stderr
    assert_names(done.stderr, "update", words[0], "128 sequences")
    assert "accumulated" not in done.stderr
    monkeypatch.setenv("SEQUENCES_PER_UPDATE", "")
    done = script("alm", "--dry-run", "--data", data, "--", *words)
    assert_names(done.stderr, "update", words[0])
    assert "sequences" not in done.stderr


def test_missing_data_is_named(data, tmp_path):
    done = script("blm", "--dry-run", "--data", tmp_path / "none")
    process_refuses(done, "--data", tmp_path / "none", "dict.txt", "README.md")
    half = tmp_path / "half"
    shutil.copytree(data, half)
    (half / "train.bin").unlink()
    done = script("blm", "--dry-run", "--data", half)
    process_refuses(done, "--data", half, "train.bin", "README.md")


@pytest.mark.parametrize("task", ["alm", "blm"])
def test_help_names_every_option_and_the_defaults(task):
    done = script(task, "--help")
    assert done.returncode == 0
    assert "SEQUENCES_PER_UPDATE=N" in done.stdout
    options = ["arch", "data", "gpus", "workers", "nodes", "rendezvous"]
    options += ["batch-size", "precision", "save-dir", "dry-run"]
    assert all(f"  --{option} " in done.stdout for option in options)
    arch = {"alm": "transnormer_t2", "blm": "roberta_transnormer_t2"}[task]
    assert f"(default: {arch})" in done.stdout


def test_flags_behind_two_dashes_win(data):
    flags = dry_run("alm", "--data", data, "--", "--lr", "0.25", "--block-size", "32")
    cfg = command_line_config(flags)
    assert (cfg.optimization.lr, cfg.model.block_size) == ([0.25], 32)


def test_script_trains_and_goes_on(data, tmp_path):
    """One update of 128 sequences on the CPU, then a second by the script itself."""
    options = ["--gpus", 0, "--arch", "transnormer_t2_tiny", "--data", data]
    small = ["--tokens-per-sample", 16, "--max-update"]
    flags, log = dry_run("alm", *options, "--", *small, 1), tmp_path / "log"
    assert wait_for([start_command("train", flags, log, tmp_path)]) == [0], log
    last = tmp_path / "runs" / "transnormer_t2_tiny" / "checkpoint_last.pt"
    last.write_bytes(last.read_bytes()[:-1000])  # as a kill while copying leaves it
    done = script("alm", *options, "--", *small, 2, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("fairseq-train ")
    (told,) = lines_naming(done.stdout, "damaged", "checkpoint_last.pt.damaged")
    assert re.search(r"checkpoint_(best|\d+)\.pt", told), told
    assert lines_naming(done.stdout, "Loaded checkpoint", last)
    state = torch.load(last, weights_only=True)
    assert state["optimizer_history"][-1]["num_updates"] == 2


@pytest.mark.slow
def test_flags_do_not_change_the_update_unnoticed(data, tmp_path):
    options = ["--gpus", 0, "--arch", "transnormer_t2_tiny", "--data", data]
    flags = ["--tokens-per-sample", 16, "--batch-size", 4, "--max-update", 1]
    done = script("alm", *options, "--", *flags, cwd=tmp_path)
    assert done.returncode == 1
    sizes = ("64 sequences", "1 workers", "4 at once", "16 accumulated")
    assert lines_naming(done.stderr, *sizes, "SEQUENCES_PER_UPDATE", 128)


def test_a_failed_check_ends_the_script_before_training(data, tmp_path):
    done = script("alm", "--gpus", 64, "--data", data, cwd=tmp_path)
    process_refuses(done, "before_training.py", "--gpus 64", HERE)
    assert not (tmp_path / "runs").exists()


def test_known_architectures_pass_and_others_are_listed(before_training):
    before_training.check_architecture("transnormer_t1", "language_modeling")
    before_training.check_architecture("transformer_lm", "language_modeling")
    for wrong, task, prefix in (
        ("transnormer_t3", "language_modeling", ""),
        ("transnormer_t2", "masked_lm", "roberta_"),
    ):
        allowed = (f"{prefix}transnormer_t1", f"{prefix}transnormer_t2")
        with refuses(ValueError, f"--arch {wrong}", task, *allowed):
            before_training.check_architecture(wrong, task)


def test_more_gpus_than_there_are_is_an_error(before_training, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    before_training.check_gpus(2)
    with refuses(ValueError, "--gpus 4", 2, "0", "CPU"):
        before_training.check_gpus(4)


def test_the_arenas_script_trains_its_configuration(tmp_path):
    """The data folder, GPUs and precision become overrides; those behind -- win."""
    (tmp_path / "manifest.json").touch()
    options = ["--data", tmp_path, "--gpus", 4, "--precision", "bf16"]
    done = script(
        "lra", "image", "ls", *options, "--dry-run", "--", "optimization.max_update=9"
    )
    assert done.returncode == 0, done.stderr
    command, *words = shlex.split(done.stdout)
    assert command == "fairseq-hydra-train"
    folder = words[words.index("--config-dir") + 1]
    assert Path(folder) == ROOT / "configs"
    cfg = hydra_config(words[words.index("--config-name") + 1], *words[4:])
    assert cfg.model._name == "lra_transformer_ls" and cfg.common.bf16
    assert (cfg.task.arena, cfg.task.data) == ("image", str(tmp_path))
    processes = cfg.distributed_training.distributed_world_size
    assert (cfg.dataset.batch_size, processes) == (64, 4)
    assert cfg.optimization.max_update == 9 and not cfg.common.cpu


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["image"], ["TASK", "SYSTEM", "--help"]),
        (["images", "t1"], ["lra/images.yaml", "image", "listops", "text", "t2"]),
        (["text", "t3"], ["model/lra_t3.yaml", "image", "listops", "text", "t2"]),
        (["text", "t1", "--gpus", "3"], ["--gpus 3", "16 sequences", "divisors"]),
        (
            ["text", "t1", "--precision", "fp8"],
            ["--precision fp8", "fp32", "fp16", "bf16"],
        ),
        (
            ["text", "t1", "--data", "/none"],
            ["--data /none", "manifest.json", "data_prep lra text"],
        ),
        (["text", "t1", "--updates", "3"], ["'--updates'", "--help"]),
    ],
)
def test_the_arenas_script_refuses_with_the_reason(tmp_path, words, parts):
    (tmp_path / "manifest.json").touch()
    if "--data" not in words and len(words) > 1:
        words = [*words[:2], "--data", tmp_path, *words[2:]]
    done = script("lra", *words, "--dry-run")
    assert done.stdout == ""
    process_refuses(done, "train_lra.sh", *parts, alone=True)


def test_the_arenas_script_looks_for_the_gpus(tmp_path):
    (tmp_path / "manifest.json").touch()
    done = script("lra", "image", "t1", "--gpus", 64, "--data", tmp_path, cwd=tmp_path)
    process_refuses(done, "before_training.py", "--gpus 64", HERE)
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow  # torchrun as with one node, which is started all the same
def test_two_nodes_meet_and_train(data, tmp_path):
    """One command on each; the CPU's gloo stands in for the GPUs' NCCL."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    options = ["--nodes", 2, "--rendezvous", f"localhost:{port}", "--gpus", 0]
    options += ["--arch", "transnormer_t2_tiny", "--data", data]
    small = ["--tokens-per-sample", 16, "--max-update", 1]
    with ThreadPoolExecutor() as nodes:
        starts = [
            nodes.submit(script, "alm", *options, "--", *small, cwd=tmp_path)
            for _ in range(2)
        ]
        done = [start.result() for start in starts]
    text = "".join(each.stdout + each.stderr for each in done)
    assert [each.returncode for each in done] == [0, 0], text
    sizes = ("128 sequences", "2 workers", "8 at once", "8 accumulated")
    assert len(lines_naming(text, "update", *sizes)) == 1
    assert "loaded 2" not in text and "num_updates: 1 >= max_update: 1" in text
    assert (tmp_path / "runs" / "transnormer_t2_tiny" / "checkpoint_last.pt").exists()


@pytest.mark.slow
def test_a_signal_ends_torchrun_with_the_exit_code_of_its_workers(data, tmp_path):
    log = tmp_path / "log"
    words = ["--gpus", 0, "--workers", 2, "--arch", "transnormer_t2_tiny"]
    words += ["--data", data, "--", "--tokens-per-sample", 16, "--max-update", 100_000]
    words += ["--log-interval", 1, "--disable-validation"]
    with log.open("w") as stream:
        job = subprocess.Popen(
            ["bash", ROOT / "scripts" / "train_alm.sh", *map(str, words)],
            **{"stdout": stream, "stderr": stream, "cwd": tmp_path},
            env=with_this_python(),
        )
    deadline = time.monotonic() + 300
    while "num_updates=2," not in log.read_text():
        assert job.poll() is None and time.monotonic() < deadline, log.read_text()
        time.sleep(0.1)
    job.send_signal(signal.SIGUSR1)  # of which torchrun would die
    assert job.wait(100) == os.EX_TEMPFAIL, log.read_text()
    assert lines_naming(log.read_text(), "SIGTERM", "checkpoint", os.EX_TEMPFAIL)
    assert (tmp_path / "runs" / "transnormer_t2_tiny" / "checkpoint_last.pt").exists()


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    """slurm(exit_code, *arguments): train.sbatch where Slurm's commands are noted."""
    notes = tmp_path / "notes"
    for name in ("srun", "scontrol"):
        command = tmp_path / "bin" / name
        command.parent.mkdir(exist_ok=True)
        code = "${EXIT_CODE}" if name == "srun" else "0"
        command.write_text(f'#!/bin/bash\necho "{name} $*" >>{notes}\nexit {code}\n')
        command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    job = {"JOB_ID": "70123", "JOB_NUM_NODES": "2", "GPUS_ON_NODE": "4"}
    for key, value in job.items():
        monkeypatch.setenv(f"SLURM_{key}", value)

    def run(exit_code: int, *arguments: str) -> tuple[int, list[str]]:
        notes.write_text("")
        done = subprocess.run(
            ["bash", ROOT / "scripts" / "slurm" / "train.sbatch", *arguments],
            env=os.environ | {"EXIT_CODE": str(exit_code)},
        )
        return done.returncode, notes.read_text().splitlines()

    return run


def test_a_job_of_slurm_is_queued_again_when_there_is_more_to_do(slurm):
    train = "srun --wait=60 bash scripts/train_alm.sh --nodes 2 --gpus 4 --arch x"
    again = "scontrol requeue 70123"
    assert slurm(75, "alm", "--arch", "x") == (75, [train, again])
    assert slurm(0, "alm", "--arch", "x") == (0, [train])
    assert slurm(1, "alm", "--arch", "x") == (1, [train])
    assert slurm(0, "glm") == (2, [])
