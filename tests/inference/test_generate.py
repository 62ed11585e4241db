"""Texts and scores are those of fairseq's token by token generation.

What is drawn follows the model's distribution, whatever runs beside it.
"""

import math
import shutil
import threading

import pytest
import torch
from fairseq.hub_utils import GeneratorHubInterface
from fairseq.models import MODEL_REGISTRY, FairseqLanguageModel
from fairseq.sequence_generator import EnsembleModel

import fairseq_transnormer
from fairseq_transnormer.checkpoints.safe_loading import CheckpointError
from fairseq_transnormer.inference import TextGenerator, generate
from fairseq_transnormer.ops import state_bytes
from fairseq_transnormer.plugin.models import TransNormerLanguageModel
from tests import zoo as making
from tests.inference.test_score import changed, overflowing
from tests.messages import refuses
from tests.paths import gpt2_files

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


@pytest.fixture(params=["t1", "t2"])
def trained(request):
    return request.getfixturevalue(request.param)


def fairseq_generates(
    hub: GeneratorHubInterface, prompt: str, max_new_tokens: int, **options
) -> tuple[list[int], float, list[float]]:
    """Tokens, score and log-probabilities of the best, for one prompt at a time.

    fairseq's lengths depend on the batch.
    """
    # fairseq's source has a token in front of the prompt, hence -1
    best = hub.generate(
        [hub.encode(prompt)],
        max_len_a=1,
        max_len_b=max_new_tokens - 1,
        **{"beam": 1} | options,
    )[0][0]
    return (
        best["tokens"].tolist(),
        best["score"].item(),
        best["positional_scores"].tolist(),
    )


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
    ours, fairseqs = ({"max_new_tokens": 12} | each for each in (ours, fairseqs))
    trained = zoo.trained[name]
    results = trained.generator.generate(PROMPTS, batch_size=3, **ours)
    for prompt, result in zip(PROMPTS, results, strict=True):
        same_as_fairseq(result, fairseq_generates(trained.hub, prompt, **fairseqs))


def test_search_against_full_recomputation(trained, monkeypatch):
    """fairseq without incremental state: no code of ours remembers anything."""
    results = trained.generator.generate(PROMPTS[:5], beam=4, max_new_tokens=9)
    monkeypatch.setattr(EnsembleModel, "has_incremental_states", lambda self: False)
    for prompt, result in zip(PROMPTS[:5], results, strict=True):
        same_as_fairseq(result, fairseq_generates(trained.hub, prompt, 9, beam=4))


def test_log_probabilities_that_are_no_numbers(zoo, tmp_path):
    path = changed(zoo, tmp_path, overflowing)
    generator = TextGenerator.from_checkpoint(path, device="cpu")
    for prompt in ("it", "it is a"):
        with refuses(CheckpointError, path, "overflow"):
            generator.generate([prompt], max_new_tokens=3)


def test_shortest_continuation(trained):
    result = trained.generator.generate("the river", min_new_tokens=15, beam=2)
    expected = fairseq_generates(trained.hub, "the river", 128, min_len=17, beam=2)
    same_as_fairseq(result, expected)
    assert len(result.tokens) >= 2 + 15 + 1


@pytest.mark.parametrize("beam", [1, 4])
def test_sentencepiece(pieces, beam):
    prompts = ["the old king", "her brother was built near", ""]
    results = pieces.generator.generate(prompts, max_new_tokens=16, beam=beam)
    for prompt, result in zip(prompts, results, strict=True):
        text = pieces.hub.sample(prompt, max_len_a=1, max_len_b=15, beam=beam)
        assert result.text == text.replace("<0xE2><0x82><0xAC>", "€")
        same_as_fairseq(result, fairseq_generates(pieces.hub, prompt, 16, beam=beam))


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory):
    """An untrained model of GPT-2's units."""
    data = tmp_path_factory.mktemp("gpt2")
    making.gpt2_dictionary().save(str(data / "dict.txt"))
    for name in ("encoder.json", "vocab.bpe"):
        shutil.copyfile(gpt2_files() / name, data / name)
    arguments = "--task", "language_modeling", "--arch", "transnormer_t2_tiny"
    path, _ = making.save(data / "checkpoint.pt", data, *arguments)
    return TextGenerator.from_checkpoint(path, device="cpu")


