"""fairseq's models and configurations of FLASH-quad, FLASH and Transformer-LS."""

import pytest
import torch
from fairseq.models import MODEL_DATACLASS_REGISTRY, MODEL_REGISTRY

from tests.resolved_configs import hydra_config
from tests.test_configs import batch, built

from .building import build, draw_tokens, task
from .test_variants import defaults, plain

# configuration, architecture, layers, parameters (specification, "Parameter counts")
SYSTEMS = [
    ("alm_flash_quad", "flash_quad", 10, 153_514_752),
    ("alm_flash", "flash", 10, 153_519_872),
    ("alm_ls", "transformer_ls", 6, 159_461_904),
    ("blm_flash_quad", "roberta_flash_quad", 24, 127_111_233),
    ("blm_flash", "roberta_flash", 24, 127_123_521),
    ("blm_ls", "roberta_transformer_ls", 12, 128_277_081),
]
systems = pytest.mark.parametrize(("primary", "arch", "layers", "total"), SYSTEMS)


def count(module):
    return sum(p.numel() for p in module.parameters())


@systems
def test_parameters_of_configuration_and_architecture(primary, arch, layers, total):
    cfg = hydra_config(primary)
    assert cfg.model._name == arch
    vocabulary = 267_744 if primary.startswith("alm") else 50_265
    assert count(built(cfg, vocabulary)) == total
    assert plain(cfg.model) == defaults(arch)
    with torch.device("meta"):
        model = MODEL_REGISTRY[arch].build_model(
            MODEL_DATACLASS_REGISTRY[arch](), task()
        )
    core = (model.decoder if primary.startswith("alm") else model.encoder).model
    assert len(core.stack.layers) == layers
    assert (core.stack.final_norm is not None) == primary.startswith("alm_flash")


@systems
def test_training_is_the_papers(primary, arch, layers, total):
    """All systems are trained alike (section 5.1)."""
    ours, t2 = hydra_config(primary), hydra_config(f"{primary[:3]}_t2")
    assert batch(ours) == batch(t2)
    for group in ("task", "criterion", "optimizer", "lr_scheduler", "optimization"):
        assert ours[group] == t2[group]
    assert ours.model.dropout == t2.model.dropout == 0.1
    assert ours.model.attention_dropout == t2.model.attention_dropout


@pytest.mark.parametrize("untied", [False, True])
def test_the_output_bias_is_added(untied):
    model = build("transformer_ls_tiny", untie_output_embedding=untied)
    plain_model = build(
        "transformer_ls_tiny", untie_output_embedding=untied, output_bias=False
    )
    words = len(task().dictionary)
    assert count(model) - count(plain_model) == words
    core, tokens = model.decoder.model, draw_tokens(2, 5)
    bias = core.output_projection.bias if untied else core.output_bias
    before, _ = model(tokens)
    assert (bias == 0).all()
    with torch.no_grad():
        bias += torch.arange(words)
    torch.testing.assert_close(model(tokens)[0], before + torch.arange(words))
