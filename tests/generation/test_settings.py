"""Settings that cannot be are refused with the field, the value and what is allowed."""

import pytest

from fairseq_transnormer.generation import GenerationError, GenerationSettings

WRONG = [
    ({"max_new_tokens": 0}, "max_new_tokens=0; allowed: 1 or more"),
    ({"min_new_tokens": -1}, "min_new_tokens=-1; allowed: 0 to max_new_tokens=128"),
    (
        {"min_new_tokens": 9, "max_new_tokens": 8},
        "min_new_tokens=9; allowed: 0 to max_new_tokens=8",
    ),
    ({"beam": 0}, "beam=0; allowed: 1 or more"),
    ({"lines": 0}, "lines=0; allowed: 1 or more"),
    ({"batch_size": -3}, "batch_size=-3; allowed: 1 or more"),
    ({"temperature": 0.0}, "temperature=0.0; allowed: more than 0"),
    ({"temperature": float("nan")}, "temperature=nan; allowed: more than 0"),
    ({"temperature": float("inf")}, "temperature=inf; allowed: more than 0"),
    ({"top_k": 0}, "top_k=0; allowed: 1 or more"),
    ({"top_p": 0.0}, "top_p=0.0; allowed: more than 0, up to 1"),
    ({"top_p": 1.5}, "top_p=1.5; allowed: more than 0, up to 1"),
    ({"top_k": 5, "top_p": 0.5}, "top_k=5 and top_p=0.5; allowed: one of them"),
    ({"length_penalty": float("nan")}, "length_penalty=nan; allowed: numbers"),
    ({"seed": -1}, "seed=-1; allowed: 0 to 2^63 - 1"),
]


@pytest.mark.parametrize(("settings", "message"), WRONG)
def test_wrong_settings(settings, message):
    with pytest.raises(GenerationError) as error:
        GenerationSettings(**settings)
    assert message in str(error.value)


def test_top_k_and_top_p_imply_sampling():
    assert not GenerationSettings(temperature=0.5).samples
    assert GenerationSettings(top_k=1).samples
    assert GenerationSettings(top_p=1.0).samples
    assert GenerationSettings(sampling=True).samples


def test_top_k_beyond_the_dictionary(t2):
    with pytest.raises(GenerationError, match="top_k=5000; allowed: up to"):
        t2.generator.generate("the river", top_k=5000)


@pytest.mark.parametrize("word", ["</s>", "<pad>"])
def test_prompts_with_symbols_that_are_no_text(t2, word):
    with pytest.raises(GenerationError, match=f"prompt 2 contains '{word}'"):
        t2.generator.generate(["the river", f"the {word} river"])


def test_prompts_beyond_the_models_longest_sequence(t2, monkeypatch):
    monkeypatch.setattr(t2.generator.model.decoder, "_max_positions", 16)
    t2.generator.generate("the river", max_new_tokens=13)
    with pytest.raises(GenerationError) as error:
        t2.generator.generate("the river", max_new_tokens=14)
    assert "prompt 1 has 2 tokens and max_new_tokens=14" in str(error.value)
    assert "together up to 15" in str(error.value)
