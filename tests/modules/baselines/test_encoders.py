"""What the attentions of encoders have in common."""

import pytest
import torch

from fairseq_transnormer.modules import (
    ATTENTIONS,
    CausalLanguageModel,
    EncoderConfig,
    token_mixers,
)
from fairseq_transnormer.modules import LanguageModelConfig as CausalConfig
from tests.messages import refuses

from .attentions import ENCODERS, build, draw

# values with which 40 tokens leave something to choose
FEW = {
    "bigbird_block_size": 2,
    "informer_factor": 2,
    "reformer_chunk_size": 4,
    "skyformer_landmarks": 8,
}


@pytest.mark.parametrize("name", sorted({*ENCODERS} - {*token_mixers(causal=True)}))
def test_a_causal_model_refuses_them(name):
    config = CausalConfig(attention_types=f"diag,{name}", embed_dim=16, num_heads=2)
    kind = type(build(name)).__name__
    with refuses(ValueError, "attention_types", kind, *token_mixers(causal=True)):
        CausalLanguageModel(config, 10)


@pytest.mark.parametrize(
    "name", ("bigbird", "informer", "skyformer", "reformer", "performer")
)
@torch.no_grad()
def test_random_choices_are_drawn_once_and_saved(name):
    torch.manual_seed(5)
    layer, x = build(name, **FEW), draw(40)
    expected = layer(x)[0]
    layer.train()(x)
    torch.manual_seed(6)
    other = build(name, **FEW)
    parameters = dict(layer.named_parameters())
    other.load_state_dict(parameters, strict=False)
    assert not torch.allclose(other(x)[0], expected)
    other.load_state_dict(layer.state_dict())
    assert torch.equal(layer.eval()(x)[0], expected)
    assert torch.equal(other(x)[0], expected)


@pytest.mark.parametrize(
    "name", ("bigbird", "informer", "kernelized", "linformer", "reformer")
)
@torch.no_grad()
def test_dropout_of_weights_in_training_only(name):
    layer = build(name, attention_dropout=1 - 1e-12, bigbird_block_size=2).train()
    x = draw(12)
    # so few tokens are all chosen by Informer
    o = layer(x)[0]
    torch.testing.assert_close(o, layer.out_proj.bias.expand_as(x))
    assert not torch.allclose(layer.eval()(x)[0], o)


@pytest.mark.parametrize("name", ENCODERS)
def test_parameters(name):
    """docs/systems.md."""
    changes = {"nystromformer_kernel_size": 33} if name == "nystromformer" else {}
    config = EncoderConfig(embed_dim=64, num_heads=2, **changes)
    layer = ATTENTIONS[name](config, causal=False)
    projection = 64 * 64 + 64
    expected = {
        "linformer": 4 * projection + 2 * 128 * 4096,
        "reformer": 3 * projection,
        "nystromformer": 4 * projection + 2 * 33,
    }.get(name, 4 * projection)
    assert sum(p.numel() for p in layer.parameters()) == expected
