"""Settings that cannot be are refused with the field, the value and what is allowed."""

import math

import pytest

from fairseq_transnormer.generation import GenerationError, GenerationSettings
from tests.messages import refuses

NAN, INF = float("nan"), float("inf")
WRONG = [
    *({"max_new_tokens": each} for each in (0, -1, 2**40, 1.0, "8", None, True)),
    *({"min_new_tokens": each} for each in (-1, 129, 0.5)),
    *({"beam": each} for each in (0, 2**40, 2.5, "2", None)),
    *({"lines": each} for each in (0, 2**40, 1.5)),
    *({"batch_size": each} for each in (0, -3, 1.5, [1])),
    *({"temperature": each} for each in (0.0, -1, NAN, INF, 1e-45, 1e300, "1", None)),
    *({"top_k": each} for each in (0, -1, 2.5, "3", True)),
    *({"top_p": each} for each in (0.0, 1.5, NAN, "0.5", True)),
    *({"length_penalty": each} for each in (NAN, INF, 1e308, -1e308, "1", None)),
    *({"seed": each, "sampling": True} for each in (-1, 2**63, 1.5, "1", True)),
    *({"sampling": each} for each in (1, "yes", None)),
]


def test_wrong_settings():
    for settings in WRONG:
        name, value = next(iter(settings.items()))
        with refuses(GenerationError, f"{name}={value!r}", "allowed"):
            GenerationSettings(**settings)


def test_settings_that_do_not_go_together():
    with refuses(GenerationError, "min_new_tokens=9", "max_new_tokens=8"):
        GenerationSettings(min_new_tokens=9, max_new_tokens=8)
    with refuses(GenerationError, "top_k=5", "top_p=0.5", "one of them"):
        GenerationSettings(top_k=5, top_p=0.5)
    with refuses(GenerationError, "seed=1", "sampling", "top_k", "top_p"):
        GenerationSettings(seed=1)


@pytest.mark.parametrize(
    "settings",
    [
        {"sampling": True, "temperature": 1e-8},
        {"sampling": True, "temperature": 1e8},
        {"temperature": 1e-8, "beam": 2},
        {"top_p": 1e-300, "seed": 2**63 - 1},
        {"length_penalty": 50.0},
        {"length_penalty": -50, "beam": 2},
    ],
    ids=str,
)
def test_the_farthest_settings_work(settings, t2):
    found = t2.generator.generate(["the river", "it"], max_new_tokens=6, **settings)
    assert all(math.isfinite(each.score) for each in found)


def test_prompts_that_are_no_text(t2, pieces):
    for prompt in ("the \udcff", "\ud800", None, 5, b"the"):
        for generator in (t2.generator, pieces.generator):
            with refuses(GenerationError, "prompt 2", "allowed"):
                generator.generate(["the river", prompt])
            with refuses(GenerationError, "prompt", "allowed"):
                generator.unknown_words(prompt)
    for word in ("</s>", "<pad>"):
        with refuses(GenerationError, "prompt 2", f"'{word}'"):
            t2.generator.generate(["the river", f"the {word} river"])
    with refuses(GenerationError, "top_k=5000", "up to", len(t2.generator.dictionary)):
        t2.generator.generate("the river", top_k=5000)


def test_top_k_and_top_p_imply_sampling():
    assert not GenerationSettings(temperature=0.5).samples
    assert GenerationSettings(top_k=1).samples
    assert GenerationSettings(top_p=1.0).samples
    assert GenerationSettings(sampling=True).samples


def test_prompts_beyond_the_models_longest_sequence(t2, monkeypatch):
    monkeypatch.setattr(t2.generator.model.decoder, "_max_positions", 16)
    t2.generator.generate("the river", max_new_tokens=13)
    parts = ("prompt 1", "2 tokens", "max_new_tokens=14", "up to 15")
    with refuses(GenerationError, *parts):
        t2.generator.generate("the river", max_new_tokens=14)
