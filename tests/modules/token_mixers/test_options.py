"""Each field that a mixer registers reaches it."""

import dataclasses
import pickle

import pytest
import torch

from fairseq_transnormer.modules.options import Choice
from fairseq_transnormer.modules.registry import OPTIONS
from tests.messages import assert_names

from ..building import BLOCK
from .cases import CAUSAL, DEFAULT_CASES, draw

# what a batch leaves to the next one in training; test_long_short_memory.py
SEEN_LATER = {"long_short_memory"}
FIELDS = [
    (DEFAULT_CASES[name], each)
    for name, options in OPTIONS.items()
    for each in dataclasses.fields(options)
    if each.name not in SEEN_LATER
]


def other_values(each):
    if issubclass(each.type, Choice):
        return [member for member in each.type if member != each.default]
    if each.type is bool:
        return [not each.default]
    # one of the numbers is smaller than the test's inputs are long
    return [max(1, each.default // 64), each.default + 1]


@pytest.mark.parametrize(
    ("case", "each"),
    FIELDS,
    ids=lambda value: getattr(value, "label", getattr(value, "name", None)),
)
@torch.no_grad()
def test_a_mixer_follows_its_fields(case, each):
    x = draw(2, 3 * BLOCK)

    def output(causal, **changes):
        torch.manual_seed(1)
        return case.layer(causal, **changes)(x)

    differences = []
    for causal in (False, True) if case in CAUSAL else (False,):
        default = output(causal)
        assert torch.equal(output(causal), default)
        for value in other_values(each):
            try:
                changed = output(causal, **{each.name: value})
            except ValueError as error:  # two fields that do not fit each other
                assert_names(error, each.name, value)
            else:
                # a gain of ones, as rms_norm starts with, changes nothing
                differences.append(not torch.allclose(changed, default))
    assert any(differences)


@pytest.mark.parametrize("name", OPTIONS)
def test_names_say_whose_they_are_and_values_can_be_pickled(name):
    options = OPTIONS[name]
    assert pickle.loads(pickle.dumps(options())) == options()
    for each in dataclasses.fields(options):
        assert each.metadata["help"] and isinstance(each.type, type)
    config = DEFAULT_CASES[name].config(causal=True)
    assert all(hasattr(config, each.name) for each in dataclasses.fields(options))
