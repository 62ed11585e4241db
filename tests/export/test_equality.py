"""What was exported gives the same logits and texts, also without fairseq."""

import json
import os
import shutil
import subprocess
import sys

import pytest
import torch
from fairseq.models import MODEL_REGISTRY
from safetensors.torch import load_file, save_file

from fairseq_transnormer.data.fingerprints import file_sha256
from fairseq_transnormer.export import load_exported
from fairseq_transnormer.export.command_line import main
from fairseq_transnormer.export.continuation import continue_tokens
from fairseq_transnormer.checkpoints.export import export_checkpoint
from fairseq_transnormer.modules import token_mixers
from tests.models.building import build, dictionary, draw_tokens
from tests.modules.building import SMALL
from tests.zoo import CAUSAL

from tests.checkpoints.writing import write_checkpoint

ARCHITECTURES = [
    name
    for name, model in MODEL_REGISTRY.items()
    if name.endswith("_tiny")
    and model.__module__.startswith("fairseq_transnormer.")
    and not name.startswith("lra_")
]

PROGRAM = """
import sys
from pathlib import Path
sys.modules['fairseq'] = None
import torch
from fairseq_transnormer.export import load_exported
from fairseq_transnormer.ops import state_bytes
tokens, expected = torch.load(sys.argv[1], weights_only=True)
for folder, logits in expected.items():
    exported = load_exported(folder)
    with torch.no_grad():
        assert torch.equal(exported.model(tokens), logits), folder
    if exported.manifest.kind == 'causal':
        written = exported.continue_tokens(tokens, max_new_tokens=8)
        with torch.no_grad():
            whole = exported.model(written)
        whole[:, :, 1] = -torch.inf
        chosen = whole.argmax(-1)[:, tokens.shape[1] - 1 : -1]
        new = written[:, tokens.shape[1]:]
        assert torch.equal(chosen[new != 1], new[new != 1]), folder
        if all(getattr(m, 'constant_state', True) for m in exported.model.modules()):
            sizes = set()
            _, states = exported.model(tokens, return_states=True)
            for token in tokens[:, :10].split(1, 1):
                _, states = exported.model(token, states, return_states=True)
                sizes.add(sum(map(state_bytes, states)))
            assert len(sizes) == 1, folder
            print('constant', folder)
    print('equal', folder)
assert not [name for name in sys.modules if name.startswith(('fairseq.', 'omegaconf'))]
"""


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """folder -> logits of the fairseq model, of every system; and the tokens."""
    torch.manual_seed(0)
    root = tmp_path_factory.mktemp("exported")
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
            expected[str(root / case)] = model(tokens)[0]
    return tokens, expected


def test_same_logits_and_constant_states_without_fairseq(exported, tmp_path):
    torch.save(exported, tmp_path / "expected.pt")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "expected.pt")],
        capture_output=True,
        text=True,
        # as in this process: sums depend on how many threads share them
        env=os.environ | {"OMP_NUM_THREADS": str(torch.get_num_threads())},
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.split("\n")
    equal = [line for line in lines if line.startswith("equal ")]
    assert len(equal) == len(exported[1])
    for name in (
        "transnormer_t1_tiny",
        "transnormer_t2_tiny",
        "linear_transformer_tiny",
    ):
        assert any(
            line.startswith("constant") and line.endswith(name) for line in lines
        )


@pytest.mark.parametrize("kind", ["t1", "pieces"])
def test_texts_are_those_of_the_checkpoint(kind, zoo, tmp_path, capsys):
    trained = zoo.trained[kind]
    assert main([trained.path, "--dest", str(tmp_path / "out")]) == 0
    assert "transnormer_t" in capsys.readouterr().out
    exported = load_exported(tmp_path / "out")
    assert len(exported.vocabulary.symbols) == exported.manifest.vocab_size
    for prompt in ("the river", "an old king left €"):
        expected = trained.generator.generate(prompt, max_new_tokens=15)
        tokens = torch.tensor([[2, *exported.vocabulary.encode(prompt)]])
        written = exported.continue_tokens(tokens, max_new_tokens=15)
        # fairseq ends a text that has no room left
        assert expected.tokens[:-1] == written[0, 1 : len(expected.tokens)].tolist()
        assert exported.continue_text(prompt, max_new_tokens=15) == expected.text


