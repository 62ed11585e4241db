"""A checkpoint and its export become the same plain model, without fairseq."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from fairseq.models import MODEL_REGISTRY

from fairseq_transnormer.checkpoints.export import export_checkpoint
from fairseq_transnormer.checkpoints.identity import weights_fingerprint
from fairseq_transnormer.checkpoints.load import load
from fairseq_transnormer.checkpoints.safe_loading import CheckpointError
from fairseq_transnormer.modules import token_mixers
from tests.checkpoints.writing import write_checkpoint
from tests.messages import refuses
from tests.models.building import draw_tokens
from tests.modules.building import SMALL
from tests.zoo import CAUSAL, HEADS

ARCHITECTURES = [
    name
    for name, model in MODEL_REGISTRY.items()
    if name.endswith("_tiny")
    and model.__module__.startswith("fairseq_transnormer.")
    and not name.startswith("lra_")
]

PROGRAM = """
import sys
for name in ('fairseq', 'omegaconf', 'transformers'):
    sys.modules[name] = None
import torch
from fairseq_transnormer.checkpoints.load import load
tokens, expected = torch.load(sys.argv[1], weights_only=True)
for paths, logits in expected.items():
    for path in paths.split('|'):
        with torch.no_grad():
            assert torch.equal(load(path).model(tokens), logits), path
        print('equal', path)
