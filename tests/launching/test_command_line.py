"""``train`` and the scripts over it: what they run, and what they refuse."""

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

from fairseq_transnormer.training import command_line
from tests.forked_trainings import start_command, wait_for
from tests.kept_configurations import kept
from tests.messages import assert_names, command_refuses, lines_naming
from tests.paths import SCRIPTS
from tests.resolved_configs import command_line_config, flattened, hydra_config_now
from tests.tiny_data import write_tiny_data

# GPUs of this machine, as messages say it
HERE = f"has {torch.cuda.device_count()}"
TINY = ["model.attention_types='diag,norm'", "model.embed_dim=32"]
TINY += ["model.num_heads=2", "model.ffn_dim=85", "task.tokens_per_sample=16"]
# Where the run lies, and what only translation reads.
NOT_COMPARED = re.compile(r"task\.data$|checkpoint\.save_dir$|scoring(\.|$)")


def with_this_python() -> dict[str, str]:
    """The environment, with the Python of the tests first on the path."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return os.environ | {"PATH": path}


def script(task: str, *arguments, **options) -> subprocess.CompletedProcess:
    """Run scripts/train_TASK.sh with the Python of the tests."""
    return subprocess.run(
        ["bash", SCRIPTS / f"train_{task}.sh", *map(str, arguments)],
        capture_output=True,
        text=True,
        env=with_this_python(),
        **options,
    )


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    return write_tiny_data(tmp_path_factory.mktemp("data") / "with space")


@pytest.fixture(scope="module")
def sequences(tmp_path_factory) -> Path:
    """A folder that looks like one of the arena's tasks."""
    folder = tmp_path_factory.mktemp("arena")
    (folder / "manifest.json").touch()
    return folder


@pytest.fixture
def dry_run(capsys):
    """The words of the printed command, and what is told beside it."""

    def run(*arguments) -> tuple[list[str], str]:
        words = [str(each) for each in arguments]
        with kept():
            code = command_line.main(["--dry-run", *words])
        printed = capsys.readouterr()
        assert code == 0, printed.err
        return shlex.split(printed.out), printed.err

    return run


def flags_of(words: list[str], starter: str = "") -> list[str]:
    """What follows fairseq-train, after the words of its ``starter``."""
    at = words.index("fairseq-train")
    assert words[:at] == starter.split()
    return words[at + 1 :]


def configuration_of(words: list[str], starter: str = ""):
    """What the printed command trains with."""
    with kept():
        return command_line_config(flags_of(words, starter))


def flag(flags: list[str], name: str) -> int:
    """An option's value; fairseq's own default is 1 for those that are asked here."""
    return int(flags[flags.index(name) + 1]) if name in flags else 1


def assert_same(flags, primary, *overrides, data):
    """fairseq-train with ``flags`` trains what fairseq-hydra-train composes."""
    by_command = flattened(command_line_config(flags))
    # not from the cache: the environment is in it
    by_hydra = flattened(hydra_config_now(primary, *overrides))
    differences = {
        key: (by_command.get(key), by_hydra.get(key))
        for key in by_command.keys() | by_hydra.keys()
        if by_command.get(key) != by_hydra.get(key) and not NOT_COMPARED.match(key)
    }
    assert not differences
    assert by_command["task.data"] == str(data)
    assert len(by_command) > 200
    return by_command


@pytest.mark.parametrize(
    ("config", "overrides"),
    [
        ("alm", ["model=alm_t1"]),
        ("alm", ["run=gpus4", "precision=fp16"]),
        ("alm", ["model=alm_vanilla", "+machine=a100"]),
        ("blm", ["run=gpus2", "precision=bf16"]),
        ("alm_small", []),
        *(
            pytest.param(*each, marks=pytest.mark.slow)
            for each in (
                ("alm", ["run=gpus1", "model.block_size=32"]),
                ("alm", ["run=cpu", "model=alm_ls"]),
                ("blm", ["model=blm_performer", "optimization.lr=[0.001]"]),
                ("blm_small", ["++model.dropout=0.0"]),
                ("copy_task", []),
                ("digits", []),
            )
        ),
    ],
)
def test_the_command_trains_the_configuration(dry_run, data, config, overrides):
    words, _ = dry_run(config, *overrides, "--data", data)
    assert_same(flags_of(words), config, *overrides, data=data)


