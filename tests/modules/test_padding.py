"""What a sentence gives does not depend on what it is batched with."""

import pytest
import torch

from tests.messages import refuses

from .building import (
    BLOCK,
    LAYOUTS,
    draw_tokens,
    features_of,
    language_model,
    masked_language_model,
    models,
    padded,
    variants,
)

layouts = pytest.mark.parametrize("layout", LAYOUTS)
# each of the layouts, and each of the models, in turn
layouts_in_turn = pytest.mark.parametrize(
    ("layout", "variant", "build"),
    [
        (layout, ("t1", "t2")[i % 2], build)
        for i, layout in enumerate(LAYOUTS)
        for build in (language_model, masked_language_model)
    ],
)
# below, at and above a block, and nothing but one token
LENGTHS = (1, 3, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, 2 * BLOCK + 5)
WIDTHS = (LENGTHS[-1], 3 * BLOCK, 4 * BLOCK + 1)


def differences(model, layout, width):
    """Relative change of each sentence's features through batching and padding."""
    sentences = [draw_tokens(length) for length in LENGTHS]
    tokens, columns = padded(sentences, layout, width)
    features = features_of(model, tokens)
    for sentence, row, where in zip(sentences, features, columns, strict=True):
        (alone,) = features_of(model, sentence[None])
        yield ((row[where] - alone).norm() / alone.norm()).item()


@models
@variants
@layouts
@torch.no_grad()
def test_features_alone_equal_features_in_a_batch(layout, variant, build):
    width = WIDTHS[LAYOUTS.index(layout) % len(WIDTHS)]
    assert max(differences(build(variant), layout, width)) < 1e-10


@layouts_in_turn
@torch.no_grad()
def test_hidden_states_stand_where_their_tokens_stand(layout, variant, build):
    model = build(variant)
    sentence = draw_tokens(BLOCK + 1)
    tokens, columns = padded([sentence, draw_tokens(5)], layout, 2 * BLOCK)
    together, alone = [], []
    model.features(tokens, hidden_states=together)
    model.features(sentence[None], hidden_states=alone)
    assert len(together) == len(alone) == 1 + len(model.stack.layers)
    for batch, single in zip(together, alone, strict=True):
        torch.testing.assert_close(batch[0, columns[0]], single[0])


@variants
@torch.no_grad()
def test_logits_of_masked_tokens_only(variant):
    model = masked_language_model(variant)
    tokens, _ = padded([draw_tokens(5), draw_tokens(12)], LAYOUTS[0], 12)
    chosen = (torch.rand(2, 12) < 0.4) & (tokens != 1)
    logits = model(tokens, chosen)
    assert logits.shape == (chosen.sum(), 40)
    torch.testing.assert_close(logits, model(tokens)[chosen])
    # targets say themselves where they count
    with refuses(ValueError, "masked_tokens", "targets", "one of them"):
        model(tokens, chosen, targets=tokens)
