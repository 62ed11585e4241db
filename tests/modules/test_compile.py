"""torch.compile gives what eager execution gives.

The layers alone: token_mixers/test_compile.py.
"""

import pytest
import torch

from .building import draw_tokens, language_model, masked_language_model


@pytest.mark.parametrize(
    ("build", "variant"),
    [
        (language_model, "t1"),
        (masked_language_model, "t2"),
        pytest.param(language_model, "t2", marks=pytest.mark.slow),
        pytest.param(masked_language_model, "t1", marks=pytest.mark.slow),
    ],
)
def test_models_with_and_without_pads(build, variant):
    torch.compiler.reset()
    model = build(variant, attention_types="diag,norm")
    compiled = torch.compile(model, backend="eager")
    tokens = draw_tokens(2, 20)
    torch.testing.assert_close(compiled(tokens), model(tokens))
    tokens[1, 12:] = 1
    torch.testing.assert_close(compiled(tokens), model(tokens))
