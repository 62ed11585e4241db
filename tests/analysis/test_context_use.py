"""Perplexity behind shorter texts, against sums over single predictions."""

import json
import math
import types

import pytest
import torch

from fairseq_transnormer.analysis import context_use, trained_models
from fairseq_transnormer.analysis.context_use import perplexities
from fairseq_transnormer.analysis.trained_models import run_on, trained_mask_share
from fairseq_transnormer.checkpoints import load
from fairseq_transnormer.modules import (
    CausalLanguageModel,
    EncoderT2Config,
    LanguageModelT2Config,
    MaskedLanguageModel,
)
from tests.commands import command
from tests.messages import command_refuses, refuses

from ..tiny_data import write_tiny_data

SIZE = 20
BOS, MASK = 0, 19
TINY = {"embed_dim": 16, "num_heads": 2, "ffn_dim": 16, "block_size": 8}
TINY |= {"attention_types": "diag,norm", "dropout": 0.0}


def build(causal):
    torch.manual_seed(0)
    if causal:
        return CausalLanguageModel(LanguageModelT2Config(**TINY), SIZE).eval()
    return MaskedLanguageModel(EncoderT2Config(**TINY), SIZE).eval()


def test_a_causal_model_token_by_token(monkeypatch):
    monkeypatch.setattr(context_use, "TOKENS_AT_ONCE", 48)
    model = build(causal=True)
    text = torch.randint(4, SIZE, (96,), generator=torch.Generator().manual_seed(1))
    found = perplexities(model, text, [8, 32])
    for length, ppl in found.items():
        total, count = 0.0, 0
        for place in range(96):
            if place % 8:
                start = place - place % length
                logits = model(text[None, start:place])[0, -1].double()
                total -= float(logits.log_softmax(-1)[text[place]].detach())
                count += 1
        assert ppl == pytest.approx(math.exp(total / count), rel=1e-4)
    assert found[8] != found[32]


def test_a_masked_model_predicts_the_same_tokens(monkeypatch):
    monkeypatch.setattr(context_use, "TOKENS_AT_ONCE", 64)
    model = build(causal=False)
    text = torch.randint(4, 19, (64,), generator=torch.Generator().manual_seed(2))
    drawn = torch.rand(64, generator=torch.Generator().manual_seed(0)) < 0.4
    chosen = [i for i in range(64) if drawn[i] and i % 16 != 15]
    found = perplexities(model, text, [16, 64], mask_share=0.4, mask=MASK)
    for length, ppl in found.items():
        total = 0.0
        for place in chosen:
            start = place - place % length
            block = text[start : start + length].clone()
            for other in chosen:
                if start <= other < start + length:
                    block[other - start] = MASK
            block = torch.cat([torch.tensor([BOS]), block[:-1]])
            logits = model(block[None])[0, place - start + 1].double()
            total -= float(logits.log_softmax(-1)[text[place]].detach())
        assert ppl == pytest.approx(math.exp(total / len(chosen)), rel=1e-4)


@pytest.mark.parametrize(
    ("lengths", "share", "parts"),
    [
        ([8, 30], 0.5, ["length 30", "divisor", 96, "from 2", "multiple", 8]),
        ([1], 0.5, ["length 1", "divisor", 96, "from 2"]),
        ([8], 0.0, ["mask_share", 0.0]),
        ([8], None, ["mask_share", None]),
    ],
)
def test_what_does_not_fit(lengths, share, parts):
    model = build(causal=False)
    with refuses(ValueError, *parts):
        perplexities(model, torch.full((96,), 5), lengths, share, MASK)


def test_more_tokens_than_there_are_positions():
    model = MaskedLanguageModel(EncoderT2Config(**TINY, max_positions=32), SIZE).eval()
    text = torch.full((96,), 5)
    assert set(perplexities(model, text, [16, 32], 0.5, MASK)) == {16, 32}
    with refuses(ValueError, 48, 32):
        perplexities(model, text, [16, 48], 0.5, MASK)
    with refuses(ValueError, 96, 32):
        run_on(model, text[None])


def test_command(tmp_path, monkeypatch, capsys):
    data = write_tiny_data(tmp_path / "data")
    model = build(causal=True)
    manifest = types.SimpleNamespace(special_tokens={})
    trained = types.SimpleNamespace(
        model=model, manifest=manifest, fingerprint=lambda: "of the weights"
    )
    monkeypatch.setattr(load, "load", lambda path, data: trained)
    text = torch.full((1, 64), 5)
    monkeypatch.setattr(trained_models, "read_blocks", lambda *given: text)
    path = tmp_path / "some.pt"
    torch.save({"model": {"a": torch.ones(3)}}, path)
    words = [f"T2={path}", "--data", data, "--lengths", 8, 64, "--tokens", 64]
    main = command("analyse", "context_use")
    assert main([*words, "--output", tmp_path / "found.json"]) == 0
    assert "T2" in capsys.readouterr().out
    found = json.loads((tmp_path / "found.json").read_text())
    assert set(found["perplexity"]["T2"]) == {"8", "64"}
    assert found["weights"] == {"T2": "of the weights"}
    assert found["mask_share"] is None
    monkeypatch.undo()
    none = tmp_path / "none"
    command_refuses(main, ["T2=none.pt", "--data", none], capsys, none)


def test_the_share_of_masks_is_that_of_the_training(tmp_path):
    paths = {}
    for name, task in (
        ("causal", {"tokens_per_sample": 8}),
        ("masked", {"mask_prob": 0.4}),
        ("another", {"mask_prob": 0.15}),
    ):
        paths[name] = tmp_path / f"{name}.pt"
        torch.save({"model": {}, "cfg": {"task": task}}, paths[name])
    assert trained_mask_share([paths["causal"]]) is None
    assert trained_mask_share([paths["causal"], paths["masked"]]) == 0.4
    with refuses(ValueError, paths["masked"], 0.4, 0.15, "--mask-share"):
        trained_mask_share(paths.values())
