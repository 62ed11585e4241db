"""Folders that are no honest export are refused before they take memory or time."""

import hashlib
import json
import shutil
import struct
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from fairseq_transnormer.export import ExportError, load_exported
from fairseq_transnormer.checkpoints.export import export_checkpoint
from tests.messages import refuses
from tests.training.test_damaged_files import flip
from tests.zoo import CAUSAL, ENCODERS, WORDS

from tests.checkpoints.writing import changed_section

WEIGHTS = "model.safetensors"
# more than the interpreter and torch have taken by then
MEMORY, SECONDS = 1 << 32, 5


@pytest.fixture
def copy(zoo, tmp_path):
    return shutil.copytree(zoo.untrained[CAUSAL[0]].folder, tmp_path / "copy")


def change(folder, **values):
    """Values of config.json; "config.NAME" of the model's configuration."""
    with changed_section(folder) as content:
        for name, value in values.items():
            if name in content:
                content[name] = value
            else:
                content["config"][name] = value


def section(folder):
    return json.loads((folder / "config.json").read_text())["fairseq_transnormer"]


def replace(folder, name, content: bytes):
    """A file and its SHA-256 in config.json."""
    (folder / name).write_bytes(content)
    files = section(folder)["files"]
    change(folder, files=files | {name: hashlib.sha256(content).hexdigest()})


@pytest.fixture
def bounded():
    """Fails a load that takes long; one that takes memory ends the allocation."""
    import resource

    limits = resource.getrlimit(resource.RLIMIT_AS)
    used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, limits[1]))
    start = time.process_time()
    yield
    resource.setrlimit(resource.RLIMIT_AS, limits)
    assert time.process_time() - start < SECONDS


ABSURD = [
    ("attention_types", "diag*1000000000"),
    ("attention_types", "diag*" + "9" * 5000),
    ("attention_types", ",".join(["diag*999"] * 99)),
    ("attention_types", "diag*900"),
    *(
        (name, value)
        for name in ("embed_dim", "vocab_size", "ffn_dim")
        for value in (10**9, 10**20, 2**31, 2**63)
    ),
    ("num_heads", 10**9),
    ("block_size", 10**20),
    ("norm_eps", float("inf")),
    ("norm_eps", float("nan")),
    ("dropout", -float("inf")),
    ("kind", []),
    ("special_tokens", 1),
]


@pytest.mark.parametrize("arch", [CAUSAL[0], ENCODERS[0]])
def test_absurd_values(arch, zoo, tmp_path, bounded):
    copy = shutil.copytree(zoo.untrained[arch].folder, tmp_path / "copy")
    whole = (copy / "config.json").read_text()
    positions = [("max_positions", 10**9)] if arch in ENCODERS else []
    for name, value in [*ABSURD, *positions]:
        (copy / "config.json").write_text(whole)
        change(copy, **{name: value})
        # the file of weights may be what is named, since it is of the other size
        with refuses(ExportError, "allowed"):
            load_exported(copy)


def test_config_that_is_none(copy, bounded):
    path = copy / "config.json"
    texts = ["[" * 100_000, '{"a":' * 100_000, "", "[]", "1", "\xff", '"' + "a" * 10**7]
    for text in texts:
        path.write_text(text, encoding="latin-1")
        with refuses(ExportError, path):
            load_exported(copy)


@pytest.mark.parametrize(
    "kind", [torch.int32, torch.bool, torch.uint8, torch.inf, torch.nan], ids=str
)
def test_weights_that_are_no_numbers(kind, copy):
    weights = load_file(copy / WEIGHTS)
    name = "model.embed_tokens.weight"
    if isinstance(kind, float):
        weights[name][5, 5] = kind
    else:
        weights[name] = weights[name].to(kind)
    save_file(weights, copy / WEIGHTS)
    replace(copy, WEIGHTS, (copy / WEIGHTS).read_bytes())
    with refuses(ExportError, name, *(["NaN"] if isinstance(kind, float) else [kind])):
        load_exported(copy)


def header(content: object, data: bytes = b"") -> bytes:
    text = json.dumps(content).encode()
    return struct.pack("<Q", len(text)) + text + data


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0" * 8,
        b"\xff" * 64,
        struct.pack("<Q", 2**62),
        header({}),
        header([]),
        header({"a": {"dtype": "F32", "shape": [10**9], "data_offsets": [0, 4]}}),
        header({"a": {"dtype": "F8", "shape": [1], "data_offsets": [0, 1]}}, b"a"),
        header({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4 * 10**9]}}),
        header({"a": 1}),
    ],
    ids=range(10),
)
def test_weights_that_are_no_safetensors(content, copy, bounded):
    replace(copy, WEIGHTS, content)
    with refuses(ExportError, copy / WEIGHTS):
        load_exported(copy)


@pytest.mark.parametrize("words", [0, WORDS - 5, WORDS - 3])
def test_a_dictionary_of_another_size(words, copy):
    lines = "".join(f"word{i} 1\n" for i in range(words))
    replace(copy, "dict.txt", lines.encode())
    with refuses(ExportError, copy / "dict.txt", words + 4, WORDS, "vocab_size"):
        load_exported(copy)


def test_a_dictionary_that_is_none(copy):
    lines = (copy / "dict.txt").read_bytes().splitlines(keepends=True)
    for line in (b"w0 1", b"<pad> 1", b"w one", b"w", b"\xe9 1", b"w \xc2\xb2"):
        replace(copy, "dict.txt", b"".join([*lines[:-1], line + b"\n"]))
        with refuses(ExportError, copy / "dict.txt", "allowed"):
            load_exported(copy)


@pytest.mark.parametrize(
    ("name", "value", "parts"),
    [
        ("eos", "pad", ["pad", "eos"]),
        ("unk", "bos", ["bos", "unk"]),
        ("pad", 7, ["special_tokens.pad=7", "w3"]),
    ],
)
def test_special_tokens_that_are_others(name, value, parts, copy):
    special = section(copy)["special_tokens"]
    change(copy, special_tokens=special | {name: special.get(value, value)})
    with refuses(ExportError, "special_tokens", *parts):
        load_exported(copy)


def test_damaged_weights_are_not_exported(zoo, tmp_path):
    checkpoint = zoo.untrained[CAUSAL[0]].checkpoint
    path = Path(shutil.copy(checkpoint, tmp_path / "model.pt"))
    flip(path)
    with refuses(ExportError, path, "damaged", "CRC-32"):
        export_checkpoint(path, tmp_path / "out")
    state = torch.load(checkpoint, weights_only=True)
    name = next(n for n in state["model"] if n.endswith("embed_tokens.weight"))
    state["model"][name][5, 5] = torch.nan
    torch.save(state, path)
    with refuses(ExportError, "embed_tokens.weight", "NaN"):
        export_checkpoint(path, tmp_path / "out")
    assert [each.name for each in tmp_path.iterdir()] == ["model.pt"]
