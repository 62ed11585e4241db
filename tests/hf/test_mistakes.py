"""What cannot be loaded is refused in one line that names it."""

import importlib
import json
import os
import shutil
import subprocess
import sys
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
from tests.commands import command
from tests.messages import assert_names, command_refuses, refuses
from tests.zoo import CAUSAL, ENCODERS

from .loading import causal, classifier, config_of, masked, tokenizer_of

refused = partial(refuses, CheckpointError, alone=True)
WEIGHTS = "model.safetensors"


@pytest.fixture
def copy(exports, tmp_path):
    return shutil.copytree(exports[CAUSAL[0]].folder, tmp_path / "copy")


@pytest.mark.parametrize("package", ["transformers", "safetensors"])
def test_without_the_extra(package, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, "fairseq_transnormer.hf")
    parts = package, "not installed", "fairseq-transnormer[hf]"
    with refuses(ModuleNotFoundError, *parts, alone=True):
        importlib.import_module("fairseq_transnormer.hf")


@pytest.mark.slow
def test_no_fairseq_is_needed(copy):
    """Nor does a folder's code run: there is none."""
    program = f"""
import sys
sys.modules["fairseq"] = None
import fairseq_transnormer.hf
import transformers
model = transformers.AutoModelForCausalLM.from_pretrained({str(copy)!r})
tokenizer = transformers.AutoTokenizer.from_pretrained({str(copy)!r})
found = model.generate(**tokenizer("w1 w2", return_tensors="pt"), max_new_tokens=3)
assert len(found[0]) > 3 and "omegaconf" not in sys.modules
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert not list(copy.glob("*.py"))


@pytest.mark.parametrize("name", [WEIGHTS, "dict.txt"])
def test_files_that_are_cut_short(name, copy, hf):
    path = copy / name
    loaders = [causal, hf.TransNormerForCausalLM.from_pretrained, tokenizer_of]
    # a tokenizer does not read the weights
    for loads in loaders[: 2 if name == WEIGHTS else 3]:
        whole = path.read_bytes()
        path.write_bytes(whole[:-3])
        with refused(path, "truncated"):
            loads(copy)
        path.unlink()
        with refused(path, "missing"):
            loads(copy)
        path.write_bytes(whole)


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
    left = 99
    new.save_pretrained(folder)
    names = {"config.json", "generation_config.json", "dict.txt", WEIGHTS, "mine.txt"}
    assert {each.name for each in folder.iterdir()} == names | {"tokenizer_config.json"}


def test_models_of_another_kind(exports):
    for loads, name, kind, allowed in (
        (masked, CAUSAL[0], "causal", "bidirectional"),
        (causal, ENCODERS[0], "bidirectional", "causal"),
        (causal, "classifier", "classifier", "causal"),
        (classifier, CAUSAL[0], "causal", "classifier"),
    ):
        with refused(exports[name].folder, f"kind={kind!r}", allowed):
            loads(exports[name].folder)


@pytest.mark.parametrize(
    ("name", "value", "parts"),
    [
        ("block_size", 0, ["block_size=0", "at least 1"]),
        ("ffn_dim", 41, ["gate_proj.weight", (85, 32), (41, 32)]),
    ],
)
def test_configurations_that_do_not_do(name, value, parts, copy):
    with changed_section(copy) as content:
        content["config"][name] = value
    with refused(*parts):
        causal(copy)


def test_weights_of_another_model(copy):
    tensors = load_file(copy / WEIGHTS)
    tensors["model.other"] = tensors.pop("model.embed_tokens.weight").clone()
    save_file(tensors, copy / WEIGHTS, {"format": "pt"})
    with changed_section(copy) as content:
        content["files"][WEIGHTS] = file_sha256(copy / WEIGHTS)
    with refused("lacks", "model.embed_tokens.weight"):
        causal(copy)


@pytest.mark.parametrize("kind", [torch.nan, torch.int64])
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


def test_folders_that_are_no_export(copy, hf, tmp_path):
    """Also one that is not there, whose name transformers takes for a repository's."""
    empty = tmp_path / "empty"
    empty.mkdir()
    for folder in (empty, tmp_path / "none"):
        with refused(folder):
            hf.TransNormerForCausalLM.from_pretrained(folder)
        with pytest.raises((OSError, ValueError)):
            causal(folder)
    (copy / "config.json").write_text(json.dumps({"model_type": "gpt2"}))
    with refused(copy / "config.json", "fairseq_transnormer"):
        hf.TransNormerForCausalLM.from_pretrained(copy)


def test_the_flat_format(copy, hf):
    """Version 1 had no room for transformers; export the checkpoint again."""
    flat = json.loads((copy / "config.json").read_text())["fairseq_transnormer"]
    flat |= {"format": "fairseq_transnormer", "format_version": 1}
    (copy / "config.json").write_text(json.dumps(flat))
    with refused(copy / "config.json", "format_version=1", 2, "export"):
        hf.TransNormerForCausalLM.from_pretrained(copy)
    with pytest.raises(ValueError, match="model_type"):
        config_of(copy)


def test_a_head_that_is_not_there(exports, tmp_path, capsys):
    checkpoint = exports["classifier"].checkpoint
    state = torch.load(checkpoint, weights_only=True)
    state["cfg"]["task"]["classification_head_name"] = "other"
    torch.save(state, tmp_path / "x.pt")
    arguments = [tmp_path / "x.pt", "--dest", tmp_path / "out"]
    command_refuses(command("export"), arguments, capsys, tmp_path / "x.pt", "'other'")
    state["cfg"]["task"]["classification_head_name"] = "sentence_classification_head"
    state["cfg"]["model"]["pooler_activation_fn"] = "swish"
    torch.save(state, tmp_path / "x.pt")
    command_refuses(
        command("export"), arguments, capsys, "activation='swish'", "tanh", "gelu"
    )
    data = tmp_path / "data"
    arguments += ["--data", data]
    command_refuses(command("export"), arguments, capsys, data, "dict.txt")
    assert not (tmp_path / "out").exists()


def test_labels_that_are_not_known(exports, tmp_path, capsys):
    """The folder of the fine-tuning is gone: a note, and numbers for labels."""
    state = torch.load(exports["classifier"].checkpoint, weights_only=True)
    state["cfg"]["task"]["data"] = str(tmp_path / "gone")
    torch.save(state, tmp_path / "x.pt")
    assert (
        command("export")([str(tmp_path / "x.pt"), "--dest", str(tmp_path / "out")])
        == 0
    )
    assert_names(capsys.readouterr().err, "note", "labels", tmp_path / "gone")
    model = classifier(tmp_path / "out")
    assert [*model.config.id2label.values()] == ["LABEL_0", "LABEL_1", "LABEL_2"]
    assert load(tmp_path / "out").manifest.labels == []
