"""The training step: what it computes, what a run writes, what the command refuses."""

import json
from types import SimpleNamespace

import pytest
import torch
from fairseq.criterions.cross_entropy import CrossEntropyCriterion
from fairseq.optim.fp16_optimizer import FP16Optimizer
from omegaconf import OmegaConf

from benchmarks.harness.cases import Deadline
from benchmarks.harness.language_models import build_transformer, build_transnormer
from benchmarks.harness.mixed_precision import MasterAdam
from benchmarks.harness.phases import AS_SHIPPED, LAYER, MODEL, STACK, WITH_SDPA
from benchmarks.training import sdpa_transformer, training_step
from benchmarks.training.sdpa_transformer import relative_difference, with_sdpa
from benchmarks.training.training_calls import (
    TrainingStep,
    VanillaLayer,
    features,
    logits,
)
from tests.messages import assert_names

VOCABULARY = 60
SIZE = dict(width=32, heads=4, layers=2, vocabulary=VOCABULARY)
QUICK = "--width 32 --heads 2 --layers 2 --vocabulary 50 --tokens 32 --lengths 16 32"
QUICK += " --threads 1 --least-repeats 2 --most-repeats 2"


@pytest.fixture
def vanilla():
    return build_transformer(**SIZE, max_positions=64)


@pytest.fixture
def tokens():
    return torch.randint(4, VOCABULARY, (3, 20))


def test_sdpa_computes_what_fairseq_computes(vanilla, tokens):
    """Logits and all gradients."""
    twin = with_sdpa(vanilla)
    grad = torch.randn(3, 20, VOCABULARY)
    found = []
    for model in (vanilla, twin):
        output = logits(model, tokens)
        named = dict(model.named_parameters())
        grads = torch.autograd.grad(output, list(named.values()), grad)
        found.append({"logits": output, **dict(zip(named, grads, strict=True))})
    assert found[0].keys() == found[1].keys() and len(found[0]) > 30
    for name, expected in found[0].items():
        torch.testing.assert_close(found[1][name], expected, atol=2e-5, rtol=2e-5)


def test_the_difference_is_seen(vanilla, tokens):
    twin = with_sdpa(vanilla).train()
    assert relative_difference(vanilla, twin, tokens) < 1e-6
    assert twin.training and not vanilla.training
    twin.decoder.layers[1].self_attn.forward = lambda query, **unused: (query, None)
    assert relative_difference(vanilla, twin, tokens) > 0.1


def test_a_different_twin_is_not_measured(monkeypatch):
    monkeypatch.setattr(sdpa_transformer, "with_sdpa", lambda model: with_sdpa(other))
    other = build_transformer(32, 2, 1, 50, 34)
    models = training_step.build_models(training_step.parse(QUICK.split()), 1, 50)
    assert "differ from fairseq's by" in models[WITH_SDPA]
    assert isinstance(models[AS_SHIPPED], torch.nn.Module)


@pytest.mark.parametrize("twin", [False, True])
def test_the_vanilla_layer_is_the_models(vanilla, tokens, twin):
    model = with_sdpa(vanilla) if twin else vanilla
    _, extra = vanilla.decoder.extract_features(tokens, encoder_out=None)
    before, after = extra["inner_states"][:2]
    torch.testing.assert_close(VanillaLayer(model)(before), after)


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
    if not with_output:
        x = features(model, tokens).float()
        assert (x - target).square().sum() < losses[0]


def read(path):
    run = json.loads(path.read_text())
    return run, {
        (r["part"], r["contestant"], r["length"]): r for r in run["measurements"]
    }


def test_rows(tmp_path):
    path = tmp_path / "t.json"
    # fairseq's mask of 16 x 16 float32 is allowed, that of 32 x 32 is not
    limit = f"--quadratic-limit-gib {16 * 16 * 4 / 2**30}"
    arguments = f"{QUICK} {limit} --dtype bfloat16 --backends torch triton"
    training_step.main([*arguments.split(), "--output", str(path)])
    run, rows = read(path)
    names = [
        f"TransNormer {v} ({b})" for v in ("T1", "T2") for b in ("torch", "triton")
    ]
    layers = [f"{name}, {kind}" for name in names for kind in ("diag", "norm")]
    peers = [AS_SHIPPED, WITH_SDPA]
    assert rows.keys() == {
        (part, name, length)
        for length in (16, 32)
        for part, ours in ((MODEL, names), (STACK, names), (LAYER, layers))
        for name in (*ours, *peers)
    }
    for (_, name, length), row in rows.items():
        assert row["batch"] == 32 // length
        if "triton" in name:
            assert_names(row["skipped"], "Triton", "cpu", "CUDA")
        elif (name, length) == (AS_SHIPPED, 32):
            assert "--quadratic-limit-gib" in row["skipped"]
        else:
            assert row["peak_bytes"] > 0 and len(row["seconds"]) == 2
    assert run["settings"]["dtype"] == "bfloat16"


def test_a_run_that_is_cut_off_keeps_what_it_has(tmp_path, monkeypatch):
    def make_calls(part, contestants, options, length):
        if length == 32:
            raise KeyboardInterrupt
        return {name: lambda: torch.ones(9) for name in contestants}

    monkeypatch.setattr(training_step, "make_calls", make_calls)
    path = tmp_path / "t.json"
    with pytest.raises(KeyboardInterrupt):
        training_step.main([*QUICK.split(), "--output", str(path)])
    assert {length for _, _, length in read(path)[1]} == {16}


def test_nothing_begins_after_the_time_limit(tmp_path):
    path = tmp_path / "t.json"
    limited = f"{QUICK} --parts {LAYER} --time-limit 0.001 --output {path}"
    training_step.main(limited.split())
    rows = read(path)[1]
    assert len(rows) == 2 * 6
    for row in rows.values():
        assert_names(row["skipped"], "--time-limit 0.001")


def test_one_that_fails_costs_the_others_nothing():
    def out_of_memory():
        raise torch.cuda.OutOfMemoryError("CUDA out of memory.\nmore lines")

    def broken():
        raise ValueError("what went wrong")

    calls = {"good": lambda: torch.ones(9), "large": out_of_memory, "broken": broken}
    options = training_step.parse(QUICK.split())
    rows = training_step.measure_case(MODEL, calls, options, 16, Deadline(100))
    good, large, broken = rows
    assert good["peak_bytes"] == 36 and len(good["seconds"]) == 2
    assert_names(large["skipped"], "out of memory")
    assert "\n" not in large["skipped"]
    assert_names(broken["skipped"], "ValueError", "went wrong")
    assert "seconds" not in large and "peak_bytes" not in broken


def test_what_depends_on_the_device():
    options = training_step.parse([])
    assert options.tokens == 2048 and options.vocabulary == 8000
    assert options.lengths == [512, 1024, 2048]
    assert training_step.parse(["--tokens", "8192"]).lengths[-1] == 8192
