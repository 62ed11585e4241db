"""The masked-LM head is RoBERTa's."""

import pytest
import torch

from fairseq_transnormer.modules import (
    EncoderConfig,
    MaskedLanguageModel,
    MaskedLanguageModelHead,
)
from tests.messages import refuses


def test_it_equals_fairseqs_with_the_same_weights():
    roberta = pytest.importorskip("fairseq.models.roberta.model")
    weight = torch.nn.Parameter(torch.randn(50, 12))
    theirs = roberta.RobertaLMHead(12, 50, "gelu", weight)
    for parameter in theirs.parameters():
        torch.nn.init.normal_(parameter)
    ours = MaskedLanguageModelHead(12, weight)
    assert ours.state_dict().keys() == theirs.state_dict().keys()
    ours.load_state_dict(theirs.state_dict())
    features = torch.randn(2, 5, 12)
    torch.testing.assert_close(ours(features), theirs(features))
    chosen = torch.rand(2, 5) < 0.5
    torch.testing.assert_close(ours(features[chosen]), theirs(features, chosen))


@pytest.mark.parametrize("untie", [False, True])
def test_weights_stay_tied_when_they_are_assigned(untie):
    config = EncoderConfig(
        attention_types="norm",
        embed_dim=8,
        num_heads=2,
        ffn_dim=8,
        untie_output_embedding=untie,
    )
    model = MaskedLanguageModel(config, 20)
    with torch.device("meta"):
        other = MaskedLanguageModel(config, 20)
    # as a file has them: two tensors
    weights = {k: v.clone() for k, v in model.state_dict().items()}
    other.load_state_dict(weights, assign=True)
    assert (other.lm_head.weight is other.embed_tokens.weight) is not untie
    assert len([*other.parameters()]) == len([*model.parameters()])
    tokens = torch.randint(2, 20, (2, 5))
    torch.testing.assert_close(other.eval()(tokens), model.eval()(tokens))


def model():
    config = EncoderConfig(
        attention_types="diag,norm", embed_dim=8, num_heads=2, ffn_dim=8
    )
    return MaskedLanguageModel(config, 20)


def test_targets_are_those_of_the_tokens():
    """Flattened, those of other shapes would be taken for other tokens'."""
    tokens = torch.randint(4, 20, (2, 9))
    for shape in ((2, 8), (9, 2), (18,)):
        with refuses(ValueError, "targets", shape, (2, 9)):
            model()(tokens, targets=torch.randint(4, 20, shape))


def test_masked_tokens_say_it_of_each_token():
    """Integers would be taken for places."""
    tokens = torch.randint(4, 20, (2, 9))
    for chosen in (torch.ones(2, 8) > 0, torch.ones(2, 9), torch.ones(2, 9).long()):
        with refuses(ValueError, "masked_tokens", chosen.dtype, tuple(chosen.shape)):
            model()(tokens, chosen)
