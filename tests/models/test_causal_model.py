"""The causal models behind fairseq's decoder interface."""

import pytest
import torch
from fairseq.criterions.cross_entropy import CrossEntropyCriterion

from .building import draw_tokens, task, tiny_causal

variants = pytest.mark.parametrize("variant", ["t1", "t2"])
PAD = task().dictionary.pad()


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


@variants
def test_fairseqs_loss(variant):
    model, tokens = tiny_causal(variant), draw_tokens(3, 12)
    tokens[1, 5:] = PAD
    target = tokens.roll(-1, 1)
    target[:, -1] = PAD
    target[1, 4:] = PAD
    sample = {
        "net_input": {"src_tokens": tokens, "src_lengths": tokens.ne(PAD).sum(1)},
        "target": target,
        "ntokens": int(target.ne(PAD).sum()),
    }
    criterion = CrossEntropyCriterion(task(), sentence_avg=False)
    loss, size, _ = criterion(model, sample)
    assert size == sample["ntokens"]
    expected = sum(
        -model(tokens[b : b + 1, :n])[0].log_softmax(-1)[0, i, target[b, i]]
        for b, n in ((0, 12), (1, 5), (2, 12))
        for i in range(n)
        if target[b, i] != PAD
    )
    torch.testing.assert_close(loss, expected, rtol=1e-4, atol=1e-4)
    loss.backward()
    assert all(
        p.grad is not None and p.grad.isfinite().all()
        for p in model.parameters()
        if p.requires_grad
    )


def test_a_checkpoint_of_one_variant_loads_into_the_same_shapes():
    model, other = tiny_causal("t2"), tiny_causal("t2")
    tokens = draw_tokens(1, 9)
    assert not torch.equal(model(tokens)[0], other(tokens)[0])
    other.load_state_dict(model.state_dict(), strict=True)
    assert torch.equal(model(tokens)[0], other(tokens)[0])
