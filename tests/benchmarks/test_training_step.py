"""A training step and an update: what they compute, and the peer beside them."""

from types import SimpleNamespace

import pytest
import torch
from fairseq.criterions.cross_entropy import CrossEntropyCriterion
from fairseq.optim.fp16_optimizer import FP16Optimizer
from omegaconf import OmegaConf

from benchmarks.fairseq_transformer import build_transformer, with_sdpa
from benchmarks.models import AS_SHIPPED, WITH_SDPA, build_transnormer
from benchmarks.training_step import MasterAdam, TrainingStep
from tests.messages import assert_names

from .runs import rows_of, run_of

VOCABULARY = 60
SIZE = dict(width=32, heads=4, layers=2, vocabulary=VOCABULARY)
QUICK = "--width 32 --heads 2 --layers 2 --vocabulary 50 --tokens 32 --lengths 16 32"


@pytest.fixture
def vanilla():
    return build_transformer(**SIZE, max_positions=64)


@pytest.fixture
def tokens():
    return torch.randint(4, VOCABULARY, (3, 20))


def test_sdpa_computes_what_fairseq_computes(vanilla, tokens):
    """Logits and all gradients."""
    grad, found = torch.randn(3, 20, VOCABULARY), []
    for model in (vanilla, with_sdpa(vanilla)):
        output = model(tokens)[0]
        named = dict(model.named_parameters())
        grads = torch.autograd.grad(output, list(named.values()), grad)
        found.append({"logits": output, **dict(zip(named, grads, strict=True))})
    assert found[0].keys() == found[1].keys() and len(found[0]) > 30
    for name, expected in found[0].items():
        torch.testing.assert_close(found[1][name], expected, atol=2e-5, rtol=2e-5)


def fairseqs_optimizer(weights):
    adam = {"_name": "adam", "adam_betas": "(0.9, 0.999)", "adam_eps": 1e-8}
    adam |= {"weight_decay": 0.0, "lr": [1e-3], "tpu": False, "fp16_adam_stats": False}
    config = {"optimizer": adam | {"use_old_adam": True}}
    config["common"] = {"bf16": True, "fp16_scale_window": 1}
    return FP16Optimizer.build_optimizer(OmegaConf.create(config), weights)


def test_adam_is_fairseqs_in_half_precision():
    """Updates far below bfloat16's resolution add up in the float32 copies."""
    drawn = torch.randn(9).bfloat16(), torch.randn(5)
    ours, peers = ([torch.nn.Parameter(w.clone()) for w in drawn] for _ in range(2))
    begin = ours[0].detach().clone()
    optimizer, peer = MasterAdam(ours, 1e-3), fairseqs_optimizer(peers)
    for _ in range(20):
        peer.zero_grad()
        grads = [torch.randn_like(x) for x in ours]
        for weights, backward in (
            (ours, torch.Tensor.backward),
            (peers, peer.backward),
        ):
            backward(sum((w * g).sum() for w, g in zip(weights, grads, strict=True)))
        optimizer.step()
        optimizer.zero_grad()
        peer.step()
    assert not ours[0].equal(begin)
    for x, y in zip(ours, peers, strict=True):
        torch.testing.assert_close(x, y)
    torch.testing.assert_close(optimizer.copies[0], peer.fp32_params[0].data)


def test_the_loss_is_fairseqs_criterion(vanilla, tokens):
    target = torch.randint(4, VOCABULARY, tokens.shape)
    task = SimpleNamespace(target_dictionary=vanilla.decoder.dictionary)
    criterion = CrossEntropyCriterion(task, sentence_avg=False)
    sample = {"net_input": {"src_tokens": tokens}, "target": target, "ntokens": 60}
    expected = criterion(vanilla, sample)[0]
    step = TrainingStep(vanilla, with_output=True)
    torch.testing.assert_close(step(tokens, target), expected)


@pytest.mark.parametrize(
    ("dtype", "with_output"),
    [(torch.float32, True), (torch.bfloat16, False), (torch.float16, True)],
)
def test_steps_learn(with_output, dtype, tokens):
    model = build_transnormer(**SIZE).to(dtype)
    target = tokens if with_output else torch.randn(3, 20, 32)
    step = TrainingStep(model, with_output=with_output)
    for group in step.optimizer.adam.param_groups:
        group["lr"] = 1e-2
    losses = [step(tokens, target) for _ in range(8)]
    assert losses[-1] < 0.95 * losses[0]
    assert all(p.grad is None for p in model.parameters())


def test_rows(tmp_path):
    # fairseq's mask of 16 x 16 float32 is allowed, that of 32 x 32 is not
    limit = f"--quadratic-limit-gib {16 * 16 * 4 / 2**30}"
    words = f"{QUICK} {limit} --dtype bfloat16 --backends torch triton --parts"
    run = run_of(f"training_step {words} model stack", tmp_path / "t.json")
    rows = rows_of(run, "part", "provider", "length")
    names = [
        f"TransNormer {v} ({b})" for v in ("T1", "T2") for b in ("torch", "triton")
    ]
    assert rows.keys() == {
        (part, name, length)
        for length in (16, 32)
        for part in ("model", "stack")
        for name in (*names, AS_SHIPPED, WITH_SDPA)
    }
    for (_, name, length), row in rows.items():
        assert row["batch"] == 32 // length
        if "triton" in name:
            assert_names(row["skipped"], "Triton", "cpu", "CUDA")
        elif (name, length) == (AS_SHIPPED, 32):
            assert "--quadratic-limit-gib" in row["skipped"]
        else:
            assert row["peak_bytes"] > 0
    assert run["settings"]["dtype"] == "bfloat16"
