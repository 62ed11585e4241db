"""The trainer without fairseq trains as fairseq-train does, and what it leaves is read.

fairseq-train is the oracle: same data, settings and seed, dropout included. What is
compared are the digits that it prints. 19 batches an epoch; the last update of an epoch
has fewer than the others, and of two processes one has no batch in it.
"""

import importlib.util
import json
import math
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from fairseq.data import data_utils

from fairseq_transnormer.checkpoints.export import export_checkpoint
from fairseq_transnormer.checkpoints.load import load
from fairseq_transnormer.data.token_blocks import TokenBlocks
from fairseq_transnormer.data.training_records import LOG
from fairseq_transnormer.inference import TextGenerator, TextScorer
from tests.forked_trainings import Training, free_port, logged, start_command, wait_for
from tests.messages import refuses
from tests.paths import ROOT
from tests.tiny_data import write_tiny_data

SCRIPT = ROOT / "examples" / "train_plain_pytorch.py"
UPDATES = 9
SETTINGS = {
    "arch": "transnormer_t2",
    "attention-types": "diag,norm",
    "embed-dim": 32,
    "num-heads": 2,
    "ffn-dim": 64,
    "block-size": 16,
    "tokens-per-sample": 32,
    "batch-size": 4,
    "lr": 0.003,
    "warmup-updates": 4,
    "warmup-init-lr": 1e-5,
    "weight-decay": 0.1,
    "clip-norm": 0.8,
    "seed": 7,
    "max-update": UPDATES,
    "log-interval": 1,
    "save-interval-updates": 3,
}
STARTS = ("alone", "torchrun")
FAIRSEQ_ONLY = {
    "criterion": "chunked_cross_entropy",
    "sample-break-mode": "none",
    "validate-interval-updates": 3,
}


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    """76 blocks of 32 tokens, the last of which is shorter."""
    return write_tiny_data(tmp_path_factory.mktemp("text"), 115)


def words(data: Path, save_dir: Path, **options) -> list[str]:
    """The trainer's command line, without the program."""
    given = SETTINGS | {
        name.replace("_", "-"): value for name, value in options.items()
    }
    pairs = [(f"--{name}", *{str(value)} - {"True"}) for name, value in given.items()]
    return [str(data), "--save-dir", str(save_dir), "--cpu", *sum(pairs, ())]


def records(save_dir: Path, kind: str) -> list[dict]:
    lines = (save_dir / LOG).read_text().splitlines()
    return [each for each in map(json.loads, lines) if each["kind"] == kind]


@pytest.fixture(scope="module")
def trained(data, tmp_path_factory):
    """trained(start): the folder of a run.

    "alone" and "torchrun" are processes where to import fairseq is an error, since a
    module of that name that notes who imports it comes before the real one. "two" are
    two workers, forked.
    """
    folder = tmp_path_factory.mktemp("plain")
    (folder / "modules").mkdir()
    content = f"open({str(folder / 'imported')!r}, 'w')\nraise ImportError('fairseq')\n"
    for name in ("fairseq", "fairseq_cli", "hydra"):
        (folder / "modules" / f"{name}.py").write_text(content)
    path = os.pathsep.join([str(folder / "modules"), str(ROOT)])
    environment = os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]

    def train(start: str) -> Path:
        save_dir = folder / start
        if save_dir.exists():
            return save_dir
        given = words(data, save_dir, update_freq=4 if start == "alone" else 2)
        if start == "two":
            meeting = {"MASTER_ADDR": "localhost", "MASTER_PORT": str(free_port())}
            logs = [folder / f"{rank}.log" for rank in (0, 1)]
            variables = [
                meeting | {"WORLD_SIZE": "2", "RANK": rank, "LOCAL_RANK": rank}
                for rank in "01"
            ]
            workers = [
                start_command(str(SCRIPT), given, log, environment=each)
                for log, each in zip(logs, variables, strict=True)
            ]
            assert wait_for(workers) == [0, 0], logs[0].read_text()
            return save_dir
        done = subprocess.run(
            [sys.executable, *torchrun * (start == "torchrun"), SCRIPT, *given],
            **{"env": environment, "capture_output": True, "text": True},
        )
        assert done.returncode == 0, done.stderr
        assert not (folder / "imported").exists()
        return save_dir

    return train


@pytest.fixture
def trainer(monkeypatch):
    """trainer(*words): a Trainer of the script, in this process."""
    spec = importlib.util.spec_from_file_location(SCRIPT.stem, SCRIPT)
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)

    def make(*given):
        monkeypatch.setattr(sys, "argv", [str(SCRIPT), *given])
        return script.Trainer(*script.parse())

    return make


def digits(record: dict, *names: str) -> list[float]:
    """Loss, norm and rate as fairseq rounds them."""
    rounded = {"loss": 3, "valid_loss": 3, "gnorm": 3}
    return [
        float(f"{round(float(record[name]), rounded.get(name, 20)):g}")
        for name in names
    ]


