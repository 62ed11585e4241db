"""The contestants write what their models say, and keep what they claim to keep."""

from types import SimpleNamespace

import torch

from benchmarks.generation import token_cost

OPTIONS = SimpleNamespace(
    width=32, heads=4, layers=2, vocabulary=60, contexts=[70], tokens=3,
    least_repeats=2, most_repeats=2, device=torch.device("cpu"),
)  # fmt: skip


def test_texts_go_on_as_without_a_cache():
    models = token_cost.build_models(OPTIONS)
    prompt = torch.randint(4, 60, (1, 70))
    texts = token_cost.texts(models, prompt, OPTIONS)
    for name, text in texts.items():
        for _ in range(2):
            text.write(3)
        assert text.tokens.shape == (1, 76)
        with torch.no_grad():
            logits = text.model(text.tokens, use_cache=False).logits
        # the special tokens below 4 are never written by ours
        for at in range(70, 76):
            left_out = {0, 1, 2, 3} if name == token_cost.OURS else {2}
            scores = logits[0, at - 1].clone()
            scores[list(left_out)] = -torch.inf
            assert text.tokens[0, at] == scores.argmax(), (name, at)
    kept = {name: token_cost.kept_bytes(text.cache) for name, text in texts.items()}
    # a key and a value of 32 float32 in each of 2 layers: 75 tokens, and room for 79
    assert kept[token_cost.DEFAULT] == 75 * 2 * 2 * 32 * 4
    assert kept[token_cost.STATIC] == 79 * 2 * 2 * 32 * 4
    # of a Diag layer a block, of a Norm layer 4 heads of 2 x 8 x 8, whatever the text
    longer = token_cost.texts(models, torch.cat((prompt, prompt), 1), OPTIONS)
    assert token_cost.kept_bytes(longer[token_cost.OURS].cache) == kept[token_cost.OURS]
