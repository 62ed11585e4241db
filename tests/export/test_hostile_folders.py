"""Folders that are no honest export are refused before they take memory or time."""

import hashlib
import json
import shutil
import struct
import time

import pytest
import torch
from safetensors.torch import load_file, save_file

from fairseq_transnormer.export import ExportError, load_exported
from fairseq_transnormer.export.writing import export_checkpoint
from tests.fairseq_patches.test_damaged_files import flip
from tests.messages import refuses
from tests.models.building import dictionary

from .checkpoints import changed_section, write_checkpoint

WEIGHTS = "model.safetensors"
# more than the interpreter and torch have taken by then
MEMORY, SECONDS = 1 << 32, 5


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    root = tmp_path_factory.mktemp("good")
    dictionary().save(str(root / "dict.txt"))
    for arch in ("transnormer_t1_tiny", "roberta_transnormer_t1_tiny"):
        write_checkpoint(root / f"{arch}.pt", arch)
        export_checkpoint(root / f"{arch}.pt", root / arch)
    return root


@pytest.fixture(params=["transnormer_t1_tiny", "roberta_transnormer_t1_tiny"])
def copy(request, exported, tmp_path):
    return shutil.copytree(exported / request.param, tmp_path / "copy")


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


@pytest.mark.parametrize(
    ("name", "value"),
    [
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
    ],
    ids=lambda value: str(value)[:20],
)
def test_absurd_values(name, value, copy, bounded):
    change(copy, **{name: value})
    # the file of weights may be what is named, since it is of the other size
    with refuses(ExportError, "allowed"):
        load_exported(copy)


def test_absurd_positions(exported, tmp_path, bounded):
    copy = shutil.copytree(exported / "roberta_transnormer_t1_tiny", tmp_path / "copy")
    change(copy, max_positions=10**9)
    with refuses(ExportError, WEIGHTS, "allowed"):
        load_exported(copy)


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"a":' * 100_000, "", "[]", "1", "\xff", '"' + "a" * 10**7]
)
def test_config_that_is_none(text, copy, bounded):
    (copy / "config.json").write_text(text, encoding="latin-1")
    with refuses(ExportError, copy / "config.json"):
        load_exported(copy)


@pytest.mark.parametrize("dtype", [torch.int32, torch.bool, torch.uint8, torch.int64])
def test_weights_that_are_no_floats(dtype, copy):
    weights = load_file(copy / WEIGHTS)
    name = "model.embed_tokens.weight"
    weights[name] = weights[name].to(dtype)
    save_file(weights, copy / WEIGHTS)
    replace(copy, WEIGHTS, (copy / WEIGHTS).read_bytes())
    with refuses(ExportError, name, dtype, "floats"):
        load_exported(copy)


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_weights_that_are_no_numbers(number, copy):
    weights = load_file(copy / WEIGHTS)
    name = sorted(weights)[-1]
    weights[name].view(-1)[-1] = number
    save_file(weights, copy / WEIGHTS)
    replace(copy, WEIGHTS, (copy / WEIGHTS).read_bytes())
    with refuses(ExportError, copy / WEIGHTS, name, "NaN"):
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


@pytest.mark.parametrize("words", [0, 24, 27])
def test_a_dictionary_of_another_size(words, copy):
    lines = "".join(f"word{i} 1\n" for i in range(words))
    replace(copy, "dict.txt", lines.encode())
    with refuses(ExportError, copy / "dict.txt", words + 4, 30, "vocab_size"):
        load_exported(copy)


@pytest.mark.parametrize(
    "line", [b"w0 1\n", b"<pad> 1\n", b"w one\n", b"w\n", b"\xe9 1\n", b"w \xc2\xb2\n"]
)
def test_a_dictionary_that_is_none(line, copy):
    lines = (copy / "dict.txt").read_bytes().splitlines(keepends=True)
    replace(copy, "dict.txt", b"".join([*lines[:-1], line]))
    with refuses(ExportError, copy / "dict.txt", "allowed"):
        load_exported(copy)


@pytest.mark.parametrize(
    ("first", "second"), [("pad", "eos"), ("bos", "unk"), ("bos", "pad")]
)
def test_special_tokens_that_coincide(first, second, copy):
    special = section(copy)["special_tokens"]
    change(copy, special_tokens=special | {second: special[first]})
    with refuses(ExportError, "special_tokens", first, second, special[first]):
        load_exported(copy)


def test_special_tokens_that_are_others_in_the_dictionary(exported, tmp_path):
    copy = shutil.copytree(exported / "transnormer_t1_tiny", tmp_path / "copy")
    special = section(copy)["special_tokens"]
    change(copy, special_tokens=special | {"pad": 7})
    with refuses(ExportError, "special_tokens.pad=7", "w3", 1):
        load_exported(copy)


def test_a_flipped_bit_is_not_exported(exported, tmp_path):
    path = tmp_path / "model.pt"
    shutil.copy(exported / "transnormer_t1_tiny.pt", path)
    flip(path)
    with refuses(ExportError, path, "damaged", "CRC-32"):
        export_checkpoint(path, tmp_path / "out", exported)
    assert not (tmp_path / "out").exists()


def test_a_checkpoint_with_nan_is_not_exported(exported, tmp_path):
    path = tmp_path / "model.pt"
    state = torch.load(exported / "transnormer_t1_tiny.pt", weights_only=True)
    name = next(n for n in state["model"] if n.endswith("embed_tokens.weight"))
    state["model"][name][5, 5] = torch.nan
    torch.save(state, path)
    with refuses(ExportError, "embed_tokens.weight", "NaN"):
        export_checkpoint(path, tmp_path / "out", exported)
    assert [each.name for each in tmp_path.iterdir()] == ["model.pt"]
