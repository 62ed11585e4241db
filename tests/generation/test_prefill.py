"""How the model is run: prompts in one pass, beams reordered, a state of one size."""

from unittest.mock import patch

import pytest
import torch

from fairseq_transnormer.generation import prefill
from fairseq_transnormer.ops import state_bytes
from tests.largest_tensor import LargestTensor
from tests.models.building import build, draw_tokens

PROMPT = "the town was built near a stone wall for many years . the river"


@pytest.fixture
def passes(trained, monkeypatch):
    """Shapes of the tokens, and bytes of the states behind them, of each pass."""
    seen = []
    model = trained.generator.model.decoder.model
    features = model.features

    def recorded(tokens, *args, **kwargs):
        x, states = features(tokens, *args, **kwargs)
        seen.append((tuple(tokens.shape), sum(map(state_bytes, states))))
        return x, states

    monkeypatch.setattr(model, "features", recorded)
    return seen


@pytest.mark.parametrize("options", [{}, {"beam": 3}, {"top_k": 4}])
def test_a_prompt_is_one_pass_and_each_new_token_another(trained, passes, options):
    result = trained.generator.generate(
        PROMPT, max_new_tokens=20, min_new_tokens=20, **options
    )
    prompt_length = len(PROMPT.split())
    assert len(result.tokens) == prompt_length + 20 + 1
    shapes = [shape for shape, _ in passes]
    assert shapes[0] == (1, 1 + prompt_length)
    assert shapes[1:] == [(options.get("beam", 1), 1)] * 20


def test_the_state_does_not_grow(trained, passes):
    trained.generator.generate(PROMPT, max_new_tokens=20, min_new_tokens=20)
    assert len(passes) == 21
    assert len({size for _, size in passes}) == 1


def test_prompts_of_one_length_share_their_passes(trained, passes):
    prompts = ["the river", "an old", "it", "her brother"]
    trained.generator.generate(prompts, max_new_tokens=6, min_new_tokens=6, beam=2)
    shapes = [shape for shape, _ in passes]
    assert shapes == [(1, 2), *[(2, 1)] * 6, (3, 3), *[(6, 1)] * 6]


def test_beams_need_the_reordering(trained):
    """The equality of beam search has to fail where states stay in their rows."""
    prompts = [PROMPT, "the river", "it", "an old king"]
    right = trained.generator.generate(prompts, beam=4, max_new_tokens=12)
    reorder = prefill._reorder

    def stuck(states, order):
        moves = len(order) != len(states[0].length)
        return reorder(states, order) if moves else states

    with patch.object(prefill, "_reorder", stuck):
        wrong = trained.generator.generate(prompts, beam=4, max_new_tokens=12)
    assert [each.score for each in wrong] != pytest.approx(
        [each.score for each in right], abs=1e-3
    )


def test_scores_of_a_prompt_do_not_depend_on_how_many_fit_in_memory(trained):
    right = trained.generator.generate([PROMPT] * 2, max_new_tokens=3)
    with patch.object(prefill, "LOGITS_AT_ONCE", 1):
        split = trained.generator.generate([PROMPT] * 2, max_new_tokens=3)
    for ours, whole in zip(split, right, strict=True):
        assert ours.positional_scores == pytest.approx(
            whole.positional_scores, abs=1e-5
        )


@pytest.mark.parametrize("rows", [2, 40])
def test_few_logits_are_in_memory_while_a_prompt_is_scored(rows):
    """However many prompts there are and however long they are."""
    model = build("transnormer_t2_tiny", embed_dim=8, num_heads=2)
    prompts = draw_tokens(rows, 50)
    vocab_size = model.decoder.model.embed_tokens.num_embeddings
    sample = {"src_tokens": prompts, "unread": prompts, "states": None}
    limit = 7 * vocab_size
    with patch.object(prefill, "LOGITS_AT_ONCE", limit), torch.no_grad():
        prefilled = prefill.PrefilledModel(model)
        reading = prefilled.forward_encoder(sample)
        with LargestTensor() as mode:
            scores = prefilled._score_prompt(reading, 1.0)
    assert scores.shape == (rows, 49)
    # features are narrower than logits, and of all tokens
    features = reading.features.numel()
    assert limit <= mode.numel <= max(limit, features) < scores.numel() * vocab_size