@pytest.mark.parametrize(
    "start", ["two", *(pytest.param(e, marks=pytest.mark.slow) for e in STARTS)]
)
def test_losses_are_fairseqs(trained, data, tmp_path, start):
    workers = 1 if start == "alone" else 2
    options = SETTINGS | FAIRSEQ_ONLY | {"update-freq": 4 // workers}
    oracle = Training(
        data, tmp_path / "fairseq", workers, options, arch=options.pop("arch")
    )
    assert oracle.run() == [0] * workers, oracle.text()
    log = oracle.logs[0].read_text()
    names = ("num_updates", "loss", "gnorm", "lr")
    expected = [digits(each, *names) for each in logged(log, "train_inner")]
    found = [digits(each, *names) for each in records(trained(start), "train_inner")]
    assert len(found) == UPDATES and found == expected
    names = ("valid_num_updates", "valid_loss")
    theirs = {
        int(each[names[0]]): digits(each, *names) for each in logged(log, "valid")
    }
    ours = [digits(each, *names) for each in records(trained(start), "valid")]
    assert ours == [theirs[update] for update in (3, 6, 9)]


def test_a_run_resumes_with_equal_losses(trained, trainer, data, tmp_path):
    trainer(*words(data, tmp_path, update_freq=4, max_update=4)).run()
    assert [each["num_updates"] for each in records(tmp_path, "train_inner")][-1] == 4
    # as two processes, each with half of the batches, would have it
    trainer(*words(data, tmp_path, update_freq=4)).run()
    names = ("num_updates", "loss", "gnorm", "lr")
    found, whole = (
        [digits(each, *names) for each in records(folder, "train_inner")]
        for folder in (tmp_path, trained("alone"))
    )
    assert found == whole
    # updates 4 to 6, of two processes
    for last in (4, 6):
        given = {"update_freq": 4, "log_interval": 3, "max_update": last}
        trainer(*words(data, tmp_path / "log", **given)).run()
    together = records(tmp_path / "log", "train_inner")[-1]["gnorm"]
    alone = [each["gnorm"] for each in records(trained("alone"), "train_inner")[3:6]]
    assert together == pytest.approx(sum(alone) / 3, rel=1e-5)
    # a finished run has nothing left to do
    size = (tmp_path / LOG).stat().st_size
    trainer(*words(data, tmp_path, update_freq=4)).run()
    assert (tmp_path / LOG).stat().st_size == size


@pytest.mark.parametrize(
    ("option", "value", "parts"),
    [
        ("lr", 0.004, ("lr=0.004", "0.003", "--save-dir")),
        ("update_freq", 3, ("update_freq=3", "4")),
        ("block_size", 8, ("block_size=8", "16")),
        ("bf16", True, ("bf16=True", "False")),
    ],
)
def test_other_settings_are_refused(trained, trainer, data, option, value, parts):
    given = {"update_freq": 4} | {option: value}
    with refuses(ValueError, *parts, "checkpoint_last.pt"):
        trainer(*words(data, trained("alone"), **given))


def test_another_dictionary_is_refused(trained, trainer, tmp_path):
    other = write_tiny_data(tmp_path / "data", 115)
    lines = (other / "dict.txt").read_text().splitlines()
    (other / "dict.txt").write_text("\n".join([*lines[1:], lines[0]]) + "\n")
    with refuses(ValueError, "dictionary_sha256", "checkpoint_last.pt"):
        trainer(*words(other, trained("alone"), update_freq=4))


def test_other_training_data_are_refused(trained, trainer, data, tmp_path):
    other = tmp_path / "data"
    shutil.copytree(data, other)
    for suffix in ("bin", "idx"):
        shutil.copy(data / f"valid.{suffix}", other / f"train.{suffix}")
    with refuses(ValueError, "train_data_sha256", "checkpoint_last.pt"):
        trainer(*words(other, trained("alone"), update_freq=4))


def test_a_truncated_checkpoint_is_refused(trained, trainer, data, tmp_path):
    whole = (trained("two") / "checkpoint_last.pt").read_bytes()
    (tmp_path / "checkpoint_last.pt").write_bytes(whole[: len(whole) // 2])
    with refuses(ValueError, "checkpoint_last.pt", "damaged", "--save-dir"):
        trainer(*words(data, tmp_path, update_freq=4))


def test_a_checkpoint_of_fairseq_train_is_refused(trained, trainer, data, tmp_path):
    state = torch.load(trained("two") / "checkpoint_last.pt", weights_only=True)
    state["extra_state"] = {"train_iterator": {"epoch": 1}}
    torch.save(state, tmp_path / "checkpoint_last.pt")
    with refuses(ValueError, tmp_path / "checkpoint_last.pt", "--save-dir"):
        trainer(*words(data, tmp_path, update_freq=4))


def test_the_checkpoint_is_exported_and_generates(trained, data, tmp_path):
    last = trained("alone") / "checkpoint_last.pt"
    export_checkpoint(last, tmp_path / "exported")
    model = load(tmp_path / "exported").model
    blocks = TokenBlocks(data / "valid", 32, len(model.embed_tokens.weight))
    loss = tokens = 0
    for numbers in blocks.batches(4, seed=1):
        *batch, count = blocks.batch(numbers)
        inputs, targets = map(torch.from_numpy, batch)
        loss += model(inputs, targets=targets)[0].item()
        tokens += count
    valid = records(trained("alone"), "valid")[-1]["valid_loss"]
    assert loss / tokens / math.log(2) == pytest.approx(valid, rel=1e-5)
    (result,) = TextGenerator.from_checkpoint(last).generate(["word1 word2"], beam=1)
    assert result.text.startswith("word1 word2")


def test_the_checkpoint_scores_as_it_was_validated(trained, data, tmp_path):
    """In windows of the training's length, without being told."""
    scorer = TextScorer.from_checkpoint(trained("alone") / "checkpoint_last.pt")
    lines = data_utils.load_indexed_dataset(str(data / "valid"))
    text = "".join(f"{scorer.words.decode(line.tolist())}\n" for line in lines)
    (tmp_path / "valid.txt").write_text(text)
    found = scorer.score_file(tmp_path / "valid.txt")
    valid = records(trained("alone"), "valid")[-1]["valid_loss"]
    measured = -found.log_prob / found.tokens / math.log(2)
    assert measured == pytest.approx(valid, rel=1e-5)
