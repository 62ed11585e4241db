"""A training has its model's kernels tried before the first update."""

from types import SimpleNamespace

import pytest
import torch

from fairseq_transnormer.modules.config import LanguageModelT1Config
from fairseq_transnormer.modules.language_model import CausalLanguageModel
from fairseq_transnormer.ops import ENVIRONMENT_VARIABLE, verdicts
from fairseq_transnormer.ops.verdicts import Verdict
from fairseq_transnormer.training.kernels import try_kernels

SMALL = {"embed_dim": 64, "num_heads": 2, "ffn_dim": 85, "block_size": 16}
SMALL |= {"attention_types": "diag*2,norm*2"}


@pytest.fixture
def trainer():
    config = LanguageModelT1Config(**SMALL)
    model = CausalLanguageModel(config, 30).half()
    cfg = SimpleNamespace(model=config, common=SimpleNamespace(amp=False))
    return SimpleNamespace(cfg=cfg, is_fsdp=False, get_model=lambda: model)


@pytest.fixture
def tried(monkeypatch, device):
    """What a child would try; it passes."""
    found = []

    def pass_all(configurations):
        found.extend(configurations)
        with verdicts.lock(device):
            words = [each.in_words() for each in configurations]
            verdicts.add(device, dict.fromkeys(words, Verdict(None, 0.5, 0.1)))
        verdicts.known.cache_clear()

    monkeypatch.setattr(verdicts, "try_in_a_child", pass_all)
    return found


def test_what_an_update_launches_is_tried(trainer, tried, launches):
    model, random = trainer.get_model(), torch.get_rng_state()
    try_kernels(trainer)
    assert launches == [] and torch.equal(torch.get_rng_state(), random)
    assert model.training and all(p.grad is None for p in model.parameters())
    tokens = torch.randint(2, 30, (2, 40))
    with verdicts.collected() as needed:
        for padded in (False, True):
            tokens[1, 33:] = 1 if padded else 5
            features = model.features(tokens)[0]
            features.float().sum().backward()
    assert {each.op for each in needed} > {"linear_attention", "block_attention"}
    assert set(needed) <= set(tried)
    # the next training finds the verdicts
    tried.clear()
    try_kernels(trainer)
    assert tried == []


def test_nothing_is_tried_where_torch_is_chosen(trainer, tried, monkeypatch):
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, "torch")
    try_kernels(trainer)
    assert tried == []
