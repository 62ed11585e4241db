"""Perplexity of text, against sums over single predictions, and along an update."""

import copy
import json
import math
import shutil
from types import SimpleNamespace

import pytest
import torch

from fairseq_transnormer.analysis import language_models
from fairseq_transnormer.analysis.language_models import (
    perplexities,
    read_blocks,
    run_on,
)
from fairseq_transnormer.checkpoints import load
from fairseq_transnormer.checkpoints.safe_loading import CheckpointError
from fairseq_transnormer.modules import (
    CausalLanguageModel,
    EncoderT2Config,
    LanguageModelT2Config,
    MaskedLanguageModel,
)
from tests.commands import command
from tests.messages import command_refuses, refuses

from ..tiny_data import write_tiny_data

SIZE, WORDS = 20, 64  # the second: of the tiny data
BOS, MASK = 0, 19
TINY = {"embed_dim": 16, "num_heads": 2, "ffn_dim": 16, "block_size": 8}
TINY |= {"attention_types": "diag,norm", "dropout": 0.0}


def build(causal, seed=0, size=SIZE, **values):
    torch.manual_seed(seed)
    if causal:
        config = LanguageModelT2Config(**TINY | values)
        return CausalLanguageModel(config, size).eval()
    return MaskedLanguageModel(EncoderT2Config(**TINY | values), size).eval()


def trained(model):
    manifest = SimpleNamespace(special_tokens={"mask": MASK})
    return SimpleNamespace(model=model, manifest=manifest)


def test_a_causal_model_token_by_token(monkeypatch):
    monkeypatch.setattr(language_models, "TOKENS_AT_ONCE", 48)
    model = build(causal=True)
    text = torch.randint(4, SIZE, (96,), generator=torch.Generator().manual_seed(1))
    found = perplexities(trained(model), text, [8, 32])
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
    monkeypatch.setattr(language_models, "TOKENS_AT_ONCE", 64)
    model = build(causal=False)
    text = torch.randint(4, 19, (64,), generator=torch.Generator().manual_seed(2))
    drawn = torch.rand(64, generator=torch.Generator().manual_seed(0)) < 0.4
    chosen = [i for i in range(64) if drawn[i] and i % 16 != 15]
    found = perplexities(trained(model), text, [16, 64], mask_share=0.4)
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
        ([8], 15.0, ["mask_share", 15.0]),
        ([8], 1e-9, ["none of 96 tokens"]),
        ([8], None, ["mask_share", None]),
    ],
)
def test_what_does_not_fit(lengths, share, parts):
    model = build(causal=False)
    with refuses(ValueError, *parts):
        perplexities(trained(model), torch.full((96,), 5), lengths, share)


def test_more_tokens_than_there_are_positions():
    model = build(causal=False, max_positions=32)
    text = torch.full((96,), 5)
    assert set(perplexities(trained(model), text, [16, 32], 0.5)) == {16, 32}
    with refuses(ValueError, 48, 32):
        perplexities(trained(model), text, [16, 48], 0.5)
    with refuses(ValueError, 96, 32):
        run_on(model, text[None])


@pytest.fixture
def loaded(tmp_path, monkeypatch):
    """Models by their paths' names, in place of checkpoints, and a folder of data.

    And fields of their configurations, by these names.
    """
    models, configs = {}, {}

    def load_one(path, data, device="cpu"):
        config = TINY | configs.get(path.name, {})
        manifest = SimpleNamespace(special_tokens={}, config=config)
        return SimpleNamespace(
            model=models[path.name], manifest=manifest, fingerprint=lambda: path.name
        )

    monkeypatch.setattr(load, "load", load_one)
    return models, write_tiny_data(tmp_path / "data"), configs


def test_an_export_reads_its_own_dictionary_alone(zoo, tmp_path):
    folder, data = zoo.untrained["transnormer_t2_tiny"].folder, tmp_path / "data"
    data.mkdir()
    shutil.copy(folder / "dict.txt", data)
    own = language_models.language_model(folder, data)
    assert own.fingerprint() == load.load(folder).fingerprint()
    lines = (folder / "dict.txt").read_text().splitlines()
    (data / "dict.txt").write_text("\n".join([*lines[1:], lines[0]]) + "\n")
    with refuses(CheckpointError, folder, "dictionary"):
        language_models.language_model(folder, data)
    (data / "dict.txt").write_text("\n".join(lines[1:]) + "\n")
    with refuses(CheckpointError, data / "dict.txt"):
        language_models.language_model(folder, data)


def test_a_fine_tuned_checkpoint_reads_text(zoo, tmp_path):
    """Without its head; the folder is not of its problem."""
    shutil.copy(zoo.untrained["classifier"].folder / "dict.txt", tmp_path)
    path = zoo.untrained["classifier"].checkpoint
    found = language_models.language_model(path, tmp_path)
    assert isinstance(found.model, MaskedLanguageModel)


def test_context_use(loaded, tmp_path, capsys):
    models, data, _ = loaded
    models["some.pt"] = build(causal=True, size=WORDS)
    words = ["T2=some.pt", "--data", data, "--lengths", 8, 64, "--tokens", 64]
    main = command("analyse", "context_use")
    assert main([*words, "--output", tmp_path / "found.json"]) == 0
    assert "T2" in capsys.readouterr().out
    found = json.loads((tmp_path / "found.json").read_text())
    assert set(found["perplexity"]["T2"]) == {"8", "64"}
    assert found["weights"] == {"T2": "some.pt"}
    assert found["mask_share"] is None
    none = tmp_path / "none"
    command_refuses(main, ["some.pt", "--data", none], capsys, none)


def test_update_line(loaded, tmp_path, capsys):
    """As of models that are built with the weights of each place."""
    models, data, configs = loaded
    models |= {f"{seed}.pt": build(True, seed, WORDS) for seed in (1, 2)}
    old, new = (copy.deepcopy(models[f"{seed}.pt"].state_dict()) for seed in (1, 2))
    words = ["1.pt", "2.pt", "--data", data, "--length", 16, "--blocks", 2]
    words += ["--fractions", 0, 0.5, 1, 1.5]
    out = tmp_path / "found.json"
    update_line = command("analyse", "update_line")
    assert update_line([*words, "--output", out]) == 0
    assert "0.500 of the update" in capsys.readouterr().out
    found = json.loads(out.read_text())
    along = found["bits_a_token"]
    assert [*along] == ["0.0", "0.5", "1.0", "1.5"] and len({*along.values()}) == 4
    text = read_blocks(data, "train", 2, 16).flatten()
    for fraction, loss in along.items():
        model = build(True, size=WORDS)
        for name, parameter in model.named_parameters():
            parameter.data = old[name] + float(fraction) * (new[name] - old[name])
        (perplexity,) = perplexities(trained(model), text, [16]).values()
        assert loss == pytest.approx(math.log2(perplexity), rel=1e-4)
    assert found["weights"] == ["1.pt", "2.pt"]
    wrong = [*words, "--fractions", 1, "half"]
    command_refuses(update_line, wrong, capsys, "--fractions", "half")
    configs["2.pt"] = {"block_size": 4}
    command_refuses(update_line, words, capsys, "one run")
    configs.clear()
    models["2.pt"] = build(causal=True, size=WORDS, ffn_dim=24)
    command_refuses(update_line, words, capsys, "one run")
