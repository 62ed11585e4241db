"""Every causal system trains, is loaded again and generates what fairseq generates."""

import pytest
from fairseq.models import MODEL_REGISTRY, FairseqLanguageModel

import fairseq_transnormer
from tests.messages import refuses

from .fairseq_results import fairseq_generates
from .test_equality import PROMPTS, same_as_fairseq

PACKAGE = fairseq_transnormer.__name__ + "."
SYSTEMS = sorted(
    name.removesuffix("_tiny")
    for name, model in MODEL_REGISTRY.items()
    if name.endswith("_tiny")
    and model.__module__.startswith(PACKAGE)
    and issubclass(model, FairseqLanguageModel)
)
# the fixtures of the other files
SYSTEMS = [name for name in SYSTEMS if not name.startswith("transnormer")]
# one that keeps all keys, one that keeps sums, and one that keeps both
USUAL = ("vanilla_transformer", "linear_transformer", "transformer_ls")


@pytest.fixture(
    scope="module",
    params=[
        name if name in USUAL else pytest.param(name, marks=pytest.mark.slow)
        for name in SYSTEMS
    ],
)
def system(request, zoo):
    return zoo.trained[f"{request.param}_tiny"]


def test_texts_are_those_of_fairseqs_token_by_token_generation(system):
    results = system.generator.generate(
        PROMPTS[:6], beam=3, max_new_tokens=7, batch_size=2
    )
    for prompt, result in zip(PROMPTS, results, strict=False):
        expected = fairseq_generates(system.hub, prompt, 7, beam=3)
        same_as_fairseq(result, expected)


def test_lines_in_a_batch_and_in_a_stream(system):
    """Prompts of unequal length are continued together after their first lines."""
    options = {"lines": 3, "max_new_tokens": 6}
    together = system.generator.generate(PROMPTS[:4], **options)
    for prompt, result in zip(PROMPTS, together, strict=False):
        alone = system.generator.generate(prompt, **options)
        assert alone.tokens == result.tokens
        assert alone.score == pytest.approx(result.score, abs=1e-5)
    assert "".join(system.generator.stream(PROMPTS[0], **options)) == together[0].text


def test_the_longest_input_is_respected(system):
    longest = system.generator.model.max_decoder_positions()
    with refuses(ValueError, "max_new_tokens", f"up to {longest - 1}"):
        system.generator.generate("the river", max_new_tokens=longest)