@pytest.mark.parametrize("task", ["text", "image"])
def test_the_arenas_command_trains_its_configuration(dry_run, sequences, task):
    options = ["--data", sequences, "--gpus", 4, "--precision", "bf16"]
    words, _ = dry_run("lra", f"lra={task}", "model=lra_linformer", *options)
    batch = {"text": 4, "image": 64}[task]
    values = assert_same(
        flags_of(words),
        "lra",
        *(f"lra={task}", "model=lra_linformer", "precision=bf16"),
        f"dataset.batch_size={batch}",
        "distributed_training.distributed_world_size=4",
        data=sequences,
    )
    folder = f"runs/lra/{task}/lra_linformer/checkpoints"
    assert values["checkpoint.save_dir"] == folder


GLOO = ["distributed_training.distributed_backend=gloo"]
GLOO += ["distributed_training.ddp_backend=legacy_ddp"]


@pytest.mark.parametrize(
    ("options", "starter", "workers", "overrides"),
    [
        (
            ["--nodes", "2", "--rendezvous", "node0:29400", "--gpus", "8"],
            "torchrun --rdzv-backend c10d --rdzv-endpoint node0:29400 --rdzv-id "
            "alm_t2 --nnodes 2 --nproc-per-node 8 --no-python",
            16,
            [],
        ),
        (
            ["--gpus", "0", "--workers", "4"],
            "torchrun --standalone --nproc-per-node 4 --no-python",
            4,
            ["common.cpu=true", *GLOO],
        ),
        (
            ["--nodes", "2", "--gpus", "8"],
            "",
            16,
            ["distributed_training.distributed_port=12345"],
        ),
    ],
)
def test_started_by_others_they_train_the_same_too(
    dry_run, data, options, starter, workers, overrides, monkeypatch
):
    if not starter:  # a step of Slurm
        monkeypatch.setenv("SLURM_STEP_NUM_NODES", "2")
        monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "2")
        monkeypatch.setenv("MASTER_PORT", "12345")
    words, _ = dry_run("alm", "--data", data, *options)
    assert_same(
        flags_of(words, starter),
        "alm",
        f"distributed_training.distributed_world_size={workers}",
        f"optimization.update_freq=[{128 // 8 // workers}]",
        *overrides,
        data=data,
    )


@pytest.mark.parametrize(
    ("task", "options", "batch", "update_freq"),
    [
        ("alm", ["--nodes", 4, "--gpus", 8, "--rendezvous", "a:1"], 4, 1),
        ("blm", ["--nodes", 2, "--gpus", 4, "--rendezvous", "[fe80::1]:1"], 32, 2),
        ("alm", ["--gpus", 128], 1, 1),
        ("alm", ["--gpus", 1, "--batch-size", 128], 128, 1),
        ("blm", ["--gpus", 0, "--batch-size", 1], 1, 512),
    ],
)
def test_batches_fill_the_update_exactly(
    dry_run, data, task, options, batch, update_freq
):
    words, told = dry_run(task, "--data", data, *options)
    assert_names(told, f"{batch} at once", f"{update_freq} accumulated")
    assert flag(words, "--batch-size") == batch
    assert flag(words, "--update-freq") == update_freq
    starter = " ".join(words[: words.index("fairseq-train")])
    config = configuration_of(words, starter)
    processes = config.distributed_training.distributed_world_size
    assert processes * batch * update_freq == {"alm": 128, "blm": 512}[task]