def test_begin_of_sentence_token(t2, tmp_path):
    """Models of --add-bos-token start with <s>."""
    state = torch.load(t2.path, weights_only=False)
    state["cfg"]["task"]["add_bos_token"] = True
    path = tmp_path / "begins.pt"
    torch.save(state, path)
    hub = TransNormerLanguageModel.from_pretrained(str(tmp_path), path.name, t2.data)
    generator = TextGenerator.from_checkpoint(path, device="cpu")
    result = generator.generate("the river", beam=2, max_new_tokens=8)
    same_as_fairseq(result, fairseq_generates(hub, "the river", 8, beam=2))
    other = t2.generator.generate("the river", beam=2, max_new_tokens=8)
    assert result.score != pytest.approx(other.score, abs=1e-3)


PACKAGE = fairseq_transnormer.__name__ + "."
SYSTEMS = sorted(
    name.removesuffix("_tiny")
    for name, model in MODEL_REGISTRY.items()
    if name.endswith("_tiny")
    and model.__module__.startswith(PACKAGE)
    and issubclass(model, FairseqLanguageModel)
    and not name.startswith("transnormer")
)
# one that keeps all keys, one that keeps sums, and one that keeps both
USUAL = ("vanilla_transformer", "linear_transformer", "transformer_ls")


@pytest.mark.parametrize(
    "name",
    [
        each if each in USUAL else pytest.param(each, marks=pytest.mark.slow)
        for each in SYSTEMS
    ],
)
def test_every_system(zoo, name):
    """Beams as fairseq's; lines in a batch of any lengths, alone, and in a stream."""
    trained = zoo.trained[f"{name}_tiny"]
    results = trained.generator.generate(PROMPTS[:6], beam=3, max_new_tokens=7)
    for prompt, result in zip(PROMPTS, results, strict=False):
        same_as_fairseq(result, fairseq_generates(trained.hub, prompt, 7, beam=3))
    options = {"lines": 3, "max_new_tokens": 6}
    together = trained.generator.generate(PROMPTS[:4], **options)
    for prompt, result in zip(PROMPTS, together, strict=False):
        alone = trained.generator.generate(prompt, **options)
        assert alone.tokens == result.tokens
        assert alone.score == pytest.approx(result.score, abs=1e-5)
    found = trained.generator.stream(PROMPTS[0], **options)
    assert "".join(found) == together[0].text
    longest = trained.generator.model.model.stack.longest_input
    if longest is not None:
        with refuses(ValueError, "prompt 1", f"max_new_tokens={longest}", longest):
            trained.generator.generate("the river", max_new_tokens=longest)


# what is drawn


def fairseqs_distribution(trained, prompt: str, **options) -> torch.Tensor:
    """Float64 probabilities of the next token, by the model's logits alone."""
    tokens = trained.hub.encode(prompt)[:-1].tolist()
    with torch.no_grad():
        logits = trained.hub.models[0](torch.tensor([[2, *tokens]]))[0][0, -1].double()
    logits[1] = -math.inf  # a pad
    chances = (logits / options.get("temperature", 1)).softmax(0)
    ranked, order = chances.sort(descending=True)
    if "top_k" in options:
        ranked[options["top_k"] :] = 0
    if "top_p" in options:
        ranked[ranked.cumsum(0) - ranked >= options["top_p"]] = 0
    return torch.zeros_like(chances).scatter(0, order, ranked / ranked.sum())


@pytest.mark.parametrize(
    "options",
    [
        {"sampling": True},
        {"top_k": 5, "temperature": 1.5},
        {"top_p": 0.7},
        {"sampling": True, "seed": 3, "temperature": 0.6},
    ],
    ids=str,
)
def test_tokens_are_drawn_by_their_probabilities(t1, options):
    """Chi-square of 3,000 draws; a statistic as large is seen once in 10,000 times."""
    prompt, draws = "the river", 3000
    chances = fairseqs_distribution(t1, prompt, **options)
    results = t1.generator.generate(
        [prompt] * draws, max_new_tokens=1, batch_size=draws, **options
    )
    of_prompt = len(t1.hub.encode(prompt)) - 1
    drawn = torch.tensor([each.tokens[of_prompt] for each in results])
    counts = drawn.bincount(minlength=len(chances)).double()
    assert counts[chances == 0].sum() == 0
    usual = chances * draws >= 5
    expected = torch.cat([chances[usual], chances[~usual].sum()[None]]) * draws
    found = torch.cat([counts[usual], counts[~usual].sum()[None]])
    kept = expected > 1
    statistic = ((found - expected)[kept] ** 2 / expected[kept]).sum()
    degrees = int(kept.sum()) - 1
    assert degrees > 1
    # Wilson and Hilferty's cube
    spread = 2 / (9 * degrees)
    assert statistic < degrees * (1 - spread + 3.72 * math.sqrt(spread)) ** 3


