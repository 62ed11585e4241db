"""Every model in every precision takes a training step with whatever Triton has.

The kernels are taken to have passed their trials; sizes are small, widths of heads are
those that the kernels have.
"""

import pytest
import torch

from fairseq_transnormer import ops
from fairseq_transnormer.modules.systems import SYSTEMS
from fairseq_transnormer.ops import backend
from fairseq_transnormer.training.config import compose
from tests.binary_data import numbered_words
from tests.paths import CONFIGS
from tests.proofs.models import build

PRECISIONS = ("fp32", "fp16", "bf16")
SMALL = {"embed_dim": 64, "num_heads": 2, "ffn_dim": 85, "block_size": 16}
SMALL |= {"linformer_length": 64, "flash_key_dim": 32, "flash_chunk_size": 8}
# Those that the kernels are for.
KERNELS_FOR = ("t1", "t2", "linear_unscaled")
# each of them, each kind, each precision
QUICK = {("alm", "t2", precision) for precision in PRECISIONS} | {
    ("blm", "t1", "bf16"),
    ("lra", "linear_unscaled", "bf16"),
}


def combinations():
    for system in SYSTEMS.values():
        for kind in system.kinds:
            for precision in PRECISIONS:
                case = kind, system.name, precision
                marks = [] if case in QUICK else [pytest.mark.slow]
                yield pytest.param(*case, marks=marks)


@pytest.fixture
def launched(monkeypatch):
    """How often Triton was taken, by op."""
    monkeypatch.setattr(backend, "INTERPRETER_IS_A_DEVICE", True)
    monkeypatch.delenv(ops.ENVIRONMENT_VARIABLE, raising=False)
    counts = {}

    def passed(op, *configuration):
        counts[op] = counts.get(op, 0) + 1

    monkeypatch.setattr(backend, "_why_kernels_are_avoided", passed)
    # else float32 has row-wise kernels alone
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    yield counts
    torch.set_float32_matmul_precision(before)


def step(model, kind):
    """The loss's gradients after a forward and a backward pass over padded rows."""
    tokens = torch.randint(4, 26, (2, 40), generator=torch.Generator().manual_seed(1))
    lengths = torch.tensor([40, 33])
    tokens[1, 33:] = 1
    if kind == "lra":
        output = model((tokens,), (lengths,))
    else:
        output = model(tokens, src_lengths=lengths)
    output = output[0] if isinstance(output, tuple) else output
    if kind != "lra":
        # values at pads carry no meaning
        output = output[tokens != 1]
    output.float().logsumexp(-1).mean().backward()
    return [p.grad for p in model.parameters() if p.grad is not None]


@pytest.mark.parametrize(("kind", "name", "precision"), combinations())
def test_a_step(kind, name, precision, launched):
    choices = {"model": f"{kind}_{name}", "precision": precision}
    values = compose(CONFIGS, kind, choices)
    model_values, common = values["model"], values["common"]
    assert model_values["backend"] == "auto"
    small = SMALL | {"attention_types": SYSTEMS[name].attention_types(2)}
    model_values |= small
    model = build(model_values.pop("_name"), numbered_words(26), **model_values)
    if common.get("fp16"):
        model.half()
    if common.get("bf16"):
        model.bfloat16()
    gradients = step(model, kind)
    assert gradients and all(bool(grad.isfinite().all()) for grad in gradients)
    if name in KERNELS_FOR:
        assert launched["linear_attention"] > 0
