"""Texts and scores are those of fairseq's token by token generation."""

from pathlib import Path

import pytest
import torch
from fairseq.models import MODEL_REGISTRY, FairseqLanguageModel
from fairseq.sequence_generator import EnsembleModel

import fairseq_transnormer
from fairseq_transnormer.generation import TextGenerator
from fairseq_transnormer.plugin.models import TransNormerLanguageModel
from tests.messages import refuses

from .fairseq_results import fairseq_generates

# with the token in front, 8 tokens are a block of the tiny models
PROMPTS = [
    "an old king found the bridge for many years . the river crosses the sea",
    "",
    "the town was built near a stone wall",
    "it",
    "her brother looks at two towers in",
    "the church left his son at night",
    "the church was xyzzy",
]


def same_as_fairseq(result, expected) -> None:
    tokens, score, positional_scores = expected
    assert result.tokens == tokens
    assert result.score == pytest.approx(score, abs=1e-5)
    assert result.positional_scores == pytest.approx(positional_scores, abs=1e-4)


@pytest.mark.parametrize(
    ("name", "ours", "fairseqs"),
    [
        ("t1", {}, {}),
        ("t2", {}, {}),
        ("t1", {"beam": 4}, {"beam": 4}),
        ("t2", {"beam": 3, "max_new_tokens": 1}, {"beam": 3, "max_new_tokens": 1}),
        ("t1", {"beam": 4, "temperature": 1.7}, {"beam": 4, "temperature": 1.7}),
        ("t2", {"beam": 5, "length_penalty": 0.3}, {"beam": 5, "lenpen": 0.3}),
    ],
)
def test_search_over_prompts_of_several_lengths(zoo, name, ours, fairseqs):
    ours = {"max_new_tokens": 12} | ours
    fairseqs = {"max_new_tokens": 12} | fairseqs
    trained = zoo.trained[name]
    results = trained.generator.generate(PROMPTS, batch_size=2, **ours)
    for prompt, result in zip(PROMPTS, results, strict=True):
        same_as_fairseq(result, fairseq_generates(trained.hub, prompt, **fairseqs))


def test_search_against_full_recomputation(trained, monkeypatch):
    """fairseq without incremental state: no code of ours remembers anything."""
    results = trained.generator.generate(PROMPTS[:5], beam=4, max_new_tokens=9)
    monkeypatch.setattr(EnsembleModel, "has_incremental_states", lambda self: False)
    for prompt, result in zip(PROMPTS[:5], results, strict=True):
        same_as_fairseq(result, fairseq_generates(trained.hub, prompt, 9, beam=4))


def test_shortest_continuation(trained):
    result = trained.generator.generate("the river", min_new_tokens=15, beam=2)
    expected = fairseq_generates(trained.hub, "the river", 128, min_len=17, beam=2)
    same_as_fairseq(result, expected)
    assert len(result.tokens) >= 2 + 15 + 1


WARM = {"temperature": 1.5}


@pytest.mark.parametrize(
    ("name", "ours", "fairseqs"),
    [
        ("t1", {"sampling": True}, {}),
        ("t2", {"top_k": 5}, {"sampling_topk": 5}),
        ("t1", {"top_p": 0.8}, {"sampling_topp": 0.8}),
        ("t2", WARM | {"top_k": 20}, WARM | {"sampling_topk": 20}),
        ("t1", {"top_p": 0.95, "beam": 3}, {"sampling_topp": 0.95, "beam": 3}),
    ],
)
def test_sampling_with_a_seed(zoo, name, ours, fairseqs):
    """Each prompt has the stream that it would have alone."""
    trained, prompts = zoo.trained[name], PROMPTS[:6]
    results = trained.generator.generate(prompts, seed=11, max_new_tokens=12, **ours)
    for i, (prompt, result) in enumerate(zip(prompts, results, strict=True)):
        torch.manual_seed(11 + i)
        expected = fairseq_generates(trained.hub, prompt, 12, sampling=True, **fairseqs)
        same_as_fairseq(result, expected)


def test_sampling_without_a_seed_draws_from_torchs_stream(t1):
    """Prompts of one length share it as in a batch of fairseq's."""
    prompts = ["the river became", "the church left", "two towers crosses"]
    torch.manual_seed(5)
    results = t1.generator.generate(prompts, top_k=8, max_new_tokens=9)
    torch.manual_seed(5)
    texts = t1.hub.sample(
        prompts, sampling=True, sampling_topk=8, max_len_a=1, max_len_b=8
    )
    assert [each.text for each in results] == texts


def test_seeded_sampling_leaves_torchs_stream_alone(t2):
    before = torch.get_rng_state()
    t2.generator.generate(["the river", "it"], top_k=5, seed=1, max_new_tokens=4)
    assert torch.equal(torch.get_rng_state(), before)


def test_sampling_where_the_prompt_is_too_unlikely_for_fairseq(t1):
    """At a low temperature its probabilities are 0 in float32."""
    prompt = "in in field . the xyzzy 1902 1902"
    options = {"sampling": True, "sampling_topk": 3, "temperature": 0.02}
    with pytest.raises(RuntimeError, match="multinomial"):
        fairseq_generates(t1.hub, prompt, 5, **options)
    result = t1.generator.generate(prompt, top_k=3, temperature=0.02, max_new_tokens=5)
    encoded = t1.hub.encode(prompt)[:-1].tolist()
    assert result.tokens[: len(encoded)] == encoded


def test_begin_of_sentence_token(t2):
    """Models of --add-bos-token start with <s>."""
    path = Path(t2.path)
    hub = TransNormerLanguageModel.from_pretrained(
        str(path.parent), path.name, t2.data, add_bos_token=True
    )
    result = TextGenerator(hub).generate("the river", beam=2, max_new_tokens=8)
    same_as_fairseq(result, fairseq_generates(hub, "the river", 8, beam=2))
    other = t2.generator.generate("the river", beam=2, max_new_tokens=8)
    assert result.score != pytest.approx(other.score, abs=1e-3)


@pytest.mark.parametrize("options", [{}, {"beam": 4}, {"top_p": 0.9, "seed": 3}])
def test_sentencepiece(pieces, options):
    prompts = ["the old king", "her brother was built near", ""]
    results = pieces.generator.generate(prompts, max_new_tokens=16, **options)
    fairseqs = {"beam": options.get("beam", 1)}
    if "top_p" in options:
        fairseqs |= {"sampling": True, "sampling_topp": 0.9}
    for i, (prompt, result) in enumerate(zip(prompts, results, strict=True)):
        torch.manual_seed(3 + i)
        text = pieces.hub.sample(prompt, max_len_a=1, max_len_b=15, **fairseqs)
        assert result.text == text.replace("<0xE2><0x82><0xAC>", "€")
        torch.manual_seed(3 + i)
        same_as_fairseq(result, fairseq_generates(pieces.hub, prompt, 16, **fairseqs))


def test_one_string_gives_one_text_and_no_prompt_none(t1):
    one = t1.generator.generate("the river", max_new_tokens=3)
    assert t1.generator.generate(["the river"], max_new_tokens=3) == [one]
    assert t1.generator.generate([]) == []


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
