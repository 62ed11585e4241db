"""What cannot be exported or loaded is refused in one clear sentence."""

import json
import os
import shutil
import sys
from argparse import Namespace
from functools import partial
from unittest.mock import Mock

import pytest
import torch
from safetensors import SafetensorError

from fairseq_transnormer.checkpoints.pretrained import PretrainedCheckpoint
from fairseq_transnormer.export import ExportError, load_exported
from fairseq_transnormer.export.command_line import main
from fairseq_transnormer.export.manifest import FORMAT
from fairseq_transnormer.checkpoints.export import export_checkpoint
from tests.messages import assert_names, command_refuses, refuses
from tests.models.building import dictionary
from tests.zoo import CAUSAL

from tests.checkpoints.writing import changed_section, write_checkpoint


@pytest.fixture
def exported(zoo):
    """A model, its checkpoint, and its export with a dictionary."""
    return zoo.untrained[CAUSAL[0]]


@pytest.fixture
def copy(exported, tmp_path):
    return shutil.copytree(exported.folder, tmp_path / "copy")


refused = partial(refuses, ExportError, alone=True)


def test_the_files(exported):
    names = sorted(path.name for path in exported.folder.iterdir())
    assert names == [
        *("config.json", "dict.txt", "generation_config.json", "model.safetensors"),
        "tokenizer_config.json",
    ]
    modes = {path.stat().st_mode for path in exported.folder.iterdir()}
    assert len(modes) == 1
    assert load_exported(exported.folder).vocabulary.symbols[4:6] == ["w0", "w1"]


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "dict.txt"])
def test_missing_truncated_and_changed_files(name, copy):
    path = copy / name
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with refused(path):
        load_exported(copy)
    if name != "config.json":
        path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        with refused(path, "changed", "SHA-256"):
            load_exported(copy)
    path.unlink()
    with refused(path, "missing"):
        load_exported(copy)


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        ({"format_version": 3}, ["config.json", "format_version=3", 1, 2]),
        ({"rotary": 1}, ["config.json", "rotary"]),
        ({"kind": "both"}, ["kind='both'", "causal", "bidirectional"]),
        ({"vocab_size": "44"}, ["vocab_size='44'", "int"]),
        ({"vocab_size": 45}, ["embed_tokens.weight", (44, 32), (45, 32)]),
        ({"vocab_size": 0}, ["vocab_size=0", "at least 1"]),
        ({"vocab_size": -1}, ["vocab_size=-1", "at least 1"]),
        ({"vocab_size": True}, ["vocab_size=True", "int"]),
        ({"start_token": 44}, ["start_token=44", "0 to 43"]),
        ({"special_tokens": {"pad": 1}}, ["special_tokens", "bos", "eos", "unk"]),
        ({"files": {"../x": ""}}, ["files=['../x']", "model.safetensors"]),
        ({"config": {"rotary": 1}}, ["config.rotary"]),
        ({"config": {"embed_dim": 33}}, ["embed_tokens.weight", (44, 32)]),
        ({"config": {"num_heads": 3}}, ["num_heads=3", "divisors"]),
        ({"config": {"embed_dim": "32"}}, ["config.embed_dim='32'", "int"]),
        ({"config": {"block_size": 0}}, ["config.block_size=0", "at least 1"]),
        (
            {"config": {"diag_activation": "x"}},
            ["config.diag_activation='x'", "softmax", "relu"],
        ),
        (
            {"config": {"attention_types": "diag"}},
            ["model.safetensors", "stack.layers.1"],
        ),
    ],
)
def test_config_that_does_not_do(change, parts, copy):
    with changed_section(copy) as content:
        for name, value in change.items():
            if name == "config":
                value = content["config"] | value
            content[name] = value
    with refused(*parts):
        load_exported(copy)


def test_special_tokens_that_are_none(copy):
    for token in ("1", None, 1.0, True, [1], -1, 44):
        with changed_section(copy) as content:
            content["special_tokens"]["unk"] = token
        with refused(f"special_tokens.unk={token!r}", "0 to 43"):
            load_exported(copy)


@pytest.mark.parametrize("name", ["kind", "files"])
def test_fields_that_are_not_there(name, copy):
    """... as in a folder that was not finished."""
    with changed_section(copy) as content:
        del content[name]
    with refused(copy / "config.json", "lacks", name):
        load_exported(copy)


def test_a_folder_of_other_programs(copy):
    (copy / "config.json").write_text(json.dumps({"model_type": "gpt2"}))
    with refused(copy / "config.json", "export", repr(FORMAT)):
        load_exported(copy)


def test_an_existing_folder_is_kept(exported, tmp_path):
    (tmp_path / "mine").mkdir()
    with refused(tmp_path / "mine", "exists"):
        export_checkpoint(exported.checkpoint, tmp_path / "mine")
    assert list(tmp_path.rglob("*")) == [tmp_path / "mine"]


def test_another_kind_of_model(tmp_path):
    write_checkpoint(tmp_path / "model.pt", "transnormer_t2_tiny")
    state = torch.load(tmp_path / "model.pt", weights_only=True)
    state["cfg"]["model"]["_name"] = "transformer_lm"
    torch.save(state, tmp_path / "model.pt")
    with refused(tmp_path / "model.pt", "'transformer_lm'", "attention_types"):
        export_checkpoint(tmp_path / "model.pt", tmp_path / "out")