@pytest.mark.parametrize("options", [{"top_p": 0.9}, {"sampling": True, "beam": 3}])
def test_a_prompts_stream_is_its_own(trained, options):
    """Whatever is drawn beside it, how many lines, and by torch's generator."""
    options |= {"max_new_tokens": 9, "lines": 3}
    before = torch.get_rng_state()
    together = trained.generator.generate(PROMPTS[:5], seed=4, **options)
    for i, prompt in enumerate(PROMPTS[:5]):
        alone = trained.generator.generate(prompt, seed=4 + i, **options)
        assert together[i].tokens == alone.tokens
    assert torch.equal(torch.get_rng_state(), before)
    others = trained.generator.generate(PROMPTS[:5], seed=40, **options)
    assert [each.text for each in others] != [each.text for each in together]


def test_without_a_seed_torchs_stream_decides(t1):
    found = []
    for seed in (5, 5, 6):
        torch.manual_seed(seed)
        found.append(t1.generator.generate(PROMPTS[:3], top_k=8, max_new_tokens=9))
    assert found[0] == found[1] != found[2]


def test_the_best_sample_is_returned(t1):
    """Of so many rows that each draw from one stream in turn."""
    options = {"max_new_tokens": 6, "sampling": True, "temperature": 1.5, "seed": 1}
    several = t1.generator.generate(PROMPTS, beam=8, **options)
    one = t1.generator.generate(PROMPTS, **options)
    gains = [a.score - b.score for a, b in zip(several, one, strict=True)]
    assert sum(gains) > 1


# lines


def best_next_line(generator, tokens: list[int], longest: int) -> list[int]:
    """Greedy decoding by recomputation of everything before each token."""
    line: list[int] = []
    while True:
        logits = generator.model.model(torch.tensor([[2, *tokens, *line]]))[0, -1]
        logits[1] = -torch.inf
        if not line:
            logits[2] = -torch.inf
        line.append(2 if len(line) == longest else logits.argmax().item())
        if line[-1] == 2:
            return line


@torch.no_grad()
def test_greedy_lines_against_recomputation(trained):
    results = trained.generator.generate(PROMPTS, lines=3, max_new_tokens=9)
    for result in results:
        ends = [i + 1 for i, token in enumerate(result.tokens) if token == 2]
        assert len(ends) == 3 and result.text.count("\n") == 2
        for start, end in zip(ends, ends[1:], strict=False):
            line = best_next_line(trained.generator, result.tokens[:start], 9)
            assert result.tokens[start:end] == line


def test_the_first_line_is_that_of_one_line(trained):
    options = {"beam": 3, "max_new_tokens": 12}
    several = trained.generator.generate(PROMPTS, lines=2, **options)
    ones = trained.generator.generate(PROMPTS, **options)
    for result, one in zip(several, ones, strict=True):
        assert result.tokens[: len(one.tokens)] == one.tokens
        mean = sum(result.positional_scores) / len(result.tokens)
        assert result.score == pytest.approx(mean)
        assert len(result.positional_scores) == len(result.tokens)


# how the model is run


@pytest.fixture
def passes(trained, monkeypatch):
    """Shapes of the tokens, and bytes of the states behind them, of each pass."""
    seen = []
    model = trained.generator.model.model
    features = model.features

    def recorded(tokens, *args, **kwargs):
        x, states = features(tokens, *args, **kwargs)
        seen.append((tuple(tokens.shape), sum(map(state_bytes, states))))
        return x, states

    monkeypatch.setattr(model, "features", recorded)
    return seen


@pytest.mark.parametrize("options", [{}, {"beam": 3}, {"top_k": 4}])
def test_a_prompt_is_one_pass_and_each_new_token_another(trained, passes, options):
    prompt, length = PROMPTS[0], len(PROMPTS[0].split())
    more = {"max_new_tokens": 20, "min_new_tokens": 20}
    assert len(trained.generator.generate(prompt, **options, **more).tokens) == 36
    (first, of_one), *steps = passes
    beam = options.get("beam", 1)
    # the last token of the prompt is read by the first step
    assert first == (1, length)
    assert steps == [((beam, 1), beam * of_one)] * 21


def test_rows_that_have_ended_cost_a_token(trained, passes):
    """No step with pads, which would be one of two columns."""
    results = trained.generator.generate(PROMPTS, max_new_tokens=30)
    lengths = {len(each.tokens) for each in results}
    assert len(lengths) > 2
    assert {shape for shape, _ in passes if shape[0] == 6} == {(6, 1)}


