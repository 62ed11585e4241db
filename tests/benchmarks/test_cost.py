"""What the paper's trainings take at the least: operations and bytes by hand."""

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from benchmarks import cost
from fairseq_transnormer.modules import CausalLanguageModel, LanguageModelT2Config

from .runs import run_command

ALM, BLM = cost.MODELS


def test_products_of_the_paper_model_by_hand():
    """The layers' 18.9 million weights and the output layer's 137.1 million, 2 forward
    and 4 backward; the attentions' 4 w d and 4 d D beside them."""
    products = 6 * (6 * 3_145_728 + 512 * 267_744)
    attentions = 3 * (3 * 4 * 64 * 512 + 3 * 4 * 512 * 64)
    found = cost.flops(ALM, ALM.build())
    assert found == pytest.approx(products + attentions, rel=2e-3)


def test_operations_are_torchs_count():
    """Softmax attention as products, whose scores both count whole."""
    config = LanguageModelT2Config(
        attention_types="softmax*2", embed_dim=32, num_heads=2, ffn_dim=64
    )
    built = CausalLanguageModel(config, 100)
    tokens = torch.randint(4, 100, (2, cost.LENGTH))
    with FlopCounterMode(display=False) as counted, sdpa_kernel(SDPBackend.MATH):
        built(tokens).sum().backward()
    found = cost.flops(ALM, built) * tokens.numel()
    assert counted.get_total_flops() == pytest.approx(found, rel=1e-3)


def test_bytes_of_a_batch_by_hand():
    """4,096 tokens: nine chunks of 501 rows of 267,744 logits, and six layers."""
    logits = 6 * 4096 * 267_744 * 2
    weights = 9 * 512 * 267_744 * 12
    layers = 6 * 130 * 4096 * 512 * 2
    assert cost.moved_bytes(ALM, ALM.build(), 8) == logits + weights + layers


def test_the_table(capsys):
    assert run_command(["cost", "--gpus", "16"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 + 2 * 3 and "| ALM T2 | 16 x A100 |" in lines[2]
    with_eight, with_sixteen = (cost.rows(n)[0] for n in (8, 16))
    assert float(with_eight["TFLOP"]) == pytest.approx(
        2 * float(with_sixteen["TFLOP"]), rel=1e-2
    )
    assert BLM.predicted == 0.15
