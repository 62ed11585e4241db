"""Tokens that share a position, and layers without a channel mixer."""

import pytest
import torch

from fairseq_transnormer.modules import CausalLanguageModel, LanguageModelConfig

SMALL = {"embed_dim": 16, "num_heads": 2, "ffn_dim": 24, "block_size": 4}


@pytest.fixture
def model():
    torch.manual_seed(1)
    config = LanguageModelConfig(attention_types="diag,norm", **SMALL)
    return CausalLanguageModel(config, 20).double().eval()


def test_embeddings_of_a_position_are_added(model):
    tokens = torch.randint(4, 20, (3, 9, 2))
    # the embedding of tokens of a larger vocabulary, which has a row for each sum
    first, second = tokens.unbind(-1)
    rows = model.embed_tokens.weight
    sums = rows[first] + rows[second]
    found = model(tokens)
    model.embed_tokens = torch.nn.Embedding.from_pretrained(
        torch.cat([rows.detach(), sums.flatten(0, 1).detach()])
    )
    of_sums = torch.arange(20, 20 + 27).view(3, 9)
    torch.testing.assert_close(found, model(of_sums)[..., :20])


def test_a_pad_that_the_output_layer_has_trained_changes_nothing(model):
    tokens = torch.randint(4, 20, (3, 9))
    alone = torch.stack([tokens, torch.full_like(tokens, model.padding_idx)], -1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(alone).logsumexp(-1).sum().backward()
    optimizer.step()
    # each logit has a gradient, and the pad's row is its output layer's
    assert model.embed_tokens.weight[model.padding_idx].norm() > 0.01
    torch.testing.assert_close(model(alone), model(tokens))
    some = alone.clone()
    some[:, ::2, 1] = tokens[:, ::2]
    rows = model.embed_tokens.weight[tokens]
    rows = torch.where(some[..., 1:] == model.padding_idx, rows, 2 * rows)
    embedded = []
    model.stack.register_forward_pre_hook(lambda _, inputs: embedded.append(inputs[0]))
    model.embed_positions = None
    model(some)
    torch.testing.assert_close(embedded[0], model.embed_scale * rows)


def test_the_first_token_says_what_is_padding(model):
    tokens = torch.randint(4, 20, (2, 9, 2))
    tokens[1, 6:] = model.padding_idx
    torch.testing.assert_close(model(tokens)[1, :6], model(tokens[1:, :6])[0])


@pytest.mark.parametrize("norm_position", ["pre", "post"])
def test_no_channel_mixer(norm_position):
    torch.manual_seed(1)
    config = LanguageModelConfig(
        attention_types="diag,norm",
        ffn_type="none",
        norm_position=norm_position,
        **SMALL,
    )
    model = CausalLanguageModel(config, 20).double().eval()
    assert not any("feed_forward" in name for name, _ in model.named_parameters())
    x = torch.randn(2, 7, 16, dtype=torch.double)
    expected = x
    for layer in model.stack.layers:
        if norm_position == "pre":
            expected = expected + layer.attention(layer.attention_norm(expected))[0]
        else:
            expected = layer.attention_norm(expected + layer.attention(expected)[0])
    if norm_position == "pre":
        expected = model.stack.final_norm(expected)
    torch.testing.assert_close(model.stack(x)[0], expected)
    # decoding step by step sees the same layers
    tokens, states, steps = torch.randint(4, 20, (2, 7)), None, []
    for i in range(7):
        logits, states = model(tokens[:, i : i + 1], states, return_states=True)
        steps.append(logits)
    torch.testing.assert_close(torch.cat(steps, 1), model(tokens))
