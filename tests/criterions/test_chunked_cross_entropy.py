"""The chunked criterions beside fairseq's, on every model that they are for."""

import math
import sys
from types import SimpleNamespace

import pytest
import torch
from fairseq.criterions.cross_entropy import CrossEntropyCriterion
from fairseq.criterions.masked_lm import MaskedLmConfig, MaskedLmLoss
from fairseq.dataclass import FairseqDataclass
from fairseq.distributed import ModuleProxyWrapper
from fairseq.logging import metrics
from fairseq.models import MODEL_REGISTRY
from fairseq.models.roberta.model import RobertaModel
from fairseq.models.transformer_lm import (
    TransformerLanguageModel,
    TransformerLanguageModelConfig,
)
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

from fairseq_transnormer.plugin.criterions import ChunkedCrossEntropy, ChunkedMaskedLm
from tests.models.building import build, dictionary, draw_tokens, task

PAD = dictionary().pad()
TINY = sorted(
    name for name in MODEL_REGISTRY if name.endswith("_tiny") and name[:4] != "lra_"
)
CAUSAL = [name for name in TINY if not name.startswith("roberta_")]
ENCODERS = [name for name in TINY if name.startswith("roberta_")]


@pytest.fixture(autouse=True)
def several_chunks(monkeypatch):
    module = sys.modules["fairseq_transnormer.ops.linear_cross_entropy"]
    monkeypatch.setattr(module, "rows_at_a_time", lambda vocabulary, itemsize: 7)


def tokens_with_pads():
    tokens = draw_tokens(3, 12)
    tokens[1, 9:] = tokens[2, :2] = PAD
    return tokens


def causal_sample(padded=True):
    tokens = tokens_with_pads() if padded else draw_tokens(3, 12)
    target = draw_tokens(3, 12).masked_fill(tokens == PAD, PAD)
    return {
        "net_input": {"src_tokens": tokens, "src_lengths": None},
        "target": target,
        "ntokens": int((target != PAD).sum()),
        "nsentences": 3,
    }


def masked_sample(masked=True):
    sample = causal_sample()
    chosen = torch.zeros(3, 12, dtype=torch.bool)
    if masked:
        chosen[0, ::3] = chosen[2, 5] = True
    sample["target"] = sample["target"].masked_fill(~chosen, PAD)
    return sample


def transformer_lm(**changes):
    cfg = TransformerLanguageModelConfig(
        decoder_embed_dim=16, decoder_ffn_embed_dim=16, decoder_layers=1,
        decoder_attention_heads=2, dropout=0.1, **changes,
    )  # fmt: skip
    cfg.decoder_input_dim = cfg.decoder_output_dim = 16
    cfg.max_target_positions = 64
    return TransformerLanguageModel.build_model(cfg, task())


def roberta():
    options = SimpleNamespace(
        encoder_layers=1, encoder_embed_dim=16, encoder_ffn_embed_dim=16,
        encoder_attention_heads=2, max_positions=64, tokens_per_sample=64,
    )  # fmt: skip
    return RobertaModel.build_model(options, task())


def results(model, criterion, sample, reduce=True):
    """Loss, sample size, what is logged, and gradients where there is a sum."""
    model.train().zero_grad()
    torch.manual_seed(0)
    loss, size, log = criterion(model, sample, reduce=reduce)
    gradients = {}
    if reduce:
        (2 * loss).backward()
        gradients = {
            name: p.grad for name, p in model.named_parameters() if p.grad is not None
        }
    return loss.detach(), int(size), log, gradients


def numbers(log):
    return {name: float(torch.as_tensor(value).sum()) for name, value in log.items()}


def check(model, theirs, ours, sample, reduce=True):
    expected = results(model, theirs, sample, reduce)
    trained = {name for name, p in model.named_parameters() if p.requires_grad}
    assert expected[3].keys() == (trained if reduce else set())
    for known in (sample, {**sample, **ours.look_at_batch(sample)}):
        loss, size, log, gradients = results(model, ours, known, reduce)
        log.pop("sentence_avg", None)
        torch.testing.assert_close(loss, expected[0], rtol=1e-6, atol=1e-6)
        assert size == expected[1]
        logged = numbers(log)
        assert logged == pytest.approx(numbers(expected[2]), rel=1e-6)
        assert gradients.keys() == expected[3].keys()
        for name, gradient in gradients.items():
            torch.testing.assert_close(
                gradient, expected[3][name], rtol=1e-4, atol=2e-5, msg=name
            )


def causal_criterions(sentence_avg=False):
    return CrossEntropyCriterion(task(), sentence_avg), ChunkedCrossEntropy(
        task(), sentence_avg
    )


def masked_criterions():
    return MaskedLmLoss(MaskedLmConfig(tpu=False), task()), ChunkedMaskedLm(
        FairseqDataclass(), task()
    )


@pytest.mark.parametrize("name", CAUSAL)
def test_causal_models(name):
    check(build(name), *causal_criterions(), causal_sample())