REFUSED = [
    ("--gpus 3", ["3 workers", "128 sequences", 2, 4]),
    ("--gpus 256", ["256 workers", "128 sequences", ": 128"]),
    (
        "--nodes 3 --rendezvous a:1",
        ["--nodes 3", "8 processes", "24 workers", "128 sequences", 16, 32],
    ),
    ("--nodes 2", ["--nodes 2", "--rendezvous HOST:PORT"]),
    ("--nodes 0", ["--nodes", "'0'", 1]),
    ("--rendezvous host", ["--rendezvous", "'host'", "HOST:PORT"]),
    ("--rendezvous host:65536", ["--rendezvous", "'host:65536'", "65535"]),
    ("--rendezvous fe80::1:29400", ["--rendezvous", "[ADDRESS]:PORT"]),
    ("--rendezvous a:1", ["--rendezvous a:1", "--nodes 1"]),
    ("--workers 2 --gpus 8", ["--workers 2", "--gpus 8", "--gpus 0"]),
    ("--batch-size 3", ["batch of 3", "16 sequences", "8 workers", 2, 4]),
    ("--batch-size 32", ["batch of 32", "16 sequences", "8 workers", 16]),
    ("--batch-size 0", ["--batch-size", "'0'", 1]),
    ("--gpus two", ["--gpus", "'two'", 0]),
    ("--gpus -1", ["--gpus"]),
    ("--precision fp8", ["--precision", "'fp8'", "fp32", "fp16", "bf16"]),
    (
        "--precision fp16 --gpus 0",
        ["--precision fp16", "GPU", "--gpus 0", "fp32", "bf16"],
    ),
    ("--save-dir=", ["--save-dir", "''"]),
    ("--max-update 3", ["--max-update"]),
    ("max_update", ["'max_update'", "KEY=VALUE"]),
    ("model=alm_t9", ["alm_t9", "alm_t1", "alm_vanilla"]),
    ("model.block_sizee=3", ["block_sizee"]),
    ("+mine=3", ["mine=3", "fairseq-train"]),
    ("precision=fp8", ["fp8", "fp32", "fp16", "bf16"]),
    ("dataset.batch_size=0", ["dataset.batch_size=0", 1]),
    ("dataset.batch_size=null", ["dataset.batch_size=None", 1]),
    # what would be lost is refused
    ("checkpoint.save_dir=x", ["checkpoint.save_dir=x", "--save-dir"]),
    ("optimization.update_freq=[2]", ["update_freq=[2]", "--batch-size"]),
    ("common.cpu=true", ["common.cpu=true", "--gpus 0"]),
    ("++task.data=x", ["task.data=x", "--data"]),
    ("precision=bf16 --precision fp32", ["precision=bf16", "--precision"]),
    ("hydra.job.env_set.X=1", ["hydra.job.env_set.X=1", "hydra-train"]),
    # of fairseq-train
    ("-- --arch transnormer_t9", ["transnormer_t9", "transnormer_t1"]),
    ("-- --max-updates 3", ["--max-updates"]),
]
REFUSED_BY_THE_ARENA = [
    ("lra=images model=lra_t1", ["images", "image", "listops", "text"]),
    ("lra=text model=lra_t3", ["lra_t3", "lra_t2"]),
    ("lra=text model=lra_t1 --gpus 3", ["3 workers", "16 sequences", 2, 4]),
]


@pytest.mark.parametrize(
    ("config", "options", "parts"),
    [
        *(("alm", *row) for row in REFUSED),
        *(("lra", *row) for row in REFUSED_BY_THE_ARENA),
        ("alm_t1", "", ["alm", "blm", "lra", "alm_small"]),
    ],
)
def test_bad_options_are_refused_with_the_reason(
    data, sequences, config, options, parts, capsys
):
    folder = str(sequences if config == "lra" else data)
    words = [config, "--dry-run", "--data", folder, *options.split()]
    with kept():
        command_refuses(command_line.main, words, capsys, *parts)


@pytest.mark.parametrize("number", ["0", "abc", "-8", "1.5"])
def test_bad_numbers_of_sequences_are_refused(data, number, monkeypatch, capsys):
    monkeypatch.setenv("SEQUENCES_PER_UPDATE", number)
    arguments = ["alm", "--dry-run", "--data", str(data)]
    field = f"SEQUENCES_PER_UPDATE={number}"
    command_refuses(command_line.main, arguments, capsys, field, 1, 2, "nothing")


@pytest.mark.parametrize(
    ("number", "options", "batch", "update_freq"),
    [
        ("96", ["--gpus", 3], 8, 4),
        ("", ["--gpus", 3], 8, 2),
        ("", ["--gpus", 3, "--batch-size", 5], 5, 2),
    ],
)
def test_the_environment_chooses_the_update(
    dry_run, data, number, options, batch, update_freq, monkeypatch
):
    monkeypatch.setenv("SEQUENCES_PER_UPDATE", number)
    words, told = dry_run("alm", "--data", data, *options)
    assert flag(words, "--batch-size") == batch
    assert flag(words, "--update-freq") == update_freq
    sizes = (f"{batch} at once", f"{update_freq} accumulated")
    in_all = f"{3 * batch * update_freq} sequences"
    assert_names(told, "update", in_all, "3 workers", *sizes)


