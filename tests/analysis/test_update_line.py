"""The loss along an update, against losses of models that are built for each place."""

import json
from types import SimpleNamespace

import pytest
import torch

from fairseq_transnormer.analysis import trained_models
from fairseq_transnormer.analysis.update_line import (
    PARTS,
    likeness,
    loss_along,
    loss_of_parts,
    norm_inputs,
)
from fairseq_transnormer.checkpoints import load
from fairseq_transnormer.modules import (
    CausalLanguageModel,
    EncoderT2Config,
    LanguageModelT2Config,
    MaskedLanguageModel,
)
from tests.commands import command
from tests.messages import command_refuses

from ..tiny_data import write_tiny_data

TINY = {"embed_dim": 16, "num_heads": 2, "ffn_dim": 16, "block_size": 8}
VOCABULARY = 20


def build(seed, **values):
    torch.manual_seed(seed)
    config = LanguageModelT2Config(attention_types="diag,norm", **TINY | values)
    return CausalLanguageModel(config, VOCABULARY).eval()


def squares(model) -> float:
    """Stands for a loss: known at every place."""
    return sum(p.square().sum().item() for p in model.parameters())


def test_along_the_line():
    model, before, after = build(0), build(1).state_dict(), build(2).state_dict()
    found = loss_along(model, before, after, [0, 0.25, 1, 1.5], squares)
    for fraction, loss in found.items():
        expected = sum(
            ((1 - fraction) * before[name] + fraction * after[name])
            .double()
            .square()
            .sum()
            .item()
            for name, _ in model.named_parameters()
        )
        assert loss == pytest.approx(expected, rel=1e-5)


def test_each_part_alone():
    model, before = build(0), build(1).state_dict()
    after = {name: weight + 1 for name, weight in before.items()}

    def moved(each):
        return {n for n, w in each.state_dict().items() if not w.equal(before[n])}

    found = loss_of_parts(model, before, after, moved)
    # every weight but LRPE's angles is of one part, and the head is a masked model's
    assert set(found) == {*PARTS} - {"masked-LM head", "norms"}
    parts = [name for names in found.values() for name in names]
    assert len(parts) == len(set(parts))
    assert {n for n in before if n not in parts} == {n for n in before if "lrpe" in n}
    assert all("_proj" in name for name in found["queries and keys"])
    assert len(found["queries and keys"]) == len(found["channel mixers"]) * 8 // 12


@pytest.mark.parametrize("untie", [False, True])
def test_a_weight_that_is_shared_moves_with_the_embedding(untie):
    """It has two names, and what is loaded last would decide."""

    def encoder(seed):
        torch.manual_seed(seed)
        values = TINY | {"untie_output_embedding": untie}
        config = EncoderT2Config(attention_types="diag,norm", **values)
        return MaskedLanguageModel(config, VOCABULARY).eval()

    model, before = encoder(0), encoder(1).state_dict()
    after = {name: weight + 1 for name, weight in before.items()}

    def moved(each):
        return {n for n, w in each.named_parameters() if not w.equal(before[n])}

    found = loss_of_parts(model, before, after, moved)
    assert "embed_tokens.weight" in found["embeddings"]
    assert ("lm_head.weight" in found["masked-LM head"]) == untie
    assert "embed_tokens.weight" not in found["masked-LM head"]


def test_likeness_of_outputs(monkeypatch):
    model, tokens = build(3), torch.randint(4, VOCABULARY, (3, 12))
    outputs = []
    for layer in model.stack.layers:
        layer.attention.register_forward_hook(lambda *given: outputs.append(given[2]))
    found = likeness(model, tokens)
    assert len(found) == len(outputs) == 2
    for share, (output, _) in zip(found, outputs, strict=True):
        rows = [row.mean(0).norm() / row.norm(dim=1).mean() for row in output]
        assert share == pytest.approx((sum(rows) / 3).item(), rel=1e-5)
        assert 0 < share < 1
    # outputs that are the bias of the last product alone
    for layer in model.stack.layers:
        layer.attention.out_proj.weight.data.zero_()
        layer.attention.out_proj.bias.data.fill_(1)
    assert likeness(model, tokens) == pytest.approx([1, 1])


def test_norm_inputs():
    model, tokens = build(3), torch.randint(4, VOCABULARY, (2, 10))
    (attention,) = (x.attention for x in model.stack.layers[1:])
    seen = []
    attention.norm.register_forward_hook(lambda *given: seen.append(given[1][0]))
    (found,) = norm_inputs(model, tokens)
    sizes = sorted((x @ x / 16).sqrt().item() for x in seen[0].flatten(0, 1).detach())
    assert found == pytest.approx(sizes[(len(sizes) - 1) // 2], rel=1e-5)


def test_command(tmp_path, monkeypatch, capsys):
    data = write_tiny_data(tmp_path / "data")
    models = {"before.pt": build(1), "after.pt": build(2)}

    def loaded(path, data):
        return SimpleNamespace(
            model=models[path.name],
            manifest=SimpleNamespace(special_tokens={}),
            fingerprint=lambda: path.name,
        )

    monkeypatch.setattr(load, "load", loaded)
    text = torch.randint(4, VOCABULARY, (2, 16))
    monkeypatch.setattr(trained_models, "read_blocks", lambda *given: text)
    for name, model in models.items():
        torch.save({"model": model.state_dict()}, tmp_path / name)
    words = [str(tmp_path / name) for name in models] + ["--data", str(data)]
    words += ["--length", "16", "--blocks", "2", "--fractions", "0", "0.5", "1"]
    out = [tmp_path / "found.json", tmp_path / "line.png"]
    made = ["--output", str(out[0]), "--plot", str(out[1])]
    update_line = command("analyse", "update_line")
    assert update_line([*words, *made]) == 0
    assert "0.500 of the update" in capsys.readouterr().out
    found = json.loads(out[0].read_text())
    assert [*found["bits_a_token"]] == ["0.0", "0.5", "1.0"]
    assert len(set(found["weights"])) == 2 and out[1].stat().st_size > 1000
    wrong = [*words, "--fractions", "1", "half"]
    command_refuses(update_line, wrong, capsys, "--fractions", "half")
    models["after.pt"] = build(2, ffn_dim=24)
    command_refuses(update_line, words, capsys, "one run")
