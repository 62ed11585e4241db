"""What the classification heads see, and that a batch does not change it."""

import pytest
import torch

from fairseq_transnormer.plugin.models.masked_language_model import mean_over_tokens

from .building import BASELINES, build, dictionary, draw_tokens, tiny_encoder

BLOCK = 8  # of the tiny models


def with_head(variant, **changes):
    model = tiny_encoder(variant, **changes)
    model.register_classification_head("head", num_classes=3)
    return model.eval()


def padded(rows):
    pad = dictionary().pad()
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=pad)


@pytest.mark.parametrize("pooling", ["first", "mean"])
@pytest.mark.parametrize("variant", ["t1", "t2", *BASELINES])
@torch.no_grad()
def test_a_batch_changes_no_prediction(variant, pooling):
    model = with_head(variant, pooling=pooling).double()
    rows = [draw_tokens(n) for n in (3, 40, 9, 8, 17)]
    together, _ = model(padded(rows), classification_head_name="head")
    for row, scores in zip(rows, together, strict=True):
        alone, _ = model(row[None], classification_head_name="head")
        torch.testing.assert_close(scores, alone[0], rtol=1e-9, atol=1e-9)


def with_left_pads(tokens, width):
    return torch.nn.functional.pad(
        tokens, (width - len(tokens), 0), value=dictionary().pad()
    )


@pytest.mark.parametrize("pooling", ["first", "mean"])
@torch.no_grad()
def test_pads_on_the_left_change_no_prediction(pooling):
    model = with_head("t2", pooling=pooling).double()
    rows = [draw_tokens(n) for n in (3, 40, 9)]
    together, _ = model(
        torch.stack([with_left_pads(row, 40) for row in rows]),
        classification_head_name="head",
    )
    for row, scores in zip(rows, together, strict=True):
        alone, _ = model(row[None], classification_head_name="head")
        # the mean is summed in float32
        torch.testing.assert_close(scores, alone[0], rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_the_first_token_is_what_fairseqs_head_takes():
    model = with_head("t2", pooling="first")
    tokens = padded([draw_tokens(n) for n in (3, 40, 9)])
    tokens[2] = dictionary().pad()  # a row of nothing but pads has none
    features, _ = model(tokens, features_only=True)
    found, _ = model(tokens, classification_head_name="head")
    assert torch.equal(found, model.classification_heads["head"](features))


@torch.no_grad()
def test_the_mean_is_that_of_real_tokens():
    features, real = torch.randn(2, 4, 5), torch.ones(2, 4, dtype=torch.bool)
    real[1, 2:] = False
    features[1, 2:] = float("nan")
    mean = mean_over_tokens(features, real)
    expected = torch.stack([features[0].mean(0), features[1, :2].mean(0)])
    torch.testing.assert_close(mean, expected[:, None])
    half = mean_over_tokens(
        torch.full((1, 600, 1), 200.0).half(), torch.ones(1, 600) > 0
    )
    assert half.dtype == torch.float16 and half.item() == 200  # the sum is 120,000


def seen(attention_types, pooling) -> torch.Tensor:
    """bool (40,): the tokens whose embedding has a gradient from a score."""
    model = build(
        "roberta_transnormer_t2_tiny", attention_types=attention_types, pooling=pooling
    )
    model.register_classification_head("head", num_classes=2)
    inputs = []
    model.encoder.model.embed_norm.register_forward_hook(
        lambda module, args, output: inputs.append(output.retain_grad() or output)
    )
    scores, _ = model.eval()(draw_tokens(1, 40), classification_head_name="head")
    scores[0, 0].backward()
    return inputs[0].grad[0].abs().sum(-1) > 0


def test_what_the_head_sees():
    """Blocks alone show the first token its block only; a global layer shows it all."""
    assert torch.equal(seen("diag,diag", "first"), torch.arange(40) < BLOCK)
    for attention_types in ("diag,norm", "norm,diag", "diag,diag,norm"):
        assert seen(attention_types, "first").all()
    assert seen("diag,diag", "mean").all()
