"""fairseq's generator with states equals recomputing the whole prefix at each step."""

import pytest
import torch
from fairseq.sequence_generator import SequenceGenerator

from .building import dictionary, draw_tokens, tiny_causal

variants = pytest.mark.parametrize("variant", ["t1", "t2"])
WORDS = dictionary()
PROMPTS = (1, 3, 7, 8, 9, 20)  # a block has 8 positions


def prompts():
    """Prompts of different lengths, pads on the right, as fairseq hands them over."""
    tokens = torch.full((len(PROMPTS), max(PROMPTS)), WORDS.pad())
    for row, length in zip(tokens, PROMPTS, strict=True):
        row[:length] = draw_tokens(length)
    return tokens


def generate(model, tokens, beam, incremental=True):
    generator = SequenceGenerator(
        [model], WORDS, beam_size=beam, max_len_a=0, max_len_b=33, normalize_scores=True
    )
    generator.model.has_incremental = incremental
    sample = {
        "net_input": {
            "src_tokens": tokens,
            "src_lengths": tokens.ne(WORDS.pad()).sum(1),
        }
    }
    return generator.generate([model], sample, prefix_tokens=tokens)


def assert_equal(some, others):
    assert len(some) == len(others)
    for one, other in zip(some, others, strict=True):
        assert len(one) == len(other)
        for hypothesis, expected in zip(one, other, strict=True):
            assert hypothesis["tokens"].tolist() == expected["tokens"].tolist()
            torch.testing.assert_close(
                hypothesis["positional_scores"], expected["positional_scores"]
            )


@variants
@pytest.mark.parametrize("beam", [1, 4])
@torch.no_grad()
def test_states_equal_recomputation(beam, variant):
    model, tokens = tiny_causal(variant).double(), prompts()
    expected = generate(model, tokens, beam, incremental=False)
    assert_equal(generate(model, tokens, beam), expected)
    for row, length, hypotheses in zip(tokens, PROMPTS, expected, strict=True):
        assert len(hypotheses) == beam
        for hypothesis in hypotheses:
            assert hypothesis["tokens"][:length].equal(row[:length])
    # beams differ, and sentences end at different steps, so that rows were reordered
    lengths = {len(h["tokens"]) for hypotheses in expected for h in hypotheses}
    if beam > 1:
        assert len(lengths) > 1
        for hypotheses in expected:
            texts = {tuple(h["tokens"].tolist()) for h in hypotheses}
            assert len(texts) == beam


@variants
@torch.no_grad()
def test_a_prompt_is_taken_in_one_pass(variant):
    model = tiny_causal(variant).double()
    tokens, state = draw_tokens(3, 21), {}
    logits, _ = model.decoder(tokens)
    for seen, end in ((0, 13), (13, 14), (14, 20), (20, 21)):
        output, _ = model.decoder(tokens[:, :end], incremental_state=state)
        torch.testing.assert_close(output, logits[:, seen:end])


@torch.no_grad()
def test_an_ensemble_keeps_a_state_for_each_model():
    models = [tiny_causal(v).double() for v in ("t1", "t2", "t2")]
    tokens = prompts()
    results = []
    for incremental in (True, False):
        generator = SequenceGenerator(models, WORDS, beam_size=2, max_len_b=12)
        generator.model.has_incremental = incremental
        sample = {"net_input": {"src_tokens": tokens[:, :3]}}
        results.append(generator.generate(models, sample, prefix_tokens=tokens[:, :3]))
    assert_equal(*results)
