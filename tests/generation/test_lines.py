"""Several lines: each continues from the state behind the lines before it."""

import pytest
import torch

from fairseq_transnormer.generation import GenerationError
from tests.messages import refuses

PROMPTS = ["the river", "an old king found the bridge for many", "", "it", "the town"]


def best_next_line(generator, tokens: list[int], longest: int) -> list[int]:
    """Greedy decoding by recomputation of everything before each token."""
    model, eos = generator.model, generator.dictionary.eos()
    pad, line = generator.dictionary.pad(), []
    while True:
        logits = model(torch.tensor([[eos, *tokens, *line]]))[0][0, -1]
        logits[pad] = -torch.inf
        if not line:
            logits[eos] = -torch.inf
        line.append(eos if len(line) == longest else logits.argmax().item())
        if line[-1] == eos:
            return line


def test_greedy_lines_against_recomputation(trained):
    results = trained.generator.generate(PROMPTS, lines=3, max_new_tokens=9)
    for result in results:
        first, *others = split_lines(result.tokens, trained.generator.dictionary.eos())
        assert len(others) == 2
        before = first
        for line in others:
            with torch.no_grad():
                assert line == best_next_line(trained.generator, before, 9)
            before = before + line


def split_lines(tokens: list[int], eos: int) -> list[list[int]]:
    lines = [[]]
    for token in tokens:
        lines[-1].append(token)
        if token == eos:
            lines.append([])
    return lines[:-1]


def test_the_first_line_is_that_of_one_line(trained):
    options = {"beam": 3, "max_new_tokens": 12}
    several = trained.generator.generate(PROMPTS, lines=2, **options)
    for result, one in zip(
        several, trained.generator.generate(PROMPTS, **options), strict=True
    ):
        assert result.text.split("\n")[0] == one.text
        assert result.text.count("\n") == 1
        assert result.tokens[: len(one.tokens)] == one.tokens


def test_score_of_lines_is_the_mean_of_their_tokens(t1):
    result = t1.generator.generate("the river", lines=3, beam=2, max_new_tokens=9)
    mean = sum(result.positional_scores) / len(result.tokens)
    assert result.score == pytest.approx(mean)
    assert len(result.positional_scores) == len(result.tokens)


def test_sampled_lines_do_not_depend_on_companions(trained):
    options = {"lines": 3, "top_p": 0.9, "max_new_tokens": 12}
    together = trained.generator.generate(PROMPTS, seed=4, **options)
    for i, prompt in enumerate(PROMPTS):
        alone = trained.generator.generate(prompt, seed=4 + i, **options)
        assert together[i].tokens == alone.tokens


@pytest.fixture
def short(t2, monkeypatch):
    """A generator whose layers read 16 tokens, and which notes how many they read."""
    model, read = t2.generator.model.decoder.model, []
    monkeypatch.setattr(type(model.stack), "longest_input", 16)
    features = model.features

    def noting(tokens, states=None, **keywords):
        seen = 0 if states is None else int(states[0].length.max())
        read.append(seen + tokens.shape[1])
        return features(tokens, states, **keywords)

    monkeypatch.setattr(model, "features", noting)
    return t2.generator, read


@pytest.mark.parametrize(
    ("prompt", "lines", "longest"),
    [("the river", 1, 13), ("the river", 2, 6), ("", 4, 3), ("", 2, 7)],
)
def test_lines_up_to_the_models_longest_input(short, prompt, lines, longest):
    generator, read = short
    options = {"lines": lines, "min_new_tokens": longest, "max_new_tokens": longest}
    result = generator.generate(prompt, **options)
    assert result.text.count("\n") == lines - 1
    # no token more would have fitted each line
    assert 16 - lines < max(read) <= 16
    read.clear()
    options = {"lines": lines, "max_new_tokens": longest + 1}
    parts = f"lines={lines}", "prompt 1", f"max_new_tokens={longest + 1}", 16
    for generate in (generator.generate, generator.stream):
        with refuses(GenerationError, *parts):
            list(generate(prompt, **options))
    assert not read
