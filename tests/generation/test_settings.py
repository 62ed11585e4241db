"""Settings that cannot be are refused with the field, the value and what is allowed."""

import pytest

from fairseq_transnormer.generation import GenerationError, GenerationSettings
from tests.messages import refuses

WRONG = [
    ({"max_new_tokens": 0}, ["1 or more"]),
    ({"min_new_tokens": -1}, [0, "max_new_tokens=128"]),
    ({"min_new_tokens": 9, "max_new_tokens": 8}, [0]),
    ({"beam": 0}, ["1 or more"]),
    ({"lines": 0}, ["1 or more"]),
    ({"batch_size": -3}, ["1 or more"]),
    ({"temperature": 0.0}, ["more than 0"]),
    ({"temperature": float("nan")}, ["more than 0"]),
    ({"temperature": float("inf")}, ["more than 0"]),
    ({"top_k": 0}, ["1 or more"]),
    ({"top_p": 0.0}, ["more than 0", "up to 1"]),
    ({"top_p": 1.5}, ["more than 0", "up to 1"]),
    ({"top_k": 5, "top_p": 0.5}, ["one"]),
    ({"length_penalty": float("nan")}, ["numbers"]),
    ({"seed": -1}, [0, "2^63 - 1"]),
]


@pytest.mark.parametrize(("settings", "allowed"), WRONG)
def test_wrong_settings(settings, allowed):
    given = [f"{name}={value}" for name, value in settings.items()]
    with refuses(GenerationError, *given, "allowed", *allowed, alone=True):
        GenerationSettings(**settings)


def test_top_k_and_top_p_imply_sampling():
    assert not GenerationSettings(temperature=0.5).samples
    assert GenerationSettings(top_k=1).samples
    assert GenerationSettings(top_p=1.0).samples
    assert GenerationSettings(sampling=True).samples


def test_top_k_beyond_the_dictionary(t2):
    with refuses(GenerationError, "top_k=5000", "up to", len(t2.generator.dictionary)):
        t2.generator.generate("the river", top_k=5000)


@pytest.mark.parametrize("word", ["</s>", "<pad>"])
def test_prompts_with_symbols_that_are_no_text(t2, word):
    with refuses(GenerationError, "prompt 2", f"'{word}'"):
        t2.generator.generate(["the river", f"the {word} river"])


def test_prompts_beyond_the_models_longest_sequence(t2, monkeypatch):
    monkeypatch.setattr(t2.generator.model.decoder, "_max_positions", 16)
    t2.generator.generate("the river", max_new_tokens=13)
    parts = ("prompt 1", "2 tokens", "max_new_tokens=14", "up to 15")
    with refuses(GenerationError, *parts):
        t2.generator.generate("the river", max_new_tokens=14)
