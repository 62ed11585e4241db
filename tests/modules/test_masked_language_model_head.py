"""The masked-LM head is RoBERTa's."""

import pytest
import torch

from fairseq_transnormer.modules import MaskedLanguageModelHead


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
