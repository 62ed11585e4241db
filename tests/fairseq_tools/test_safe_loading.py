"""A checkpoint with code in it is refused by all that load one, and nothing is run."""

import argparse
import collections
import io

import numpy
import omegaconf
import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.distributed.utils import _TensorPlaceholder

from fairseq_transnormer.checkpoints.safe_loading import (
    CheckpointError,
    read_checkpoint,
)
from tests.tiny_data import write_tiny_data

ARCH = "transnormer_t2_tiny"


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    write_tiny_data(folder, lines=20)
    return folder


@pytest.fixture(scope="module")
def trained(data, tmp_path_factory):
    """The checkpoint of a run of one update."""
    from tests.inference.models import train

    return train(data, tmp_path_factory.mktemp("run"), ARCH, "--max-update", 1)


def refuses(tmp_path, **kinds):
    path = tmp_path / "evaluated.pt"
    torch.save({"model": {}, **kinds}, path)
    with pytest.raises(CheckpointError, match="refused, since .*; allowed: "):
        read_checkpoint(path)


TEXTS_WITH_CODE = (
    "[[a[{code!r}] for a.__class__.__getitem__ in [eval]] for a in [carrier]]",
    "{{carrier[{code!r}] for carrier.__class__.__getitem__ in [eval]}}",
    "{{0: carrier[{code!r}] for carrier.__class__.__getitem__ in [eval]}}",
    "[carrier @ {code!r} for carrier.__class__.__matmul__ in [eval]]",
    'f"""{{{code}}}"""',
    "{code}",
)


def test_texts_that_run_code_are_refused(tmp_path):
    made = tmp_path / "made"
    for text in TEXTS_WITH_CODE:
        for blank in ("", " \t ", "\n", " # text\n", " \\\n", "\f"):
            code = blank + text.format(code=f"__import__('os').mkdir({str(made)!r})")
            refuses(tmp_path, cfg={"model": {"character_filters": code}})
            assert not made.exists()
            # what is in scope where fairseq evaluates: settings, a task, modules
            eval(code, {"carrier": type("Carrier", (), {})()})
            made.rmdir()


MORE_THAN_VALUES = (
    "(lambda: 1)",
    "(a := [1])",
    "[1][0]",
    "f'{1}'",
    "'a'.join",
    "(1, 2).count",
    "(yield)",
    "1 if a else 2",
    "b'getpid()'",
    "'getpid()'",
    "('a', '\\x67etpid()')",
    "['$\\x7bname}']",
    # deeper than ast goes
    "-" * 3000 + "getpid()",
    "-" * 100_000 + "getpid()",
)


def test_texts_that_are_more_than_values_are_refused(tmp_path):
    for text in MORE_THAN_VALUES:
        refuses(tmp_path, args=argparse.Namespace(wer_args=text))


CODE = "__import__('os').getpid()"
CONTAINERS = (
    b"getpid()",
    bytearray(b"getpid()"),
    # eval reads their bytes
    numpy.frombuffer(b"getpid()", dtype=numpy.float64)[0],
    numpy.frombuffer(b"getpid()", dtype=numpy.int64)[0],
    torch.zeros(1),
    slice(1),
    {CODE},
    {CODE: 1},
    {1: CODE},
    {(1, CODE): 1},
    ([(CODE,)],),
    argparse.Namespace(decoder_layers=CODE),
    omegaconf.DictConfig({"model": {"layers": [CODE]}}),
    omegaconf.DictConfig({"model": {"layers": b"getpid()"}}),
    omegaconf.DictConfig({CODE: 1}),
)


@pytest.mark.parametrize("kind", ["cfg", "args"])
def test_values_of_any_container_are_looked_at(kind, tmp_path):
    for value in CONTAINERS:
        refuses(tmp_path, **{kind: {"model": {"decoder_layers": value}}})
        refuses(tmp_path, **{kind: argparse.Namespace(decoder_layers=value)})
        refuses(tmp_path, **{kind: value})


@pytest.mark.parametrize("kind", [collections.OrderedDict, omegaconf.DictConfig])
def test_attributes_in_front_of_settings_are_looked_at(kind, tmp_path):
    """fairseq reads settings as attributes; these are not among the items."""
    settings = kind({"decoder_layers": "[(1, 2)]"})
    settings.__dict__["decoder_layers"] = CODE
    assert settings.decoder_layers == CODE
    refuses(tmp_path, args=settings)
    refuses(tmp_path, cfg={"model": settings})


@pytest.mark.parametrize(
    "cfg", [dict, omegaconf.DictConfig, omegaconf.OmegaConf.create]
)
def test_ordinary_settings_are_loaded(cfg, tmp_path):
    texts = (
        "a/b data.bin x.y.z ../a:b diag*3,norm*3 linearx6-softmaxx6 --opt a.b.c:1234",
        "legacy_ddp 0.9,0.98 (0.9,0.98) https://a.b/c?d=e#f tcp://host:1234 [0.0001]",
        "[(512,10,5)]+[(512,3,2)]*4+[(512,2,2)] en-de,de-en {'main':1.5,'a':-1} 1e-4",
        '{"beam":4,"lenpen":1.0} @@ <s> ??? 2*[1] [*[1],2] True None not,set a<b',
        "{1,2} train,valid1 C:\\data (a) [CLS] ~/a v1.0 16:1 -1 x|y a&b 'lexicon.lst'",
    )
    settings = dict(enumerate(" ".join(texts).split(" ")))
    settings |= {"spaces": "not set or so", "lines": "import os\nx = 1", "empty": ""}
    settings |= {"null": None, "numbers": [1, 1.5, True], "data": "corpus (1)"}
    settings = {str(key): value for key, value in settings.items()}
    path = tmp_path / "ordinary.pt"
    torch.save({"cfg": cfg({"task": settings}), "model": {}}, path)
    assert read_checkpoint(path)["cfg"] == {"task": settings}


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
    allowed = torch.serialization.get_safe_globals()
    torch.serialization.clear_safe_globals()
    try:
        torch.load(trained, weights_only=True)
    finally:
        torch.serialization.add_safe_globals(allowed)


def test_workers_get_the_checkpoint_of_the_first_one(trained):
    """fairseq/distributed/utils.py, _broadcast_object_slow, without its transport."""
    state = checkpoint_utils.load_checkpoint_to_cpu(str(trained))
    sent = io.BytesIO()
    torch.save({"state": state, "tensor": _TensorPlaceholder(3)}, sent)
    sent.seek(0)
    assert torch.load(sent, map_location="cpu")["state"]["cfg"] == state["cfg"]