@pytest.mark.parametrize("name", ENCODERS)
def test_encoders(name):
    check(build(name), *masked_criterions(), masked_sample())


@pytest.mark.parametrize(
    "changes",
    [
        {"untie_output_embedding": True},
        {"output_bias": True},
        {"untie_output_embedding": True, "output_bias": True},
        {"checkpoint_activations": True},
    ],
    ids=lambda changes: " ".join(changes),
)
def test_output_layers(changes):
    model = build("transnormer_t2_tiny", **changes)
    check(model, *causal_criterions(), causal_sample())


def test_an_encoders_own_output_matrix():
    model = build("roberta_transnormer_t2_tiny", untie_output_embedding=True)
    check(model, *masked_criterions(), masked_sample())


@pytest.mark.parametrize("padded", [True, False])
def test_sentence_avg(padded):
    criterions = causal_criterions(sentence_avg=True)
    check(build("transnormer_t2_tiny"), *criterions, causal_sample(padded))


def test_perplexity_is_that_of_a_token_with_sentence_avg():
    """Also after a batch of sentences of one token, where fairseq takes the loss."""
    with metrics.aggregate(new_root=True) as found:
        for loss, tokens in ((2.0, 2), (30.0, 12)):
            sums = {"loss": loss, "ntokens": tokens, "nsentences": 2, "sample_size": 2}
            ChunkedCrossEntropy.reduce_metrics([sums | {"sentence_avg": 1}])
    values = found.get_smoothed_values()
    assert values["ppl"] == pytest.approx(math.exp(32 / 14), abs=0.01)
    assert values["loss"] == pytest.approx(32 / 4 / math.log(2), abs=1e-3)


def test_losses_of_the_tokens():
    for name in ("transnormer_t1_tiny", "vanilla_transformer_tiny"):
        check(build(name), *causal_criterions(), causal_sample(), reduce=False)


def test_a_batch_without_a_masked_token():
    model, ours = build("roberta_transnormer_t2_tiny"), masked_criterions()[1]
    loss, size, _, gradients = results(model, ours, masked_sample(masked=False))
    assert loss == 0 and size == 0
    assert not any(gradient.any() for gradient in gradients.values())


@pytest.mark.parametrize("name", ["transnormer_t2_tiny", "vanilla_transformer_tiny"])
def test_no_gradient_is_made_for_validation(name, monkeypatch):
    module = sys.modules["fairseq_transnormer.ops.linear_cross_entropy"]
    made = []
    monkeypatch.setattr(module, "_add_product", lambda *_: made.append(1))
    model, ours = build(name), causal_criterions()[1]
    with torch.no_grad():
        loss, _, _ = ours(model, causal_sample())
    assert not loss.requires_grad and not made


def test_batches_are_looked_at_on_the_host():
    """What is known of a batch leaves nothing to be asked of its tensors."""
    ours, sample = causal_criterions()[1], causal_sample()
    assert ours.look_at_batch(sample) == {"padding": "anywhere"}
    sample["net_input"]["src_tokens"][2, :2] = 5
    assert ours.look_at_batch(sample) == {"padding": "right"}
    assert ours.look_at_batch(causal_sample(padded=False)) == {"padding": "none"}
    sample = masked_sample()
    seen = masked_criterions()[1].look_at_batch(sample)["target_positions"]
    assert seen.dtype == torch.int64
    chosen = torch.zeros(36, dtype=torch.bool)
    chosen[seen] = True
    assert torch.equal(chosen.view(3, 12), sample["target"] != PAD)


@pytest.fixture
def one_worker(tmp_path):
    """A process group of this process alone."""
    distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path / 'meeting'}", rank=0, world_size=1
    )
    yield
    distributed.destroy_process_group()


@pytest.mark.parametrize("find_unused_parameters", [True, False])
@pytest.mark.parametrize(
    ("name", "untied"),
    [
        ("transnormer_t1_tiny", False),
        ("transnormer_t1_tiny", True),
        ("vanilla_transformer_tiny", True),
        ("roberta_transnormer_t2_tiny", True),
    ],
)
def test_ddp_knows_every_weight_of_the_loss(
    name, untied, find_unused_parameters, one_worker
):
    """A weight used outside of its forward pass is unused, or comes too late."""
    encodes = name.startswith("roberta")
    ours = (masked_criterions if encodes else causal_criterions)()[1]
    sample = masked_sample() if encodes else causal_sample()
    sample |= ours.look_at_batch(sample)
    model = build(name, untie_output_embedding=untied)
    alone = results(model, ours, sample)
    wrapped = DistributedDataParallel(
        model, find_unused_parameters=find_unused_parameters
    )
    for _ in range(2):
        found = results(ModuleProxyWrapper(wrapped), ours, sample)
        assert found[3].keys() == {f"module.module.{key}" for key in alone[3]}
        for key, gradient in alone[3].items():
            torch.testing.assert_close(found[3][f"module.module.{key}"], gradient)
