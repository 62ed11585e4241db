"""Each field that a mixer registers reaches it."""

import dataclasses

import pytest
import torch

from fairseq_transnormer.modules.options import Choice
from fairseq_transnormer.modules.registry import (
    ATTENTIONS,
    LAYERS,
    OPTIONS,
    token_mixers,
    unused_options,
)
from tests.messages import assert_names

from ..building import BLOCK
from .cases import CAUSAL, DEFAULT_CASES, draw

# what a batch leaves to the next one in training; test_long_short_memory.py
SEEN_LATER = {"long_short_memory"}
FIELDS = [
    (DEFAULT_CASES[name], each)
    for name, kinds in OPTIONS.items()
    for options in kinds
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
        return case.layer(causal, **changes)(x)[0]

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


class Watched:
    """A configuration that remembers which of its fields were read, in ``seen``."""

    def __init__(self, config):
        self._config, self.seen = config, set()

    def __getattr__(self, name):
        self.seen.add(name)
        return getattr(self._config, name)


@pytest.mark.parametrize("name", OPTIONS)
def test_a_mixer_registers_the_fields_that_it_reads(name):
    causal = name in token_mixers(causal=True)
    watched = Watched(DEFAULT_CASES[name].config(causal=causal))
    (ATTENTIONS | LAYERS)[name](watched, causal=causal)
    # the options of all that the model has not are those it does not read
    assert not watched.seen & unused_options(name)
    own = {each.name for kind in OPTIONS[name] for each in dataclasses.fields(kind)}
    assert own <= watched.seen


def test_options_of_several_models_are_used_if_one_reads_them():
    assert "block_size" in unused_options("norm*3,flash")
    assert "block_size" not in unused_options("norm*3", "diag_then_norm*2")
    assert not unused_options("norm*3", "")
