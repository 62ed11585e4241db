"""LRPE as a module: what it holds, and that it stays in float32."""

import copy

import pytest
import torch

from fairseq_transnormer.modules import LRPE, CausalLanguageModel, LanguageModelT1Config

from .building import SMALL

CONVERSIONS = {
    "half": lambda m: m.half(),
    "bfloat16": lambda m: m.bfloat16(),
    "to dtype": lambda m: m.to(torch.float16),
    "to device and dtype": lambda m: m.to("cpu", torch.bfloat16),
    "to tensor": lambda m: m.to(torch.zeros(1, dtype=torch.float16)),
    "type": lambda m: m.type(torch.bfloat16),
    "twice": lambda m: m.half().bfloat16(),
}


def test_start_values():
    module = LRPE(64)
    expected = [10000.0 ** (-2 * i / 64) for i in range(32)]
    torch.testing.assert_close(module.theta.tolist(), expected)
    torch.testing.assert_close(LRPE(4, base=100.0).theta.tolist(), [1.0, 0.1])
    assert abs(module.reflection.norm().item() - 1) < 1e-6
    assert not torch.equal(LRPE(64).reflection, module.reflection)
    assert module.theta.requires_grad and not module.reflection.requires_grad


@pytest.mark.parametrize("convert", CONVERSIONS.values(), ids=CONVERSIONS)
def test_half_precision_leaves_it_in_float32(convert):
    config = LanguageModelT1Config(**SMALL)
    model = CausalLanguageModel(config, 20)
    before = copy.deepcopy(model)
    convert(model)
    halves = (torch.float16, torch.bfloat16)
    for (name, parameter), old in zip(
        model.named_parameters(), before.parameters(), strict=True
    ):
        if ".lrpe." in name:
            assert parameter.dtype == torch.float32
            assert torch.equal(parameter, old)
            assert parameter.requires_grad == old.requires_grad
        else:
            assert parameter.dtype in halves
    assert model(torch.tensor([[3, 4, 5]])).dtype in halves


def test_gradients_are_kept_in_float32_too():
    module = LRPE(4)
    x = torch.randn(1, 3, 1, 4)
    module(x, x, torch.arange(3))[0].sum().backward()
    gradient = module.theta.grad.clone()
    module.half()
    assert torch.equal(module.theta.grad, gradient)


def test_it_follows_to_float64_and_other_devices():
    assert LRPE(4).double().theta.dtype == torch.float64
    assert LRPE(4).to("meta").theta.device.type == "meta"
    module = LRPE(4).to("meta", torch.float16)
    assert module.theta.device.type == "meta" and module.theta.dtype == torch.float32


def test_it_is_saved_and_loaded_in_float32():
    saved = LRPE(4).half().state_dict()
    assert {t.dtype for t in saved.values()} == {torch.float32}
    other = LRPE(4).half()
    other.load_state_dict(saved)
    assert torch.equal(other.reflection, saved["reflection"])