"""


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """checkpoint|export -> logits of the fairseq model; and the tokens."""
    torch.manual_seed(0)
    root = tmp_path_factory.mktemp("written")
    cases = {name: (name, {}) for name in ARCHITECTURES}
    for causal, arch in (False, "roberta_transnormer_t2_tiny"), (True, CAUSAL[0]):
        names = ",".join(token_mixers(causal=causal))
        cases[f"all mixers, {arch}"] = (arch, SMALL | {"attention_types": names})
    cases["untied"] = (CAUSAL[1], {"untie_output_embedding": True, "output_bias": True})
    tokens, expected = draw_tokens(2, 21), {}
    for case, (architecture, changes) in cases.items():
        checkpoint = root / f"{case}.pt"
        model = write_checkpoint(checkpoint, architecture, **changes)
        export_checkpoint(checkpoint, root / case)
        with torch.no_grad():
            expected[f"{checkpoint}|{root / case}"] = model(tokens)[0]
    return tokens, expected


def test_same_logits_without_fairseq(written, tmp_path):
    torch.save(written, tmp_path / "expected.pt")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "expected.pt")],
        capture_output=True,
        text=True,
        # as in this process: sums depend on how many threads share them
        env=os.environ | {"OMP_NUM_THREADS": str(torch.get_num_threads())},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("equal ") == 2 * len(written[1])


@pytest.mark.parametrize("head", HEADS)
def test_a_classifier(head, zoo):
    """fairseq's head on fairseq's encoder; labels are in the manifest."""
    model, checkpoint, folder = zoo.untrained[head]
    tokens = draw_tokens(3, 9)
    (name,) = model.classification_heads
    for path in (checkpoint, folder):
        trained = load(path)
        with torch.no_grad():
            expected = model(tokens, classification_head_name=name)[0]
            torch.testing.assert_close(trained.model(tokens), expected)
        assert tuple(trained.manifest.labels) == HEADS[head][0]
        assert trained.manifest.head.regression == (not HEADS[head][0])
        assert trained.manifest.texts == (1 if HEADS[head][0] else 2)


def test_a_checkpoint_that_is_replaced_has_no_fingerprint(zoo, tmp_path):
    path = tmp_path / "checkpoint_best.pt"
    shutil.copy(zoo.checkpoints["t2"], path)
    trained = load(path, zoo.data["words"])
    assert trained.fingerprint() == weights_fingerprint(path)
    shutil.copy(path, tmp_path / "other.pt")
    (tmp_path / "other.pt").replace(path)
    with refuses(CheckpointError, path, "replaced"):
        trained.fingerprint()


def test_half_precision_weights(tmp_path):
    """... are those of the model in float32."""
    model = write_checkpoint(tmp_path / "model.pt", "transnormer_t2_tiny")
    state = torch.load(tmp_path / "model.pt", weights_only=True)
    state["model"] = model.half().state_dict()
    torch.save(state, tmp_path / "half.pt")
    export_checkpoint(tmp_path / "half.pt", tmp_path / "out")
    tokens = draw_tokens(2, 9)
    for path in (tmp_path / "half.pt", tmp_path / "out"):
        with torch.no_grad():
            found = load(path).model(tokens)
            assert torch.equal(found, model.float()(tokens)[0])


@pytest.fixture
def t2(zoo, tmp_path):
    """A trained checkpoint and a copy of its data, in folders of their own."""
    data = shutil.copytree(zoo.data["words"], tmp_path / "data")
    return Path(zoo.checkpoints["t2"]), data


def reordered(data: Path) -> Path:
    """The dictionary with its symbols in another order."""
    lines = (data / "dict.txt").read_text().splitlines()
    (data / "dict.txt").write_text("\n".join(reversed(lines)) + "\n")
    return data


def test_a_dictionary_of_equal_size(t2, tmp_path):
    path, data = t2
    assert load(path, data).words.symbols == load(path).words.symbols
    with refuses(CheckpointError, path, "dictionary_sha256", "--data", alone=True):
        load(path, reordered(data))


def test_a_dictionary_that_was_changed_after_the_data_was_prepared(t2, tmp_path):
    """A checkpoint of another program does not name its dictionary; the data do."""
    path, data = t2
    state = torch.load(path, weights_only=False)
    del state["extra_state"]["dictionary_sha256"]
    torch.save(state, tmp_path / "other.pt")
    load(tmp_path / "other.pt", reordered(data))
    report = {"files": {"dict.txt": {"sha256": "0" * 64}}}
    (data / "report.json").write_text(json.dumps(report))
    with refuses(CheckpointError, data / "dict.txt", "report.json", "0" * 64):
        load(tmp_path / "other.pt", data)


def test_a_dictionary_that_is_missing_or_beside_the_checkpoint(t2, tmp_path):
    path, data = t2
    state = torch.load(path, weights_only=False)
    state["cfg"]["task"]["data"] = "/gone"
    (tmp_path / "save").mkdir()
    torch.save(state, tmp_path / "save/model.pt")
    trained = load(tmp_path / "save/model.pt")
    assert trained.vocabulary is None
    with refuses(CheckpointError, "dict.txt", "/gone", "--data", alone=True):
        _ = trained.words
    with refuses(CheckpointError, "dict.txt", tmp_path / "none", alone=True):
        load(path, tmp_path / "none")
    shutil.copy(data / "dict.txt", tmp_path / "save")
    assert load(tmp_path / "save/model.pt").words.symbols == load(path).words.symbols
    (data / "dict.txt").write_text("word 1\n")
    with refuses(
        CheckpointError, data / "dict.txt", 5, len(trained.model.embed_tokens.weight)
    ):
        load(path, data)


@pytest.mark.parametrize("by", ["folder", "option"])
def test_other_subword_files(by, zoo, tmp_path):
    """A damaged or foreign sentencepiece model makes other pieces of a text."""
    path, data = Path(zoo.checkpoints["pieces"]), zoo.data["pieces"]
    copy = shutil.copytree(data, tmp_path / "data")
    units = copy / "sentencepiece.bpe.model"
    given = (path, copy) if by == "folder" else (path, data, units)
    assert load(*given).words.encode("the river") == load(path).words.encode(
        "the river"
    )
    content = units.read_bytes()
    for changed in (content[:-1] + b"\1", content[: len(content) // 2], b"", b"\0" * 9):
        units.write_bytes(changed)
        with refuses(CheckpointError, units, "SHA-256", alone=True):
            load(*given)
    units.unlink()
    if by == "option":
        with refuses(CheckpointError, units, "sentencepiece"):
            load(*given)
    else:
        with refuses(CheckpointError, "sentencepiece.bpe.model"):
            _ = load(*given).words
