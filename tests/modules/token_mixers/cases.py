"""What every test of this folder runs on: each registered mixer, and variants of some.

A new attention or layer joins by being registered. One whose values change more than
numbers adds them to VARIANTS.
"""

from typing import NamedTuple

import pytest
import torch

from fairseq_transnormer.modules import (
    ATTENTIONS,
    LAYERS,
    EncoderConfig,
    LanguageModelConfig,
    LayerStack,
    token_mixers,
)
from tests.modules.building import SMALL

# name: the changes of each variant
VARIANTS = {
    "diag": {"t1": {"diag_activation": "relu", "diag_norm": "simple_rms_norm"}},
    "norm": {"t1": {"norm_attention_activation": "elu"}},
    "linear": {"unscaled": {"linear_normalizer": "none"}},
    "cosformer": {"by length": {"cosformer_length": 0}},
    "nystromformer": {"convolution": {"nystromformer_kernel_size": 5}},
}
# variants; whole attentions say it themselves
BIDIRECTIONAL_ONLY = {"cosformer by length"}
# outputs that are neither averages nor normalised leave float16's range
UNBOUNDED = {"linear unscaled"}
# values with which an attention has nothing to choose, where rounding would change it
WITHOUT_CHOICES = {
    "informer": {"informer_factor": 512},
    "reformer": {"reformer_chunk_size": 256, "reformer_buckets": 2},
}


class Case(NamedTuple):
    """A mixer with values of its own."""

    name: str
    label: str
    changes: dict

    def config(self, causal: bool, **changes):
        """A configuration whose only layer is the mixer."""
        kind = LanguageModelConfig if causal else EncoderConfig
        values = SMALL | {"attention_types": self.name} | self.changes | changes
        return kind(**values)

    def layer(self, causal: bool, **changes):
        """The attention, or the whole layer, in float64 and in evaluation."""
        kind = (ATTENTIONS | LAYERS)[self.name]
        layer = kind(self.config(causal, **changes), causal=causal)
        return _no_zeros(layer).double().eval()

    def stack(self, causal: bool, **changes):
        """A ``LayerStack`` of two of them."""
        types = {"attention_types": f"{self.name}*2"}
        stack = LayerStack(self.config(causal, **(changes | types)), causal=causal)
        return _no_zeros(stack).double().eval()


def _no_zeros(module):
    """Weights that start at zero would hide what they multiply."""
    for parameter in module.parameters():
        if parameter.requires_grad and (parameter == 0).all():
            torch.nn.init.normal_(parameter, std=0.3)
    return module


DEFAULT_CASES = {name: Case(name, name, {}) for name in token_mixers()}
CASES = list(DEFAULT_CASES.values())
CASES += [
    Case(name, f"{name} {label}", changes)
    for name, variants in VARIANTS.items()
    for label, changes in variants.items()
]
CAUSAL = [
    case
    for case in CASES
    if case.name in token_mixers(causal=True) and case.label not in BIDIRECTIONAL_ONLY
]


def label(value):
    return getattr(value, "label", None)


causal_cases = pytest.mark.parametrize("case", CAUSAL, ids=label)
ALL = [(case, True) for case in CAUSAL] + [(case, False) for case in CASES]


def _id(value):
    if isinstance(value, bool):
        return "causal" if value else "bidirectional"
    return label(value) or getattr(value, "__name__", None)


def over(pairs):
    """Parametrise a test over cases, each causal or not."""
    return pytest.mark.parametrize(("case", "causal"), pairs, ids=_id)


def in_turn(name, values, pairs=ALL):
    """... each with one of the values of an argument, in turn."""
    return pytest.mark.parametrize(
        ("case", "causal", name),
        [(*pair, values[i % len(values)]) for i, pair in enumerate(pairs)],
        ids=_id,
    )


all_cases = over(ALL)


def draw(*shape, width=SMALL["embed_dim"]):
    """Inputs in float64."""
    return torch.randn(*shape, width, dtype=torch.float64)
