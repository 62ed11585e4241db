"""The backend of a training step: the configuration's, or else the environment's."""

import pytest
import torch

from fairseq_transnormer.modules import (
    ClassifierConfig,
    SequenceClassifier,
    token_mixers,
)
from fairseq_transnormer.ops import ENVIRONMENT_VARIABLE

from .building import (
    PAD,
    SMALL,
    VOCABULARY,
    draw_tokens,
    language_model,
    masked_language_model,
    models,
)

# what else calls an op, beside the defaults
OTHERS = {
    "norms": {"norm_type": "rms_norm"},
    "dropout": {"dropout": 0.1, "activation_dropout": 0.1},
    "post-norm": {"norm_position": "post"},
    "no LRPE": {"relative_position": "none"},
}
CASES = [(language_model, name, {}) for name in token_mixers(causal=True)]
CASES += [(masked_language_model, name, {}) for name in token_mixers(causal=False)]
CASES += [
    (build, "diag,norm", changes)
    for changes in OTHERS.values()
    for build in (language_model, masked_language_model)
]


def training_step(model):
    """The loss of a batch with pads, and the gradients."""
    torch.manual_seed(2)
    tokens, targets = draw_tokens(2, 21), draw_tokens(2, 21)
    tokens[1, 15:] = targets[1, 15:] = PAD
    total, _ = model.train()(tokens, targets=targets)
    total.backward()
    return total.detach(), [p.grad for p in model.parameters() if p.grad is not None]


@models
@pytest.mark.parametrize("variant", ["t1", "t2"])
def test_a_training_step_of_each_backend_is_the_same(variant, build, monkeypatch):
    model, found = build(variant), {}
    for backend in ("torch", "reference"):
        monkeypatch.setenv(ENVIRONMENT_VARIABLE, backend)
        model.zero_grad()
        found[backend] = training_step(model)
    # LRPE's reflection is a unit vector in float32, as far as that goes
    for one, other in zip(*found.values(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("build", "attention_types", "changes"),
    CASES,
    ids=lambda each: getattr(each, "__name__", str(each)),
)
def test_no_op_passes_the_backend_of_the_configuration_over(
    build, attention_types, changes, monkeypatch
):
    model = build("t2", attention_types=attention_types, backend="torch", **changes)
    # an op that is left to choose for itself says that there is no such backend
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, "none such")
    training_step(model)


def test_no_op_of_a_classifier_passes_it_over(monkeypatch):
    config = ClassifierConfig(**SMALL, backend="torch")
    model = SequenceClassifier(config, VOCABULARY, classes=3)
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, "none such")
    tokens, lengths = draw_tokens(2, 21), torch.tensor([21, 15])
    model.train()((tokens,), (lengths,)).sum().backward()
