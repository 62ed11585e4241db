"""The causal models behind fairseq's decoder interface."""

import pytest
import torch

from .building import draw_tokens, task, tiny_causal

variants = pytest.mark.parametrize("variant", ["t1", "t2"])


@variants
@torch.no_grad()
def test_outputs(variant):
    model, tokens = tiny_causal(variant), draw_tokens(2, 11)
    logits, extra = model(tokens, src_lengths=torch.tensor([11, 11]))
    assert logits.shape == (2, 11, len(task().dictionary))
    assert torch.equal(logits, model.decoder.model(tokens))
    features, _ = model(tokens, features_only=True)
    assert torch.equal(features, model.extract_features(tokens)[0])
    assert torch.equal(model.decoder.output_layer(features), logits)
    assert extra["inner_states"] == []
    _, extra = model(tokens, return_all_hiddens=True)
    assert [h.shape for h in extra["inner_states"]] == [(11, 2, 32)] * 3
    norm = model.decoder.model.stack.final_norm
    torch.testing.assert_close(
        norm(extra["inner_states"][-1].transpose(0, 1)), features
    )
    probabilities = model.get_normalized_probs((logits, extra), log_probs=False)
    torch.testing.assert_close(probabilities.sum(-1), torch.ones(2, 11))
