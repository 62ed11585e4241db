"""Absolute positions."""

import pytest
import torch

from fairseq_transnormer.modules.embeddings import (
    LearnedPositions,
    SinusoidalPositions,
    token_positions,
)

from .building import draw_tokens, masked_language_model


@pytest.mark.parametrize("padding_idx", [0, 1, 7])
@pytest.mark.parametrize("embed_dim", [4, 7, 16, 512])
def test_sinusoids_are_fairseqs(embed_dim, padding_idx):
    fairseq_modules = pytest.importorskip("fairseq.modules")
    theirs = fairseq_modules.SinusoidalPositionalEmbedding(embed_dim, padding_idx, 64)
    ours = SinusoidalPositions(embed_dim, padding_idx)
    tokens = torch.randint(padding_idx + 1, 50, (3, 90))
    tokens[0, :20] = padding_idx
    tokens[1, 50:] = padding_idx
    mask = tokens == padding_idx
    encoded = ours(token_positions(mask, tokens))
    torch.testing.assert_close(encoded[~mask], theirs(tokens)[~mask])
    without_pads = ours(token_positions(None, tokens[2:]))
    torch.testing.assert_close(without_pads[None], theirs(tokens[2:]))
    assert list(ours.parameters()) == list(ours.buffers()) == []


def test_sinusoids_have_no_end():
    far = SinusoidalPositions(16, 1)(torch.tensor([10**6]))
    assert far.isfinite().all() and far.dtype == torch.float32


def test_positions_count_tokens():
    pads = torch.tensor([[1, 1, 0, 0], [0, 1, 0, 1], [1, 1, 1, 1]]).bool()
    positions = token_positions(pads, torch.zeros(3, 4))
    assert positions[0, 2:].tolist() == [0, 1]
    assert positions[1, [0, 2]].tolist() == [0, 1]
    assert (positions >= 0).all()
    assert token_positions(None, torch.zeros(3, 4)).tolist() == [0, 1, 2, 3]


def test_learned_positions_are_robertas():
    learned = LearnedPositions(6, 4, padding_idx=1)
    assert learned.weight.shape == (8, 4)
    assert torch.equal(learned(torch.arange(6)), learned.weight[2:])


def test_embeddings_are_zero_at_pads():
    tokens, hidden = draw_tokens(2, 6), []
    tokens[0, :3] = 1
    model = masked_language_model("t2")
    model.features(tokens, hidden_states=hidden)
    assert (hidden[0][tokens == 1] == 0).all()
    assert (hidden[0][tokens != 1] != 0).all()