@pytest.mark.parametrize(
    "words", [["--batch-size", "4"], ["--update-freq=4"], ["--max-tokens", "4096"]]
)
def test_flags_that_make_another_update_are_named(dry_run, data, words, monkeypatch):
    _, told = dry_run("alm", "--data", data, "--", *words)
    assert_names(told, "update", words[0].partition("=")[0], "128 sequences")
    assert "accumulated" not in told
    monkeypatch.setenv("SEQUENCES_PER_UPDATE", "")
    _, told = dry_run("alm", "--data", data, "--", *words)
    assert_names(told, "update", words[0].partition("=")[0])
    assert "sequences" not in told


def test_missing_data_is_named(data, sequences, tmp_path, capsys):
    half = tmp_path / "half"
    shutil.copytree(data, half)
    (half / "train.bin").unlink()
    for config, folder, *parts in (
        ("blm", tmp_path / "none", "dict.txt", "wikitext103 blm"),
        ("blm", half, "train.bin", "README.md"),
        ("lra", tmp_path / "none", "manifest.json", "data_prep lra listops"),
    ):
        arguments = [config, "--gpus", "0", "--data", str(folder)]
        parts = ("--data", folder, *parts)
        command_refuses(command_line.main, arguments, capsys, *parts)


def test_a_training_that_dies_says_by_what(data, monkeypatch, capsys):
    words = ["alm", "--gpus", "0", "--workers", "2", "--data", str(data)]
    for code, by in ((-9, "signal 9"), (1, "exit code 1")):
        monkeypatch.setattr(command_line, "run", lambda *_, code=code: code)
        again = shlex.join(["train", *words, "--", "--seed", "3"])
        words_given = [*words, "--", "--seed", "3"]
        command_refuses(command_line.main, words_given, capsys, by, again, code=code)
    monkeypatch.setattr(command_line, "run", lambda *_: 75)
    assert command_line.main(words) == 75
    assert "ended" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("config", "data"),
    [("alm", "wikitext-103"), ("blm", "wikitext-103-bpe"), ("lra", "lra/listops")],
)
def test_a_dry_run_needs_no_data(dry_run, tmp_path, monkeypatch, config, data):
    monkeypatch.chdir(tmp_path)
    words, _ = dry_run(config)
    assert words[:2] == ["fairseq-train", str(tmp_path / "data-bin" / data)]


def test_folders_keep_their_names(dry_run, data):
    name = r"""o\q it's b"c, d=e"""
    words, _ = dry_run("alm", "--data", data, "--save-dir", f"/tmp/{name}")
    assert configuration_of(words).checkpoint.save_dir == f"/tmp/{name}"


def test_flags_after_two_dashes_win(dry_run, data):
    more = ["--lr", "0.25", "--block-size", "32"]
    words, _ = dry_run("alm", "--data", data, "--", *more)
    cfg = configuration_of(words)
    assert (cfg.optimization.lr, cfg.model.block_size) == ([0.25], 32)


def test_fairseqs_own_architectures_are_trained_alike(dry_run, data):
    words, _ = dry_run("alm", "--data", data, "--", "--arch", "transformer_lm")
    cfg = configuration_of(words)
    assert cfg.model._name == "transformer_lm" and cfg.optimization.max_update == 1e5


