"""A checkpoint with code in it is refused by all that load one, and nothing is run."""

import argparse
import io
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy
import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.distributed.utils import _TensorPlaceholder

from fairseq_transnormer.analysis.trained_models import load_trained_model
from fairseq_transnormer.generation import GenerationError, TextGenerator
from fairseq_transnormer.last_checkpoint import check_last_checkpoint
from fairseq_transnormer.models import TransNormerLanguageModel
from fairseq_transnormer.safe_loading import CheckpointError, read_checkpoint
from tests.tiny_data import write_tiny_data

from .conftest import training_arguments

ARCH = "transnormer_t2_tiny"
WAYS_TO_SAVE = {
    "zip": {},
    "older torch": {"_use_new_zipfile_serialization": False},
}


class Payload:
    """Makes a file when it is unpickled."""

    def __init__(self, target: Path):
        self.target = target

    def __reduce__(self):
        return os.mkdir, (str(self.target),)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    write_tiny_data(folder, lines=20)
    return folder


@pytest.fixture(scope="module")
def trained(data, tmp_path_factory):
    """The checkpoint of a run of one update."""
    from tests.generation.models import train

    return train(data, tmp_path_factory.mktemp("run"), ARCH, "--max-update", 1)


@pytest.fixture(params=WAYS_TO_SAVE)
def malicious(request, trained, tmp_path):
    """A good checkpoint but for its payload; and what that would make."""
    state, made = torch.load(trained, weights_only=True), tmp_path / "made"
    state["extra_state"]["best"] = Payload(made)
    path = tmp_path / "checkpoint_last.pt"
    torch.save(state, path, **WAYS_TO_SAVE[request.param])
    return path, made


def test_the_payload_works(malicious):
    path, made = malicious
    torch.load(path, weights_only=False)
    assert made.is_dir()


LOADERS = {
    "ours": lambda path, data: read_checkpoint(path),
    "ours, without the tensors": lambda path, data: read_checkpoint(path, mmap=True),
    "fairseq's": lambda path, data: checkpoint_utils.load_checkpoint_to_cpu(str(path)),
    "generation": lambda path, data: TextGenerator.from_checkpoint(path, data),
    "analyses": load_trained_model,
    "going on": lambda path, data: check_last_checkpoint(ARCH, path.parent),
    "from_pretrained": lambda path, data: TransNormerLanguageModel.from_pretrained(
        str(path.parent), path.name, str(data)
    ),
}


@pytest.mark.parametrize("loader", LOADERS)
def test_loaders_refuse_it(loader, malicious, data):
    path, made = malicious
    with pytest.raises((CheckpointError, GenerationError)) as error:
        LOADERS[loader](path, data)
    assert f"{path}: refused, since it asks for " in str(error.value)
    assert "mkdir" in str(error.value) and "weights_only=False" not in str(error.value)
    assert not made.exists()


@pytest.mark.parametrize("malicious", ["zip"], indirect=True)
@pytest.mark.parametrize("command", ["train", "validate", "eval_lm"])
def test_fairseqs_commands_refuse_it(command, malicious, data, fairseq_tool):
    path, made = malicious
    arguments = ["--path", path, "--task", "language_modeling", "--batch-size", 2]
    if command == "train":
        arguments = training_arguments(ARCH, path.parent, max_update=2)
    with pytest.raises(CheckpointError, match="refused, since it asks for .*mkdir"):
        fairseq_tool(command, data, "--cpu", *arguments)
    assert not made.exists()


def test_a_plain_pickle_is_refused(tmp_path):
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        path, made = tmp_path / f"{protocol}.pt", tmp_path / f"made{protocol}"
        path.write_bytes(pickle.dumps({"model": Payload(made)}, protocol))
        with pytest.raises(CheckpointError, match="refused|not a fairseq checkpoint"):
            read_checkpoint(path)
        assert not made.exists()


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        ("cfg", "conv_feature_layers", "[(512, 10, 5)] * 2 + [print('called')]"),
        ("cfg", "conv_feature_layers", " (lambda: print)() "),
        ("cfg", "conv_feature_layers", "print${common.brackets}"),
        ("args", "character_filters", "__import__('os').getpid()"),
    ],
)
def test_settings_that_call_are_refused(kind, name, value, tmp_path):
    """fairseq/models/transformer_lm.py: ``eval(args.character_filters)``."""
    path = tmp_path / "evaluated.pt"
    values = argparse.Namespace(**{name: value})
    if kind == "cfg":
        values = {"model": vars(values), "common": {"brackets": "('called')"}}
    torch.save({kind: values, "model": {}}, path)
    with pytest.raises(CheckpointError, match=f"{name}=.*is no plain value"):
        read_checkpoint(path)


def test_what_fairseq_saves_is_loaded(trained, tmp_path):
    state = torch.load(trained, weights_only=True)
    state["args"] = argparse.Namespace(
        adam_betas="(0.9, 0.98)",
        conv_feature_layers="[(512, 10, 5)] + [(512, 3, 2)] * 4",
        data="corpus (1)",
    )
    # what a task may call its best score
    state["extra_state"]["best"] = round(numpy.float64(87.52), 1)
    path = tmp_path / "checkpoint.pt"
    torch.save(state, path)
    found = read_checkpoint(path)
    assert found["args"] == state["args"] and found["extra_state"]["best"] == 87.5
    for name, weight in state["model"].items():
        assert torch.equal(found["model"][name], weight)


def test_our_own_checkpoints_hold_tensors_and_plain_containers(trained):
    """Anyone can load them safely, without this package and without fairseq."""
    program = f"import torch; torch.load({str(trained)!r}, weights_only=True)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True)
    assert done.returncode == 0, done.stderr


def test_workers_get_the_checkpoint_of_the_first_one(trained):
    """fairseq/distributed/utils.py, _broadcast_object_slow, without its transport."""
    state = checkpoint_utils.load_checkpoint_to_cpu(str(trained))
    sent = io.BytesIO()
    torch.save({"state": state, "tensor": _TensorPlaceholder(3)}, sent)
    sent.seek(0)
    assert torch.load(sent, map_location="cpu")["state"]["cfg"] == state["cfg"]
