"""``train`` and the scripts over it: what they train with, and what they refuse."""

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from omegaconf import DictConfig, OmegaConf
from torch.multiprocessing.spawn import ProcessRaisedException

from fairseq_transnormer.training import launch
from fairseq_transnormer.training.config import flattened
from fairseq_transnormer.training.update_layout import lay_out
from tests.forked_trainings import (
    free_port,
    logged,
    start_command,
    training_arguments,
    wait_for,
)
from tests.messages import assert_names, command_refuses, lines_naming
from tests.paths import SCRIPTS
from tests.resolved_configs import hydra_config_now
from tests.tiny_data import write_tiny_data

from .trainings import updates_of

TINY = ["model.attention_types='diag,norm'", "model.embed_dim=32"]
TINY += ["model.num_heads=2", "model.ffn_dim=85", "task.tokens_per_sample=16"]
# where the run lies
NOT_COMPARED = ("task.data", "checkpoint.save_dir")


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


@pytest.fixture(autouse=True)
def environment():
    """What a training sets for itself ends with the test."""
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture
def dry_run(capsys):
    """The configuration that is printed, and what is told beside it."""

    def run(*arguments) -> tuple[DictConfig, str]:
        code = launch.main(["--dry-run", *map(str, arguments)])
        printed = capsys.readouterr()
        assert code == 0, printed.err
        return OmegaConf.create(printed.out), printed.err

    return run


def assert_same(cfg, primary, *overrides, data):
    """``train`` and fairseq-hydra-train have the same configuration."""
    # not from the cache: the environment is in it
    both = cfg, hydra_config_now(primary, *overrides)
    ours, hydras = (flattened(OmegaConf.to_container(each)) for each in both)
    differences = {
        key: (ours.get(key), hydras.get(key))
        for key in ours.keys() | hydras.keys()
        if ours.get(key) != hydras.get(key) and key not in NOT_COMPARED
    }
    assert not differences
    assert ours["task.data"] == str(data)
    assert len(ours) > 200


@pytest.mark.parametrize(
    ("config", "overrides"),
    [
        ("alm", ["model=alm_t1"]),
        ("alm", ["model=alm_vanilla", "precision=bf16", "common.fp16=true"]),
        ("alm_small", []),
        ("alm", ["model.block_size=32", "optimization.max_update=7"]),
        ("blm", ["model=blm_performer", "optimization.lr=[0.001]"]),
        ("blm_small", ["++model.dropout=0.0"]),
        ("copy_task", []),
        ("digits", []),
    ],
)
def test_it_trains_the_configuration(dry_run, data, config, overrides):
    cfg, _ = dry_run(config, *overrides, "--data", data)
    assert_same(cfg, config, *overrides, data=data)


@pytest.mark.parametrize("task", ["text", "image"])
def test_the_arenas_tasks_have_their_configuration(dry_run, sequences, task):
    options = ["--data", sequences, "--gpus", 4, "--precision", "bf16"]
    cfg, _ = dry_run("lra", f"lra={task}", "model=lra_linformer", *options)
    batch = {"text": 4, "image": 64}[task]
    assert_same(
        cfg,
        "lra",
        *(f"lra={task}", "model=lra_linformer", "precision=bf16"),
        f"dataset.batch_size={batch}",
        "distributed_training.distributed_world_size=4",
        data=sequences,
    )
    folder = f"runs/lra/{task}/lra_linformer/checkpoints"
    assert cfg.checkpoint.save_dir == folder


GLOO = ["distributed_training.distributed_backend=gloo"]
GLOO += ["distributed_training.ddp_backend=legacy_ddp"]
MODULE = "-m fairseq_transnormer.training"


