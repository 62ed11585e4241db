"""Weights that accelerate keeps elsewhere between the calls of their modules."""

import pytest
import torch

pytest.importorskip("transformers", reason="pip install 'fairseq-transnormer[hf]'")
pytest.importorskip("accelerate", reason="pip install 'fairseq-transnormer[hf]'")

from fairseq_transnormer.hf import (
    TransNormerConfig,
    TransNormerForCausalLM,
    TransNormerForMaskedLM,
)
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


def saved(folder, model_class, config):
    torch.manual_seed(1)
    model = model_class(TransNormerConfig.of(config, 20)).eval()
    model.save_pretrained(folder)
    return model


def offloaded(folder, model_class, device_map):
    places = {"device_map": device_map, "offload_folder": str(folder / "weights")}
    return model_class.from_pretrained(folder, **places).eval()


@torch.no_grad()
@pytest.mark.parametrize(
    ("model_class", "config"),
    [
        (TransNormerForMaskedLM, EncoderT2Config(**SIZES)),
        (
            TransNormerForCausalLM,
            LanguageModelT2Config(**SIZES, untie_output_embedding=True),
        ),
    ],
)
def test_all_weights_on_the_disk(model_class, config, tmp_path):
    model = saved(tmp_path, model_class, config)
    other = offloaded(tmp_path, model_class, {"": "disk"})
    torch.testing.assert_close(other(TOKENS).logits, model(TOKENS).logits)


@torch.no_grad()
def test_layers_alone_on_the_disk(tmp_path):
    model = saved(tmp_path, TransNormerForCausalLM, LanguageModelT2Config(**SIZES))
    other = offloaded(
        tmp_path,
        TransNormerForCausalLM,
        {"model.embed_tokens": "cpu", "model.embed_positions": "cpu"}
        | {"model.stack": "disk"},
    )
    torch.testing.assert_close(other(TOKENS).logits, model(TOKENS).logits)


@torch.no_grad()
def test_a_tied_embedding_on_the_disk_is_refused(tmp_path):
    """torch would multiply by it all the same, and return what memory holds."""
    saved(tmp_path, TransNormerForCausalLM, LanguageModelT2Config(**SIZES))
    model = offloaded(tmp_path, TransNormerForCausalLM, {"": "disk"})
    with refuses(ValueError, "embed_tokens.weight", "untie_output_embedding"):
        model(TOKENS)
