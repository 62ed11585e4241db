"""Which settings change what a model computes: what fields say, against experiment.

A run resumes with other values of those that do not, and is refused with others.
"""

import dataclasses
from types import SimpleNamespace

import torch
from fairseq.models import MODEL_DATACLASS_REGISTRY, MODEL_REGISTRY

from fairseq_transnormer.checkpoints.pretrained import FREE_FIELDS
from fairseq_transnormer.modules.options import TRAINING_ONLY, Choice
from fairseq_transnormer.modules.registry import OPTIONS, parse_attention_types
from fairseq_transnormer.plugin.models.masked_language_model import (
    TransNormerEncoderModel,
)
from fairseq_transnormer.plugin.models.sequence_classifier import (
    SequenceClassifierModel,
)

from .building import draw_tokens, task

NAMES = sorted(
    name
    for name, dataclass in MODEL_DATACLASS_REGISTRY.items()
    if dataclass and dataclass.__module__.startswith("fairseq_transnormer.")
)
OPTIONAL = {
    field.name
    for kinds in OPTIONS.values()
    for options in kinds
    for field in dataclasses.fields(options)
}
# of each family one; the others differ from them in options of their attentions
FAMILIES = (
    *("transnormer_t1_tiny", "roberta_transnormer_t2_tiny", "lra_transnormer_t1_tiny"),
)
# those that are built in a moment, a layer an attention
SMALL = [name for name in NAMES if name.endswith("_tiny") or name.startswith("lra_")]
LENGTH = 40
VALUES = {
    "attention_types": ["norm,diag"],
    "pooler_activation_fn": ["relu"],
    "gradient_statistics": ["gradients.jsonl"],
    "peak_tflops": [123.5],
    "max_target_positions": [77],
    "lrpe_base": [3.0],
    "norm_eps": [0.3],
    "attention_norm_eps": [0.3],
    "skyformer_regularization": [5.0],
}


# so small that rows of LENGTH tokens meet them
BASE = {"nystromformer_landmarks": 5, "flash_bias_positions": 4}


def fields_of(name):
    return [
        each
        for each in dataclasses.fields(MODEL_DATACLASS_REGISTRY[name])
        if each.name != "_name"
    ]


def values_of(each):
    """Others than the default."""
    if each.name in VALUES:
        return VALUES[each.name]
    if isinstance(each.default, Choice):
        found = [value for value in type(each.default) if value != each.default]
        return [value for value in found if value != "triton"]
    if isinstance(each.default, bool):
        return [not each.default]
    if isinstance(each.default, float):
        return [0.35]
    return [max(1, each.default // 64), each.default + 1, 2 * each.default]


def options_of(name):
    notation = getattr(MODEL_DATACLASS_REGISTRY[name](), "attention_types", None)
    names = set(parse_attention_types(notation)) if notation else set()
    return {
        each.name
        for n in names
        for options in OPTIONS[n]
        for each in dataclasses.fields(options)
    }


def built(name, **changes):
    """A model in evaluation, with a head where it can have one."""
    known = {each.name for each in fields_of(name)}
    changes = {k: v for k, v in BASE.items() if k in known} | changes
    if issubclass(MODEL_REGISTRY[name], SequenceClassifierModel):
        cfg = MODEL_DATACLASS_REGISTRY[name](**changes)
        data = SimpleNamespace(vocabulary_size=30, num_classes=3, num_sequences=1)
        data.train_step = data.optimizer_step = None
        return MODEL_REGISTRY[name].build_model(cfg, data).eval()
    own = task()
    own.train_step = own.optimizer_step = lambda *arguments: None
    cfg = MODEL_DATACLASS_REGISTRY[name](**changes)
    model = MODEL_REGISTRY[name].build_model(cfg, own)
    if isinstance(model, TransNormerEncoderModel):
        model.register_classification_head("head", num_classes=3)
    return model.eval()


@torch.no_grad()
def outputs(model, tokens):
    torch.manual_seed(3)
    if isinstance(model, SequenceClassifierModel):
        lengths = torch.tensor([LENGTH, LENGTH - 7])
        return [model((tokens,), (lengths,))]
    found = [model(tokens)[0]]
    if isinstance(model, TransNormerEncoderModel):
        found.append(model(tokens, classification_head_name="head")[0])
    return found


@torch.no_grad()
def changes_the_output(name, each, base, tokens) -> bool:
    """Whether another value of a field makes other outputs of the same weights."""
    expected = outputs(base, tokens)
    for value in values_of(each):
        try:
            model = built(name, **{each.name: value})
            model.load_state_dict(base.state_dict())
            found = outputs(model, tokens)
        # sizes that do not fit each other, or weights that do not fit
        except (ValueError, RuntimeError, AssertionError):
            return True
        for one, other in zip(expected, found, strict=True):
            if not torch.allclose(one, other, rtol=1e-3, atol=1e-4):
                return True
    return False


def with_large_weights(model):
    """Fresh ones are too small to show what stands between them."""
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=parameter.shape[-1] ** -0.5)
    return model


def test_fields_say_what_the_experiment_shows():
    effects = {}
    for name in SMALL:
        tokens = draw_tokens(2, LENGTH)
        torch.manual_seed(1)
        base = with_large_weights(built(name))
        tried = options_of(name)
        if name in FAMILIES:
            tried = tried | {each.name for each in fields_of(name)} - OPTIONAL
        for each in fields_of(name):
            if each.name in tried and not effects.get(each.name):
                effects[each.name] = changes_the_output(name, each, base, tokens)
    said = {
        each.name: not each.metadata[TRAINING_ONLY]
        for name in NAMES
        for each in fields_of(name)
    }
    assert effects == said


def test_a_fine_tuning_may_change_these_and_the_heads():
    said = {
        each.name
        for name in NAMES
        if name.startswith("roberta_")
        for each in fields_of(name)
        if each.metadata[TRAINING_ONLY]
    }
    heads = {"pooling", "pooler_activation_fn"}
    # options of causal attentions, which no encoder reads, aside
    assert FREE_FIELDS - heads - OPTIONAL == said - OPTIONAL
