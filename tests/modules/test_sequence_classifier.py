"""The classifier: its equation, padding, rows of a batch, counts, gradients."""

import pytest
import torch
import torch.nn.functional as F

from fairseq_transnormer.modules import (
    ClassifierConfig,
    ClassifierT1Config,
    ClassifierT2Config,
    SequenceClassifier,
    token_mixers,
)

from .building import SMALL

VOCABULARY, CLASSES = 11, 3
LENGTHS = torch.tensor([23, 1, 17, 8])


def build(attention="diag", sequences=1, **changes):
    """In float64 and evaluation; weights that start at zero would hide a mistake."""
    values = SMALL | {"attention_types": attention, "max_positions": 40} | changes
    torch.manual_seed(0)
    config = ClassifierConfig(**values)
    model = SequenceClassifier(config, VOCABULARY, CLASSES, sequences).double().eval()
    torch.nn.init.normal_(model.embed_tokens.weight)
    torch.nn.init.normal_(model.embed_positions.weight)
    return model


def draw(rows=LENGTHS, width=23):
    return torch.randint(VOCABULARY, (len(rows), width))


mixers = pytest.mark.parametrize("attention", token_mixers())


@mixers
def test_a_row_gives_alone_what_it_gives_in_a_batch(attention):
    """Whatever stands behind its end, token 0 and wider batches included."""
    model, tokens = build(attention), draw()
    together = model((tokens,), (LENGTHS,))
    wider = F.pad(F.pad(draw(), (0, 9), value=0), (0, 2), value=-1)
    for i, length in enumerate(LENGTHS):
        wider[i, :length] = tokens[i, :length]
    torch.testing.assert_close(model((wider,), (LENGTHS,)), together)
    for i, length in enumerate(LENGTHS):
        alone = model((tokens[i : i + 1, :length],), (LENGTHS[i : i + 1],))
        torch.testing.assert_close(alone, together[i : i + 1])


def test_rows_may_stand_in_any_order():
    model, tokens = build("diag,norm"), draw()
    order = torch.tensor([2, 0, 3, 1])
    expected = model((tokens,), (LENGTHS,))[order]
    found = model((tokens[order],), (LENGTHS[order],))
    torch.testing.assert_close(found, expected)


def test_token_zero_is_a_token():
    """A black pixel: it changes the result, counts in the mean and is trained."""
    model = build("diag,norm")
    dark, lengths = torch.zeros(1, 12, dtype=torch.long), torch.tensor([12])
    of_all = model((dark,), (lengths,))
    assert not torch.allclose(model((dark,), (torch.tensor([6]),)), of_all)
    of_all.sum().backward()
    assert model.embed_tokens.weight.grad[0].abs().sum() > 0
    assert (model.embed_positions.weight.grad[:12].abs().sum(1) > 0).all()


def test_the_head_is_the_equation():
    """Of what the layers give: the mean over real tokens, and W2 relu(W1 f)."""
    model, tokens = build("norm", sequences=2), (draw(), draw(width=30))
    lengths = (LENGTHS, LENGTHS + 7)
    means = []
    for each, of_each in zip(tokens, lengths, strict=True):
        rows = []
        for row, length in zip(each, of_each, strict=True):
            x = model.embed_tokens(row[:length]) + model.embed_positions.weight[:length]
            rows.append(model.stack(x[None])[0][0].mean(0))
        means.append(torch.stack(rows))
    a, b = means
    first, _, second = model.head
    inner = torch.cat([a, b, a * b, a - b], 1) @ first.weight.T + first.bias
    expected = inner.clamp(min=0) @ second.weight.T + second.bias
    torch.testing.assert_close(model(tokens, lengths), expected)


def test_gradients_of_two_sequences_through_one_encoder():
    """Against finite differences, of an embedding that both sequences use."""
    model = build("diag,norm", sequences=2, classifier_dim=5)
    tokens, lengths = (draw(width=9)[:2], draw(width=7)[:2]), torch.tensor([7, 4])

    def loss(weight):
        parameters = {"embed_tokens.weight": weight}
        inputs = (tokens, (lengths, lengths - 1))
        logits = torch.func.functional_call(model, parameters, inputs)
        return F.cross_entropy(logits, torch.tensor([0, 2]))

    weight = model.embed_tokens.weight.detach().clone().requires_grad_()
    assert torch.autograd.gradcheck(loss, weight, atol=1e-6, fast_mode=True)


def count(config, vocabulary, classes, sequences=1):
    model = SequenceClassifier(config, vocabulary, classes, sequences)
    return sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize("kind", [ClassifierT1Config, ClassifierT2Config])
def test_counts_of_appendix_e(kind):
    d, glu, positions = 64, 85, 2048
    layer = 4 * (d * d + d) + 3 * d * glu + 2 * glu + d + 16 + 32
    head = d * 128 + 128 + 128 * 10 + 10
    expected = 15 * d + positions * d + 2 * layer + head
    assert count(kind(max_positions=positions), 15, 10) == expected == 208_126
    # retrieval: the head alone is wider
    pair = 256 * d + 4096 * d + 2 * layer + 4 * d * 128 + 128 + 128 * 2 + 2
    assert count(kind(), 256, 2, sequences=2) == pair


def test_the_sum_of_thousands_of_tokens_is_not_in_half_precision():
    """4,096 tokens around 20: their sum, 82,000, is beyond float16's 65,504."""
    model = build("softmax", max_positions=4096).half()
    # nothing between the embedding and the mean
    model.stack.forward = lambda x, mask, padding: (x, None)
    weight = 20 + torch.randn_like(model.embed_tokens.weight)
    model.embed_tokens.weight.data = weight
    torch.nn.init.zeros_(model.embed_positions.weight)
    tokens = draw(rows=[0], width=4096)
    expected = weight.double()[tokens[0]].mean(0)
    found = model.features(tokens, torch.tensor([4096]))[0]
    assert found.dtype == torch.float16 and found.isfinite().all()
    torch.testing.assert_close(found.double(), expected, rtol=1e-3, atol=0)
