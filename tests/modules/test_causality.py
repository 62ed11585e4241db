"""A causal model does not see the future; a bidirectional one does.

The layers alone: token_mixers/test_causality.py.
"""

import pytest

from fairseq_transnormer.modules import token_mixers

from .building import (
    BLOCK,
    VOCABULARY,
    assert_untouched,
    draw_tokens,
    language_model,
    masked_language_model,
    variants,
)

LENGTH = 3 * BLOCK - 2
# the first and last of the sequence, and both sides of a block's border
CHANGED = (0, 1, BLOCK - 1, BLOCK, BLOCK + 3, LENGTH - 1)


@pytest.mark.parametrize(
    ("types", "variant"),
    [("diag*2,norm*2", "t1"), ("diag*2,norm*2", "t2")]
    + [(name, "t2") for name in token_mixers(causal=True)],
)
def test_language_model(types, variant):
    model = language_model(variant, attention_types=types)
    tokens = draw_tokens(2, LENGTH)
    logits = model(tokens)
    for j in CHANGED:
        changed = tokens.clone()
        changed[:, j] = (tokens[:, j] - 2 + 1) % (VOCABULARY - 2) + 2
        after = model(changed)
        assert_untouched(after[:, :j], logits[:, :j], types)
        assert (after[:, j] != logits[:, j]).any()


@variants
def test_masked_language_model_sees_everything(variant):
    model = masked_language_model(variant)
    tokens = draw_tokens(1, LENGTH)
    logits = model(tokens)
    for j in CHANGED:
        changed = tokens.clone()
        changed[:, j] = (tokens[:, j] - 2 + 1) % (VOCABULARY - 2) + 2
        assert ((model(changed) - logits).abs().amax(-1) > 1e-9).all()
