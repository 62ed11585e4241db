"""Weights that accelerate keeps elsewhere between the calls of their modules."""

import pytest
import torch

from fairseq_transnormer.modules import EncoderT2Config, LanguageModelT2Config
from tests.messages import refuses

SIZES = {
    "attention_types": "diag,norm",
    "embed_dim": 16,
    "num_heads": 2,
    "ffn_dim": 8,
    "block_size": 4,
}
TOKENS = torch.tensor([[5, 9, 4, 17, 6, 8]])


@pytest.fixture
def saved(hf, tmp_path):
    """Save a model; the model, and one whose weights lie where a map says."""
    pytest.importorskip("accelerate", reason="pip install 'fairseq-transnormer[hf]'")

    def make(kind, config, device_map):
        torch.manual_seed(1)
        model = getattr(hf, kind)(hf.TransNormerConfig.of(config, 20)).eval()
        model.save_pretrained(tmp_path)
        places = {"device_map": device_map, "offload_folder": str(tmp_path / "weights")}
        return model, type(model).from_pretrained(tmp_path, **places).eval()

    return make


@torch.no_grad()
@pytest.mark.parametrize(
    ("kind", "config", "device_map"),
    [
        ("TransNormerForMaskedLM", EncoderT2Config(**SIZES), {"": "disk"}),
        (
            "TransNormerForCausalLM",
            LanguageModelT2Config(**SIZES, untie_output_embedding=True),
            {"": "disk"},
        ),
        (
            "TransNormerForCausalLM",
            LanguageModelT2Config(**SIZES),
            {"model.embed_tokens": "cpu", "model.embed_positions": "cpu"}
            | {"model.stack": "disk"},
        ),
    ],
)
def test_weights_on_the_disk(kind, config, device_map, saved):
    model, other = saved(kind, config, device_map)
    torch.testing.assert_close(other(TOKENS).logits, model(TOKENS).logits)


@torch.no_grad()
def test_a_tied_embedding_on_the_disk_is_refused(saved):
    """torch would multiply by it all the same, and return what memory holds."""
    config = LanguageModelT2Config(**SIZES)
    _, model = saved("TransNormerForCausalLM", config, {"": "disk"})
    with refuses(ValueError, "embed_tokens.weight", "untie_output_embedding"):
        model(TOKENS)
