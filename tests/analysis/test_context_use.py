"""Perplexity behind shorter texts, against sums over single predictions."""

import argparse
import json
import math
import types

import pytest
import torch
from fairseq.data import Dictionary
from fairseq.models.transformer_lm import (
    TransformerLanguageModel,
    base_lm_architecture,
)
from fairseq.modules import LearnedPositionalEmbedding
from torch import nn

import fairseq_transnormer.plugin  # noqa: F401 (registers the models)
from fairseq_transnormer.analysis import context_use
from fairseq_transnormer.analysis.context_use import perplexities
from fairseq_transnormer.analysis.trained_models import run_on, trained_mask_share
from fairseq_transnormer.checkpoints.identity import weights_fingerprint
from fairseq_transnormer.modules import (
    CausalLanguageModel,
    EncoderT2Config,
    LanguageModelT2Config,
    MaskedLanguageModel,
)
from tests.messages import command_refuses, refuses

from ..tiny_data import write_tiny_data

SIZE = 20
BOS, MASK = 0, 19
TINY = {"embed_dim": 16, "num_heads": 2, "ffn_dim": 16, "block_size": 8}
TINY |= {"attention_types": "diag,norm", "dropout": 0.0}


class AsFairseqHasThem(nn.Module):
    """A decoder or an encoder with a dictionary, as fairseq's models have them."""

    def __init__(self, causal):
        super().__init__()
        torch.manual_seed(0)
        if causal:
            self.decoder = CausalLanguageModel(LanguageModelT2Config(**TINY), SIZE)
        else:
            self.encoder = MaskedLanguageModel(EncoderT2Config(**TINY), SIZE)
            self.encoder.dictionary = types.SimpleNamespace(
                bos=lambda: BOS, index={"<mask>": MASK}.__getitem__
            )
        self.causal = causal

    def forward(self, tokens):
        return (self.decoder if self.causal else self.encoder)(tokens), None


def test_a_causal_model_token_by_token(monkeypatch):
    monkeypatch.setattr(context_use, "TOKENS_AT_ONCE", 48)
    model = AsFairseqHasThem(causal=True).eval()
    text = torch.randint(4, SIZE, (96,), generator=torch.Generator().manual_seed(1))
    found = perplexities(model, text, [8, 32])
    for length, ppl in found.items():
        total, count = 0.0, 0
        for place in range(96):
            if place % 8:
                start = place - place % length
                logits = model(text[None, start:place])[0][0, -1].double()
                total -= float(logits.log_softmax(-1)[text[place]].detach())
                count += 1
        assert ppl == pytest.approx(math.exp(total / count), rel=1e-4)
    assert found[8] != found[32]


def test_an_adaptive_softmax_is_what_fairseq_makes_of_it():
    """Such a decoder returns features."""
    dictionary = Dictionary()
    for i in range(SIZE - len(dictionary)):
        dictionary.add_symbol(f"word{i}")
    args = argparse.Namespace(
        tokens_per_sample=64, adaptive_softmax_cutoff="8", adaptive_softmax_dropout=0.0,
        decoder_embed_dim=16, decoder_ffn_embed_dim=16, decoder_layers=1,
        decoder_attention_heads=2, criterion="adaptive_loss",
    )  # fmt: skip
    base_lm_architecture(args)
    torch.manual_seed(0)
    task = types.SimpleNamespace(
        source_dictionary=dictionary, target_dictionary=dictionary
    )
    model = TransformerLanguageModel.build_model(args, task).eval()
    text = torch.randint(4, SIZE, (64,))
    (found,) = perplexities(model, text, [16]).values()
    rows = text.view(-1, 16)
    logs = model.get_normalized_probs(model(rows[:, :-1]), log_probs=True)
    expected = logs.gather(-1, rows[:, 1:, None]).double().mean().neg().exp()
    assert found == pytest.approx(expected.item(), rel=1e-5)
    torch.testing.assert_close(logs.exp().sum(-1), torch.ones(4, 15))


def test_a_masked_model_predicts_the_same_tokens(monkeypatch):
    monkeypatch.setattr(context_use, "TOKENS_AT_ONCE", 64)
    model = AsFairseqHasThem(causal=False).eval()
    text = torch.randint(4, 19, (64,), generator=torch.Generator().manual_seed(2))
    drawn = torch.rand(64, generator=torch.Generator().manual_seed(0)) < 0.4
    chosen = [i for i in range(64) if drawn[i] and i % 16 != 15]
    found = perplexities(model, text, [16, 64], mask_share=0.4)
    for length, ppl in found.items():
        total = 0.0
        for place in chosen:
            start = place - place % length
            block = text[start : start + length].clone()
            for other in chosen:
                if start <= other < start + length:
                    block[other - start] = MASK
            block = torch.cat([torch.tensor([BOS]), block[:-1]])
            logits = model(block[None])[0][0, place - start + 1].double()
            total -= float(logits.log_softmax(-1)[text[place]].detach())
        assert ppl == pytest.approx(math.exp(total / len(chosen)), rel=1e-4)


@pytest.mark.parametrize(
    ("lengths", "share", "parts"),
    [
        ([8, 30], 0.5, ["length 30", "divisors", 96, "from 2", "multiples", 8]),
        ([32, 48], 0.5, ["length 48", "divisors", 96, "multiples", 32]),
        ([1], 0.5, ["length 1", "divisors", 96, "from 2"]),
        ([8], 0.0, ["mask_share 0.0", 96, "larger"]),
        ([8], None, ["mask_share", "masked model", "0 to 1"]),
    ],
)
def test_what_does_not_fit(lengths, share, parts):
    model = AsFairseqHasThem(causal=False).eval()
    with refuses(ValueError, *parts):
        perplexities(model, torch.full((96,), 5), lengths, share)


def test_more_tokens_than_fairseqs_learned_positions():
    model = AsFairseqHasThem(causal=True).eval()
    model.positions = LearnedPositionalEmbedding(33, SIZE, padding_idx=1)
    text = torch.full((96,), 5)
    assert set(perplexities(model, text, [16, 32])) == {16, 32}  # of 32, 31 are read
    with refuses(ValueError, "length 47", "up to 31", "positions"):
        perplexities(model, text, [16, 48])
    with refuses(ValueError, "length 96", "up to 31", "positions"):
        run_on(model, text[None])


def test_command(tmp_path, monkeypatch, capsys):
    data = write_tiny_data(tmp_path / "data")
    model = AsFairseqHasThem(causal=True).eval()
    monkeypatch.setattr(context_use, "load_trained_model", lambda path, data: model)
    text = torch.full((1, 64), 5)
    monkeypatch.setattr(context_use, "read_blocks", lambda *given: text)
    path = tmp_path / "some.pt"
    torch.save({"model": {"a": torch.ones(3)}}, path)
    command = [f"T2={path}", "--data", str(data), "--lengths", "8", "64"]
    command += ["--tokens", "64"]
    assert context_use.main([*command, "--json", str(tmp_path / "found.json")]) == 0
    assert "T2" in capsys.readouterr().out
    found = json.loads((tmp_path / "found.json").read_text())
    assert set(found["perplexity"]["T2"]) == {"8", "64"}
    assert found["weights"] == {"T2": weights_fingerprint(path)}
    assert found["mask_share"] is None
    monkeypatch.undo()
    none = tmp_path / "none"
    command = ["T2=none.pt", "--data", none]
    command_refuses(context_use.main, command, capsys, none, "dict.txt")


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