@pytest.mark.slow
def test_the_script_trains_and_resumes(data, tmp_path):
    """One update of 128 sequences on the CPU, then a second by the script itself."""
    options = ["--gpus", 0, "--data", data, *TINY]
    first = script("alm", *options, "--dry-run", "--", "--max-update", 1, cwd=tmp_path)
    flags, log = flags_of(shlex.split(first.stdout)), tmp_path / "log"
    assert wait_for([start_command("train", flags, log, tmp_path)]) == [0], log
    last = tmp_path / "runs" / "alm_t2" / "checkpoints" / "checkpoint_last.pt"
    last.write_bytes(last.read_bytes()[:-1000])  # as a kill while copying leaves it
    done = script("alm", *options, "--", "--max-update", 2, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("fairseq-train ")
    (told,) = lines_naming(done.stdout, "damaged", "checkpoint_last.pt.damaged")
    assert re.search(r"checkpoint_(best|\d+)\.pt", told), told
    assert lines_naming(done.stdout, "Loaded checkpoint", last)
    state = torch.load(last, weights_only=True)
    assert state["optimizer_history"][-1]["num_updates"] == 2


@pytest.mark.slow
def test_flags_do_not_change_the_update_unnoticed(data, tmp_path):
    options = ["--gpus", 0, "--data", data, *TINY]
    flags = ["--batch-size", 4, "--max-update", 1]
    done = script("alm", *options, "--", *flags, cwd=tmp_path)
    assert done.returncode == 1
    sizes = ("64 sequences", "1 workers", "4 at once", "16 accumulated")
    assert lines_naming(done.stderr, *sizes, "SEQUENCES_PER_UPDATE", 128)


def test_more_gpus_than_there_are_is_an_error(data, tmp_path, capsys):
    save_dir = ["--save-dir", str(tmp_path / "run")]
    arguments = ["alm", "--gpus", "64", "--data", str(data), *save_dir]
    command_refuses(command_line.main, arguments, capsys, "--gpus 64", HERE, "0", "CPU")
    assert not (tmp_path / "run").exists()


def test_the_arenas_script_names_task_and_system(tmp_path):
    """A copy of it, beside a Python that says what it was asked for."""
    python, copy = tmp_path / ".venv" / "bin" / "python", tmp_path / "scripts" / "lra"
    for path, text in (
        (python, '#!/bin/sh\necho "$@"\n'),
        (copy, (SCRIPTS / "train_lra.sh").read_text()),
    ):
        path.parent.mkdir(parents=True)
        path.write_text(text)
        path.chmod(0o755)
    done = [
        subprocess.run([copy, *words], capture_output=True, text=True)
        for words in (["text", "t3", "--gpus", "4"], ["image"])
    ]
    command = "-m fairseq_transnormer train lra lra=text model=lra_t3 --gpus 4\n"
    assert (done[0].stdout, done[0].returncode) == (command, 0)
    assert done[1].returncode == 2 and done[1].stdout == ""
    assert_names(done[1].stderr, "TASK", "SYSTEM", "--help")


@pytest.mark.slow  # torchrun as with one node, which is started all the same
def test_two_nodes_meet_and_train(data, tmp_path):
    """One command on each; the CPU's gloo stands in for the GPUs' NCCL."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    options = ["--nodes", 2, "--rendezvous", f"localhost:{port}", "--gpus", 0]
    options += ["--data", data, *TINY]
    with ThreadPoolExecutor() as nodes:
        starts = [
            nodes.submit(script, "alm", *options, "--", "--max-update", 1, cwd=tmp_path)
            for _ in range(2)
        ]
        done = [start.result() for start in starts]
    text = "".join(each.stdout + each.stderr for each in done)
    assert [each.returncode for each in done] == [0, 0], text
    sizes = ("128 sequences", "2 workers", "8 at once", "8 accumulated")
    assert lines_naming(text, "update", *sizes)
    assert "loaded 2" not in text and "num_updates: 1 >= max_update: 1" in text
    assert (tmp_path / "runs/alm_t2/checkpoints/checkpoint_last.pt").exists()


@pytest.mark.slow
def test_a_signal_ends_torchrun_with_the_exit_code_of_its_workers(data, tmp_path):
    log = tmp_path / "log"
    words = ["--gpus", 0, "--workers", 2, "--data", data, *TINY]
    words += ["--", "--max-update", 100_000, "--log-interval", 1]
    words += ["--disable-validation"]
    with log.open("w") as stream:
        job = subprocess.Popen(
            ["bash", SCRIPTS / "train_alm.sh", *map(str, words)],
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
    assert (tmp_path / "runs/alm_t2/checkpoints/checkpoint_last.pt").exists()


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
            ["bash", SCRIPTS / "slurm" / "train.sbatch", *arguments],
            env=os.environ | {"EXIT_CODE": str(exit_code)},
        )
        return done.returncode, notes.read_text().splitlines()

    return run


def test_a_job_of_slurm_is_queued_again_when_there_is_more_to_do(slurm):
    train = "srun --wait=60 bash scripts/train_alm.sh --nodes 2 --gpus 4 model=x"
    again = "scontrol requeue 70123"
    assert slurm(75, "alm", "model=x") == (75, [train, again])
    assert slurm(0, "alm", "model=x") == (0, [train])
    assert slurm(1, "alm", "model=x") == (1, [train])
    assert slurm(0, "glm") == (2, [])