@pytest.mark.parametrize(
    ("options", "torchrun", "workers", "overrides"),
    [
        (
            ["--nodes", "2", "--rendezvous", "node0:29400", "--gpus", "8"],
            "torchrun --rdzv-backend c10d --rdzv-endpoint node0:29400 --rdzv-id "
            f"alm_t2 --nnodes 2 --nproc-per-node 8 {MODULE} runs/alm_t2/config.yaml",
            16,
            [],
        ),
        (
            ["--gpus", "0", "--workers", "4", "--save-dir", "x/y"],
            f"torchrun --standalone --nproc-per-node 4 {MODULE} x/y/config.yaml",
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
    dry_run, data, options, torchrun, workers, overrides, monkeypatch
):
    if not torchrun:  # a step of Slurm
        monkeypatch.setenv("SLURM_STEP_NUM_NODES", "2")
        monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "2")
        monkeypatch.setenv("MASTER_PORT", "12345")
    cfg, told = dry_run("alm", "--data", data, *options)
    commands = [line for line in told.splitlines() if "torchrun" in line]
    assert commands == ([f"train: {torchrun}"] if torchrun else [])
    assert_same(
        cfg,
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
    cfg, told = dry_run(task, "--data", data, *options)
    assert_names(told, f"{batch} at once", f"{update_freq} accumulated")
    assert cfg.optimization.update_freq == [update_freq]
    # what is the same, unless something else is said
    assert cfg.dataset.batch_size == cfg.dataset.batch_size_valid == batch
    processes = cfg.distributed_training.distributed_world_size
    assert processes * batch * update_freq == {"alm": 128, "blm": 512}[task]


def test_memory_makes_no_update_smaller(dry_run, monkeypatch):
    monkeypatch.setattr(launch, "fitting_batch", lambda *_: 8)
    cfg, told = dry_run("alm_small", "--gpus", 1, "dataset.batch_size=12")
    assert_names(told, "batches of 8", "not 12", "12 sequences", "6 at once")
    assert (cfg.dataset.batch_size, cfg.optimization.update_freq) == (6, [2])


REFUSED = [
    ("alm", "--gpus 3", ["3 workers", "128 sequences", 2, 4]),
    ("lra", "lra=text model=lra_t1 --gpus 3", ["3 workers", "16 sequences", 2, 4]),
    ("alm", "--batch-size 3", ["batch of 3", "16 sequences", "8 workers", 2, 4]),
    ("alm", "--nodes 2", ["--nodes 2", "--rendezvous HOST:PORT"]),
    ("alm", "--precision fp16 --gpus 0", ["precision fp16", "GPU", "--gpus 0"]),
    ("alm", "model=alm_t9", ["alm_t9", "alm_t1", "alm_vanilla"]),
    ("alm", "model.embed_dimm=3", ["embed_dimm", "embed_dim"]),
    ("alm", "dataset.batch_size=null", ["dataset.batch_size=None", 1]),
    # what would be lost is refused
    ("alm", "checkpoint.save_dir=x", ["checkpoint.save_dir=x", "--save-dir"]),
    ("alm", "optimization.update_freq=[2]", ["update_freq=[2]", "--batch-size"]),
    ("alm", "common.cpu=true", ["common.cpu=true", "--gpus 0"]),
    ("alm", "criterion.sentence_avg=true", ["criterion._name=None", "sentence_avg"]),
]


@pytest.mark.parametrize(("config", "options", "parts"), REFUSED)
def test_bad_options_are_refused_with_the_reason(
    data, sequences, config, options, parts, capsys
):
    folder = str(sequences if config == "lra" else data)
    words = [config, "--dry-run", "--data", folder, *options.split()]
    command_refuses(launch.main, words, capsys, *parts)


WORDS = ["alm", "--gpus", "0"]
PYTHON_M = "python -m fairseq_transnormer "


def test_a_training_that_dies_says_how_to_go_on(data, tmp_path, monkeypatch, capsys):
    words = [*WORDS, "--data", str(data), "--save-dir", str(tmp_path)]

    def ended(name: str, function) -> tuple[int, str]:
        monkeypatch.setattr(launch, name, function)
        return launch.main(words), capsys.readouterr().err

    def raises(error: BaseException):
        raise error

    resume = f"to resume: {PYTHON_M}{shlex.join(['train', *words])}\n"
    worker = ProcessRaisedException("of worker 1\nKeyError: 'a'\n", 1, 1)
    for error, code, name in (
        (RuntimeError("full"), 1, "RuntimeError: full"),
        (worker, 1, "KeyError: 'a'"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ):
        found, told = ended("train_file", lambda *_, error=error: raises(error))
        assert found == code and name in told and told.endswith(resume)
    # a check of ours is no accident
    code, told = ended("train_file", lambda *_: lay_out(3, 2))
    assert code == 2 and "Traceback" not in told
    words += ["--workers", "2"]
    for code in (-9, 1, os.EX_TEMPFAIL):
        found, told = ended("run_torchrun", lambda *_, code=code: code)
        assert found == code and ("ended" in told) == (code != os.EX_TEMPFAIL)


@pytest.mark.parametrize(
    ("config", "data"),
    [("alm", "wikitext-103"), ("blm", "wikitext-103-bpe"), ("lra", "lra/listops")],
)
def test_a_dry_run_needs_no_data(dry_run, tmp_path, monkeypatch, config, data):
    monkeypatch.chdir(tmp_path)
    cfg, _ = dry_run(config)
    assert cfg.task.data == str(tmp_path / "data-bin" / data)
    assert not [*tmp_path.iterdir()]


def test_folders_keep_their_names(dry_run, data):
    name = r"""o\q it's b"c, d=e"""
    cfg, _ = dry_run("alm", "--data", data, "--save-dir", f"/tmp/{name}")
    assert cfg.checkpoint.save_dir == f"/tmp/{name}"


def test_a_rate_need_not_be_a_list(dry_run, data):
    cfg, _ = dry_run("alm", "--data", data, "optimization.lr=0.001")
    assert cfg.optimization.lr == cfg.optimizer.lr == cfg.lr_scheduler.lr == [0.001]


@pytest.fixture
def trained(monkeypatch):
    """The configurations that would be trained, and the files for them in the runs."""
    found = []

    def note(path, copy):
        found.append((OmegaConf.load(path), Path(copy)))
        return 0

    monkeypatch.setattr(launch, "train_file", note)
    monkeypatch.setattr(launch, "run_torchrun", lambda words: note(*words[-2:]))
    return found


def test_the_run_has_the_configuration(dry_run, data, tmp_path, capsys, trained):
    """In its folder, once it is accepted, and no file of others is written over."""
    for save_dir, name, *workers in (
        ("run/checkpoints", "run/config.yaml"),
        ("runs/a", "runs/a/config.yaml", "--workers", 2),
    ):
        words = [*WORDS, "--data", data, "--save-dir", tmp_path / save_dir, *workers]
        cfg, _ = dry_run(*words)
        file = tmp_path / name
        for _ in range(2):
            assert launch.main([*map(str, words)]) == 0
            assert trained.pop() == (cfg, file) and not file.exists()
    file.write_text("mine: 1\n")
    command_refuses(launch.main, words, capsys, file, "--save-dir")
    assert file.read_text() == "mine: 1\n" and not trained


def test_shards_have_what_training_reads(data, tmp_path, capsys, trained):
    """Of DIR1:DIR2 the first alone has the dictionary, and texts for validation."""
    shard, save_dir = tmp_path / "shard", ["--save-dir", tmp_path / "run"]
    words = [*WORDS, "--data", f"{data}:{shard}", *save_dir]
    shard.mkdir()
    (shard / "train.bin").touch()
    command_refuses(launch.main, words, capsys, f"--data {shard} has no train.idx")
    (shard / "train.idx").touch()
    assert launch.main([*map(str, words)]) == 0 and trained
    words.append("dataset.valid_subset='valid,test2'")
    command_refuses(launch.main, words, capsys, f"--data {data} has no test2.bin")
    words.append("dataset.disable_validation=true")
    assert launch.main([*map(str, words)]) == 0


def test_it_trains_as_fairseq_train_does(data, tmp_path, dry_run):
    """Every printed loss of some updates."""
    small = {"embed_dim": 32, "num_heads": 2, "ffn_dim": 85}
    flags = training_arguments(
        "transnormer_t2", tmp_path / "fairseq", **small, max_update=3, dropout=0.1,
        attention_types="diag,norm", tokens_per_sample=16, batch_size=8, lr=0.001,
        adam_betas="(0.9,0.98)", weight_decay=0.01, warmup_updates=2, update_freq=2,
        adam_eps=1e-8, warmup_init_lr=1e-7, optimizer="fused_adam",
        criterion="chunked_cross_entropy",
    )  # fmt: skip
    words = [f"model.{name}={value}" for name, value in small.items()]
    words += TINY + ["optimization.max_update=3", "optimization.lr=0.001"]
    words += ["lr_scheduler.warmup_updates=2", "common.log_format=json"]
    words += ["common.log_interval=1", "dataset.num_workers=0"]
    words += ["--batch-size", 8, "--save-dir", tmp_path / "ours"]
    update = {"SEQUENCES_PER_UPDATE": "16"}
    logs = [tmp_path / "fairseq.log", tmp_path / "ours.log"]
    processes = [
        start_command("train", [data, *flags], logs[0]),
        start_command(
            "fairseq_transnormer",
            ["train", *WORDS, "--data", data, *words],
            logs[1],
            environment=update,
        ),
    ]
    assert wait_for(processes) == [0, 0], [log.read_text()[-2000:] for log in logs]
    theirs, ours = (
        [each["loss"] for each in logged(log.read_text(), "train_inner")]
        for log in logs
    )
    assert len(ours) == 3 and ours == theirs
    # by its file alone, and it is done
    third = tmp_path / "file.log"
    file = tmp_path / "ours" / "config.yaml"
    again = start_command(
        "fairseq_transnormer.training", [file], third, environment=update
    )
    assert wait_for([again]) == [0], third.read_text()[-2000:]
    assert not logged(third.read_text(), "train_inner")


@pytest.mark.slow
def test_the_script_trains_and_resumes(data, tmp_path):
    """One update of 128 sequences on the CPU, then a second by the script itself."""
    options = ["--gpus", 0, "--data", data, *TINY]
    words, log = ["train", "alm", *options, "optimization.max_update=1"], tmp_path / "l"
    first = start_command("fairseq_transnormer", words, log, tmp_path)
    assert wait_for([first]) == [0], log.read_text()[-2000:]
    last = tmp_path / "runs" / "alm_t2" / "checkpoints" / "checkpoint_last.pt"
    last.write_bytes(last.read_bytes()[:-1000])  # as a kill while copying leaves it
    done = script("alm", *options, "optimization.max_update=2", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    (told,) = lines_naming(done.stdout, "damaged", "checkpoint_last.pt.damaged")
    assert re.search(r"checkpoint_(best|\d+)\.pt", told), told
    assert updates_of(last) == 2


@pytest.mark.slow  # torchrun as with one node, which is started all the same
def test_two_nodes_meet_and_train(data, tmp_path):
    """One command on each; the CPU's gloo stands in for the GPUs' NCCL."""
    options = ["--nodes", 2, "--rendezvous", f"localhost:{free_port()}", "--gpus", 0]
    options += ["--data", data, *TINY, "optimization.max_update=1"]
    with ThreadPoolExecutor() as nodes:
        starts = [nodes.submit(script, "alm", *options, cwd=tmp_path) for _ in range(2)]
        done = [start.result() for start in starts]
    text = "".join(each.stdout + each.stderr for each in done)
    assert [each.returncode for each in done] == [0, 0], text
    sizes = ("128 sequences", "2 workers", "8 at once", "8 accumulated")
    assert lines_naming(text, "update", *sizes)
    assert lines_naming(text, "stopping training", "update 1")
    assert "loaded 2" not in text
    assert (tmp_path / "runs/alm_t2/checkpoints/checkpoint_last.pt").exists()


@pytest.mark.slow
def test_a_signal_ends_torchrun_with_the_exit_code_of_its_workers(data, tmp_path):
    log = tmp_path / "log"
    words = ["--gpus", 0, "--workers", 2, "--data", data, *TINY]
    words += ["common.log_interval=1", "dataset.disable_validation=true"]
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
