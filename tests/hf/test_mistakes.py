"""What cannot be loaded is refused in one line that names it."""

import json
import os
import shutil
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from fairseq_transnormer.checkpoints.load import load
from fairseq_transnormer.checkpoints.safe_loading import CheckpointError
from fairseq_transnormer.data.fingerprints import file_sha256
from tests.checkpoints.writing import changed_section
from tests.messages import refuses
from tests.zoo import CAUSAL, ENCODERS

from .loading import causal, tokenizer_of

refused = partial(refuses, CheckpointError, alone=True)
WEIGHTS = "model.safetensors"


@pytest.fixture
def copy(exports, tmp_path):
    return shutil.copytree(exports[CAUSAL[0]].folder, tmp_path / "copy")


def test_a_folder_that_was_not_finished(copy):
    """As a save_pretrained leaves it that is killed before its end."""
    with changed_section(copy) as content:
        del content["files"]
    for loads in (causal, tokenizer_of):
        with refused(copy / "config.json", "files=None"):
            loads(copy)


@pytest.mark.parametrize("kind", [OSError, SafetensorError])
def test_a_save_that_fails(kind, words, tmp_path, monkeypatch):
    """... over an older one, which stays."""
    words.model.save_pretrained(tmp_path)
    before = {each: each.read_bytes() for each in tmp_path.iterdir()}

    def full(tensors, path, *args, **kwargs):
        Path(path).write_bytes(b"half")
        raise kind("No space left on device")

    monkeypatch.setattr("transformers.modeling_utils.safe_save_file", full)
    with refused(tmp_path, "No space left"):
        words.model.save_pretrained(tmp_path)
    assert {each: each.read_bytes() for each in tmp_path.iterdir()} == before


class Killed(BaseException):
    """Nothing is cleaned up after it."""


@pytest.mark.parametrize("size", ["10GB", "100KB"])
def test_a_save_that_is_killed(size, exports, tmp_path, monkeypatch):
    """... at any step: over an older one, whole; the next save leaves no litter."""
    folder, steps, others = tmp_path / "out", 0, []
    for name in CAUSAL:
        others.append(causal(exports[name].folder))
    old, new = others
    tokenizer = tokenizer_of(exports[CAUSAL[0]].folder)
    replace, unlink = os.replace, Path.unlink

    def step(call):
        def counted(*args, **kwargs):
            nonlocal left
            left -= 1
            if left < 0:
                raise Killed
            return call(*args, **kwargs)

        return counted

    left = 0
    while left <= 0:
        shutil.rmtree(folder, ignore_errors=True)
        old.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        (folder / "mine.txt").write_text("")
        with monkeypatch.context() as patched:
            patched.setattr(os, "replace", step(replace))
            patched.setattr(Path, "replace", step(replace))
            patched.setattr(Path, "unlink", step(unlink))
            patched.setattr(shutil, "rmtree", lambda *args, **kwargs: None)
            left = steps
            with suppress(Killed):
                new.save_pretrained(folder, max_shard_size=size)
        found = causal(folder)
        tokenizer_of(folder)
        (expected,) = (e for e in others if e.config.manifest == found.config.manifest)
        for key, tensor in expected.state_dict().items():
            assert torch.equal(found.state_dict()[key], tensor)
        steps += 1 if size == "10GB" else 3
    assert expected is new and steps > 3
    # though a reader completes it first
    with monkeypatch.context() as patched:
        patched.setattr(
            Path, "replace", lambda *to: (patched.undo(), load(folder), replace(*to))
        )
        new.save_pretrained(folder)
    names = {"config.json", "generation_config.json", "dict.txt", WEIGHTS, "mine.txt"}
    assert {each.name for each in folder.iterdir()} == names | {"tokenizer_config.json"}


@pytest.mark.parametrize(
    "kind", [torch.nan, torch.inf, torch.int64, torch.bool, torch.float8_e4m3fn]
)
def test_weights_that_are_no_numbers(kind, copy):
    """... though their SHA-256 is that of config.json."""
    tensors, name = load_file(copy / WEIGHTS), "model.embed_tokens.weight"
    if isinstance(kind, float):
        tensors[name][3, 3] = kind
    else:
        tensors[name] = tensors[name].to(kind)
    save_file(tensors, copy / WEIGHTS, {"format": "pt"})
    with changed_section(copy) as content:
        content["files"][WEIGHTS] = file_sha256(copy / WEIGHTS)
    for loads in (causal, load):
        with refused(name):
            loads(copy)


def test_a_tokenizer_that_does_not_fit(exports, copy, tmp_path):
    """Of another export, in the folder of this one, and of a folder without any."""
    other = tokenizer_of(exports[ENCODERS[0]].folder)
    config = json.loads((copy / "tokenizer_config.json").read_text())
    (copy / "tokenizer_config.json").write_text(
        json.dumps(config | {"vocab_size": other.vocab_size})
    )
    with refused(copy / "dict.txt", 44, other.vocab_size):
        tokenizer_of(copy)
    (copy / "dict.txt").unlink()
    with changed_section(copy) as content:
        del content["files"]["dict.txt"]
    with refused(copy, "no dict.txt", "--data"):
        tokenizer_of(copy)
    model = causal(copy)
    with refuses(ValueError, "input_ids", 44, "0 to 43", alone=True):
        model(**other("w1 <mask>", return_tensors="pt"))