def test_what_is_drawn(zoo):
    exported, tokens = (
        load_exported(zoo.untrained[CAUSAL[1]].folder),
        draw_tokens(64, 5),
    )

    def draw(**settings):
        return exported.continue_tokens(tokens, max_new_tokens=6, **settings)

    assert torch.equal(draw(seed=1), draw(seed=1))
    assert not torch.equal(draw(seed=1), draw(seed=2))
    greedy = draw()
    assert torch.equal(draw(top_k=1, seed=3), greedy)
    assert torch.equal(draw(top_p=1e-6), greedy)
    assert torch.equal(draw(seed=3, temperature=1e-6), greedy)
    with torch.no_grad():
        best = exported.model(tokens)[:, -1].index_fill(-1, torch.tensor(1), -torch.inf)
    drawn = exported.continue_tokens(tokens, max_new_tokens=1, top_k=3, seed=0)[:, -1]
    places = best.argsort(-1, descending=True).eq(drawn[:, None]).int().argmax(-1)
    assert set(places.tolist()) == {0, 1, 2}


def test_half_precision_weights_are_kept(tmp_path):
    model = write_checkpoint(tmp_path / "model.pt", "transnormer_t2_tiny")
    state = torch.load(tmp_path / "model.pt", weights_only=True)
    state["model"] = model.half().state_dict()
    torch.save(state, tmp_path / "half.pt")
    export_checkpoint(tmp_path / "half.pt", tmp_path / "out")
    tokens = draw_tokens(2, 9)
    with torch.no_grad():
        found = load_exported(tmp_path / "out").model(tokens)
        assert torch.equal(found, model.float()(tokens)[0])
    assert len(dictionary()) == found.shape[-1]


def test_a_row_that_has_ended_is_filled_with_pads():
    """... while others are continued as if it had not."""
    model, pad = build("transnormer_t2_tiny").decoder.model, dictionary().pad()
    tokens = draw_tokens(4, 6)

    def continued(end):
        more = {"end": end, "pad": pad, "max_new_tokens": 10, "seed": 1}
        return continue_tokens(model, tokens, **more)[:, 6:]

    endless = continued(end=len(dictionary()))
    end = endless[3, 1].item()
    found = continued(end)
    length = found.shape[1]
    assert length > 2 and (found[3, 2:] == pad).all()
    # of each row the first end, if it has one, and all before it stay
    over = (endless == end).cumsum(1) - (endless == end).long() > 0
    assert torch.equal(found, endless.masked_fill(over, pad)[:, :length])


@pytest.mark.parametrize("arch", ["transnormer_t1_tiny", "roberta_transnormer_t2_tiny"])
def test_folders_of_the_flat_format(arch, zoo, tmp_path):
    """Version 1: no section, and tensors by the names of the plain model."""
    model, _, folder = zoo.untrained[arch]
    shutil.copytree(folder, tmp_path / "out")
    weights = tmp_path / "out/model.safetensors"
    tensors = load_file(weights)
    save_file({k.removeprefix("model."): v for k, v in tensors.items()}, weights)
    path = tmp_path / "out/config.json"
    flat = json.loads(path.read_text())["fairseq_transnormer"]
    flat |= {"format": "fairseq_transnormer", "format_version": 1}
    flat["files"]["model.safetensors"] = file_sha256(weights)
    path.write_text(json.dumps(flat))
    tokens = draw_tokens(2, 21)
    with torch.no_grad():
        found = load_exported(tmp_path / "out").model(tokens)
        assert torch.equal(found, model(tokens)[0])
