"""What is known of pads is used, and says the same as a look at them."""

import pytest
import torch

from fairseq_transnormer.modules import (
    CausalLanguageModel,
    LanguageModelT2Config,
    MaskedLanguageModel,
    token_mixers,
)
from fairseq_transnormer.modules.config import ClassifierConfig, EncoderConfig
from fairseq_transnormer.modules.padding import find_padding
from fairseq_transnormer.modules.sequence_classifier import SequenceClassifier
from tests.operators import Operators

SMALL = {"embed_dim": 32, "num_heads": 2, "ffn_dim": 50, "dropout": 0.0}
SMALL |= {"attention_types": "diag,norm"}
PAD = 1
# those by which Python asks for a number of a tensor, or makes one of its numbers
ASKING = {"_local_scalar_dense", "nonzero", "equal", "lift_fresh"}


def causal():
    return CausalLanguageModel(LanguageModelT2Config(**SMALL), 40)


def encoder():
    types = {"attention_types": ",".join(token_mixers())}
    return MaskedLanguageModel(EncoderConfig(**SMALL | types), 40)


def tokens_with(padding):
    tokens = torch.randint(4, 40, (3, 12))
    if padding != "none":
        tokens[1, 8:] = PAD
    if padding == "anywhere":
        tokens[2, :3] = tokens[2, 5] = PAD
    return tokens


@pytest.mark.parametrize("padding", ["none", "right", "anywhere"])
@pytest.mark.parametrize("build", [causal, encoder])
def test_a_training_step_asks_nothing_of_the_device(build, padding):
    torch.manual_seed(0)
    model, tokens = build().train(), tokens_with(padding)
    assert find_padding(tokens == PAD) == padding
    targets = torch.where(tokens == PAD, PAD, torch.randint(4, 40, tokens.shape))
    known = {"padding": padding}
    if build is encoder:
        known["positions"] = torch.arange(0, 12, 3)
    with Operators() as operators:
        looked = model(tokens, targets=targets, **(known | {"padding": None}))[0]
    assert operators.names & ASKING
    with Operators() as operators:
        told = model(tokens, targets=targets, **known)[0]
        told.backward()
    assert not operators.names & ASKING
    torch.testing.assert_close(told, looked)


def test_a_classifier_asks_nothing_either():
    torch.manual_seed(0)
    config = ClassifierConfig(**SMALL, max_positions=64)
    model = SequenceClassifier(config, 40, classes=3, sequences=1).train()
    tokens, lengths = torch.randint(4, 40, (2, 9)), torch.tensor([9, 4])
    looked = model((tokens,), (lengths,))
    with Operators() as operators:
        told = model((tokens,), (lengths,), ("right",))
        told.sum().backward()
    assert not operators.names & ASKING
    torch.testing.assert_close(told, looked)