@pytest.mark.parametrize(
    ("place", "error"),
    [
        ("shutil.copyfile", OSError(28, "No space left on device")),
        ("safetensors.torch.save_file", SafetensorError("No space left on device")),
    ],
)
def test_a_failure_leaves_nothing_behind(place, error, exported, tmp_path, monkeypatch):
    monkeypatch.setattr(place, Mock(side_effect=error))
    with refused(tmp_path / "out", "No space left"):
        export_checkpoint(exported.checkpoint, tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_a_killed_export_is_made_again(exported, tmp_path):
    """... and what it left behind is gone."""
    (tmp_path / ".out.partial").mkdir()
    (tmp_path / ".out.partial" / "old.safetensors").write_bytes(b"")
    export_checkpoint(exported.checkpoint, tmp_path / "out")
    load_exported(tmp_path / "out")
    assert [each.name for each in tmp_path.iterdir()] == ["out"]
    assert not (tmp_path / "out" / "old.safetensors").exists()


def test_malicious_and_damaged_checkpoints(exported, tmp_path):
    class Payload:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "made"),)

    torch.save({"cfg": Payload(), "model": {}}, tmp_path / "malicious.pt")
    (tmp_path / "cut.pt").write_bytes(exported.checkpoint.read_bytes()[:999])
    torch.save({"weight": torch.zeros(1)}, tmp_path / "weights.pt")
    for name, parts in (
        ("malicious", ["refused", "mkdir"]),
        ("cut", ["fairseq checkpoint", "damaged"]),
        ("weights", ["checkpoint", "fairseq-train"]),
        ("none", ["no such", "file"]),
    ):
        path = tmp_path / f"{name}.pt"
        with refused(path, *parts):
            export_checkpoint(path, tmp_path / "out")
    assert not (tmp_path / "made").exists() and not (tmp_path / "out").exists()


def test_fairseqs_own_encoder_is_named(tmp_path):
    """RoBERTa, as fairseq-train writes it: configured by argparse."""
    path, task = tmp_path / "roberta.pt", {"_name": "masked_lm", "data": "/gone"}
    cfg = {"model": Namespace(arch="roberta_base"), "task": task}
    torch.save({"cfg": cfg, "model": {"weight": torch.zeros(1)}}, path)
    with refused(path, "roberta_base", "allowed"):
        export_checkpoint(path, tmp_path / "out")
    with refuses(ValueError, path, "roberta_base", "allowed"):
        PretrainedCheckpoint.read(path)


def test_dictionary_of_other_data(exported, tmp_path):
    dictionary(5).save(str(tmp_path / "dict.txt"))
    arguments = exported.checkpoint, tmp_path / "out"
    with refused(tmp_path / "dict.txt", "9 entries", 44, "--data"):
        export_checkpoint(*arguments, tmp_path)
    with refused(tmp_path / "none", "dict.txt"):
        export_checkpoint(*arguments, tmp_path / "none")


def test_a_folder_of_data_that_is_gone_is_a_note(tmp_path, capsys):
    write_checkpoint(tmp_path / "model.pt", "roberta_transnormer_t2_tiny", "/gone")
    arguments = [str(tmp_path / "model.pt"), "--dest", str(tmp_path / "out")]
    assert main(arguments) == 0
    assert_names(capsys.readouterr().err, "note", "dict.txt", "/gone")
    exported = load_exported(tmp_path / "out")
    with refused("roberta_transnormer_t2_tiny", "bidirectional", "causal"):
        exported.continue_text("a word")
    command_refuses(main, arguments, capsys, tmp_path / "out", "exists")


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("top_k", (0, -1, 1.5, "3", True, 10**7)),
        ("top_p", (0, 1.5, -1, float("nan"), "0.5", True)),
        ("temperature", (0, -1, float("inf"), float("nan"), 1e-45, 1e300, "1", None)),
        ("max_new_tokens", (0, -1, 2**40, 1.0, "3", None)),
        ("seed", (-1, 2**64, 1.5, "1", True)),
    ],
)
def test_settings(name, values, exported):
    loaded = load_exported(exported.folder)
    for value in values:
        with refuses(ExportError, f"{name}={value!r}", "allowed"):
            loaded.continue_text("w1", **{name: value})


def test_a_tiny_top_p_leaves_the_likeliest_token(exported):
    loaded = load_exported(exported.folder)
    greedy = loaded.continue_text("w1", max_new_tokens=5)
    assert loaded.continue_text("w1", max_new_tokens=5, top_p=1e-300) == greedy


def test_texts_and_tokens_that_are_none(exported):
    loaded = load_exported(exported.folder)
    for text in ("w1 \udcff", "\ud800", 5, None):
        with refuses(ExportError, "text", "allowed"):
            loaded.continue_text(text)
    for token in (-1, 44, 2**40):
        with refuses(ExportError, token, "0 to 43"):
            loaded.continue_tokens(torch.tensor([[2, token]]))


def test_without_safetensors(exported, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "safetensors.torch", None)
    monkeypatch.setitem(sys.modules, "safetensors", None)
    missing = ("safetensors", "not installed", "fairseq-transnormer[export]")
    with refused(*missing):
        load_exported(exported.folder)
    with refused(*missing):
        export_checkpoint(exported.checkpoint, tmp_path / "out")