def test_few_logits_are_in_memory_while_a_prompt_is_scored(t1, monkeypatch):
    prompts = [" ".join(["the river"] * 50)] * 20
    right = t1.generator.generate(prompts, max_new_tokens=1)
    plain, size = t1.generator.model.model, t1.generator.trained.manifest.vocab_size
    output, rows = plain.output, []
    monkeypatch.setattr(generate, "LOGITS_AT_ONCE", 150 * size)
    monkeypatch.setattr(plain, "output", lambda x: rows.append(len(x)) or output(x))
    split = t1.generator.generate(prompts, max_new_tokens=1)
    assert max(rows) == 150 and sum(rows) >= 20 * 100
    for ours, whole in zip(split, right, strict=True):
        expected = pytest.approx(whole.positional_scores, abs=1e-5)
        assert ours.positional_scores == expected


# streams


@pytest.mark.parametrize(
    ("options", "prompt"),
    [
        ({}, "  an old xyzzy king "),
        ({}, ""),
        ({"lines": 3}, "the river"),
        ({"top_p": 0.9, "seed": 2}, "an old £ king €"),
        ({"top_k": 6, "seed": 2, "lines": 2, "temperature": 1.3}, ""),
    ],
)
@pytest.mark.parametrize("name", ["t2", "pieces", "gpt2"])
def test_pieces_are_the_text(request, name, options, prompt):
    model = request.getfixturevalue(name)
    generator = getattr(model, "generator", model)
    found = list(generator.stream(prompt, max_new_tokens=12, **options))
    text = generator.generate(prompt, max_new_tokens=12, **options).text
    assert "".join(found) == text and "<0x" not in text and all(found)
    if name == "t2":  # a piece a word, the prompt being one
        new_words = len(text.split()) - len(prompt.split())
        assert len([x for x in found if x != "\n"]) == new_words + bool(prompt)
    else:
        assert text.startswith(prompt.strip() if name == "pieces" else prompt)


def test_characters_of_several_bytes_come_whole(pieces):
    words, found = pieces.generator.words, []
    tokens = words.encode("it € a")
    at = [words.symbol(token) for token in tokens].index("<0xE2>")
    stream = generate._TextStreamer(words, [], found.append)
    for token in tokens:
        stream.put(torch.tensor([token]))
    assert found[at : at + 3] == ["", "", " €"]
    # bytes that are no character
    stream.put(torch.tensor(tokens[at : at + 2]))
    assert "".join(found) == "it € a"
    stream.end()
    assert "".join(found) == "it € a\N{REPLACEMENT CHARACTER}"


def test_pieces_come_while_the_model_runs(t2, monkeypatch):
    """And an abandoned stream ends the work."""
    model = t2.generator.model.model
    features, may_go_on, calls = model.features, threading.Event(), []

    def waiting(*args, **kwargs):
        calls.append(None)
        if len(calls) == 4:
            assert may_go_on.wait(60)
        return features(*args, **kwargs)

    monkeypatch.setattr(model, "features", waiting)
    stream = t2.generator.stream("the river", max_new_tokens=9000, min_new_tokens=9000)
    assert len([next(stream) for _ in range(3)]) == 3 and len(calls) <= 4
    may_go_on.set()
    stream.close()
    assert not [each for each in threading.enumerate() if each.name == "generation"]
    assert len(calls) < 9000


def test_an_error_reaches_the_reader(t2, monkeypatch):
    def broken(*args, **kwargs):
        raise RuntimeError("out of memory")

    monkeypatch.setattr(t2.generator.model.model, "features", broken)
    with pytest.raises(RuntimeError, match="out of memory"):
        list(t2.generator.stream("the river"))


# what is refused, and what is not


@pytest.mark.parametrize(
    ("prompt", "lines", "longest"), [("the river", 2, 6), ("", 4, 3)]
)
def test_lines_up_to_the_models_longest_input(
    t2, monkeypatch, passes, prompt, lines, longest
):
    monkeypatch.setattr(type(t2.generator.model.model.stack), "longest_input", 16)
    options = {"lines": lines, "min_new_tokens": longest}
    t2.generator.generate(prompt, max_new_tokens=longest, **options)
    passes.clear()
    parts = "prompt 1", f"lines={lines}", f"max_new_tokens={longest + 1}", 16
    for write in (t2.generator.generate, t2.generator.stream):
        with refuses(ValueError, *parts):
            write(prompt, max_new_tokens=longest + 1, **options)
    assert not passes
