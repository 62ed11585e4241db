"""Each registered provider computes what float64 says, and what is measured of it."""

from dataclasses import replace

import pytest
import torch

from benchmarks import measure, registry
from benchmarks.equations import block_attention, softmax_attention
from benchmarks.measure import FORWARD, TRAINING
from benchmarks.ops import Judge, make_call
from benchmarks.options import Case, Ops
from benchmarks.registry import Op, Provider, draw, sdpa
from fairseq_transnormer.ops import reference

from .runs import run_of

SETUP = Ops(
    tokens=64, heads=2, width=8, block_size=16, check_length=32, lengths=(32,),
    least_repeats=2, most_repeats=2,
)  # fmt: skip
SETUP.complete()
SIZES = "--tokens 64 --heads 2 --width 8 --block-size 16 --check-length 32"


def ops_of(name, **values):
    return registry.REGISTRY[name](replace(SETUP, **values))


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Copies and vocabularies are for machines that measure."""
    monkeypatch.setitem(measure.COPIED_BYTES, "cpu", 1000)
    monkeypatch.setattr(measure, "FLUSHED_BYTES", 1000)
    monkeypatch.setattr(registry, "VOCABULARY", 90)


@pytest.mark.parametrize("name", registry.REGISTRY)
def test_every_provider_is_right(name):
    """Outputs and gradients; what another package or device is for says so."""
    judged = 0
    for op in ops_of(name):
        judge = Judge(op)
        for kind, provider in op.providers.items():
            reason = provider.why_not(SETUP)
            if reason:
                assert "CUDA" in reason or "not installed" in reason
            elif not provider.slow:
                found = judge(provider)
                assert not found["wrong"], (op.variant, kind, found)
                judged += 1
    assert judged >= 2


def test_equations_are_the_papers():
    """The yardsticks beside the project's float64 definitions."""
    q, k, v = torch.randn(3, 2, 32, 2, 8, dtype=torch.float64)
    (op,), inputs = ops_of("linear_attention"), (q, k, v)
    expected = reference.linear_attention(*inputs, causal=True)[0]
    torch.testing.assert_close(op.equation(*inputs), expected)
    (both,) = ops_of("bidirectional_linear_attention")
    expected = reference.linear_attention(*inputs, causal=False)[0]
    torch.testing.assert_close(both.equation(*inputs), expected)


@pytest.mark.parametrize("causal", [True, False])
def test_the_peer_is_softmax_attention(causal):
    q, k, v = torch.randn(3, 2, 32, 2, 8)
    expected = softmax_attention(q, k, v, causal)
    torch.testing.assert_close(sdpa(causal)(q, k, v), expected)
    blocks = block_attention(q, k, v, 16, causal, "softmax")
    torch.testing.assert_close(sdpa(causal, block_size=16)(q, k, v), blocks)


X = 64 * 2 * 8 * 2  # bytes of one (B, N, H, D) in bfloat16: B n = 64, 2 heads of 8


@pytest.mark.parametrize(
    ("name", "forward", "backward"),
    [
        ("linear_attention", 4 * X, 7 * X),
        ("block_attention", 4 * X, 7 * X),
        # theta (4) and reflection (8) in float32 are read; theta has a gradient
        ("norm_attention", 4 * X + 4 * 12, 7 * X + 4 * 12 + 4 * 4),
        ("rms_norm", 2 * X, 3 * X),
        ("gated_silu", 3 * 64 * 1365 * 2, 5 * 64 * 1365 * 2),
        ("feature_map_and_lrpe", 4 * X + 48, 6 * X + 48 + 16),
    ],
)
def test_least_bytes(name, forward, backward):
    op = ops_of(name, dtype="bfloat16")[0]
    provider, inputs = op.providers["ours (torch)"], op.inputs(Case(2, 32))
    assert make_call(provider, inputs, FORWARD)[1] == forward
    assert make_call(provider, inputs, TRAINING)[1] == forward + backward


def double(x):
    return 2 * x


def op_of(**providers):
    def inputs(case):
        return [draw(SETUP, *case, 2, 4)]

    made = {name: Provider(each) for name, each in providers.items()}
    return Op(SETUP, "o", "v", double, inputs, made)


def test_a_wrong_one_is_marked():
    op = op_of(
        right=lambda x: x + x, wrong=lambda x: 2.001 * x, nan=lambda x: x * torch.nan
    )
    found = {name: Judge(op)(each) for name, each in op.providers.items()}
    assert {name: each["wrong"] for name, each in found.items()} == {
        "right": False, "wrong": True, "nan": True,
    }  # fmt: skip
    assert found["wrong"]["errors"]["gradients"] == pytest.approx(0.0005, rel=0.01)
    assert found["nan"]["errors"]["forward"] == "nan"


def test_calls_take_the_given_layout():
    x, seen = torch.randn(2, 8, 3, 4, requires_grad=True), []

    def attend(x):
        seen.append(x.shape)
        return 2 * x

    call, _ = make_call(Provider(attend, heads_first=True), [x], TRAINING)
    (gradient,) = call()
    assert set(seen) == {(2, 3, 8, 4)} and gradient.shape == (2, 3, 8, 4)
    forward, _ = make_call(Provider(double), [x], FORWARD)
    assert not forward().requires_grad


def test_rows(tmp_path):
    # 2 heads x 32 x 32 float32, twice, are 16 KiB; those of 64 tokens are too large
    limit = f"--quadratic-limit-gib {16 / 2**20} --lengths 16 32 64"
    named = "ops --ops linear_attention"
    run = run_of(f"{named} {SIZES} {limit}", tmp_path / "a.json")
    rows = run["measurements"]
    entered = {
        (op.variant, n) for op in ops_of("linear_attention") for n in op.providers
    }
    assert {(row["variant"], row["provider"]) for row in rows} == entered
    naive = [row for row in rows if row["provider"] == "naive"]
    skipped = [row for row in naive if "skipped" in row]
    assert [row["length"] for row in skipped] == [64]
    assert "--quadratic-limit-gib" in skipped[0]["skipped"]
    # two lengths, two modes
    assert len(naive) - len(skipped) == 2 * 2
    assert not any(row["wrong"] for row in rows if "seconds" in row)
    assert run["settings"]["copy_bandwidth"] > 0 and run["settings"]["tokens"] == 64


def test_a_provider_that_raises_is_a_row_and_time_ends(tmp_path, monkeypatch):
    def unable(x):
        raise TypeError("no such\n\nargument\nmore")

    op = op_of(broken=unable, good=double)
    monkeypatch.setitem(registry.REGISTRY, "rms_norm", lambda options: [op])
    run = run_of(f"ops --ops rms_norm {SIZES} --lengths 32", tmp_path / "a.json")
    broken, *good = run["measurements"]
    assert broken["skipped"] == "TypeError: no such argument"
    assert {row["provider"] for row in good} == {"good"}
    late = f"ops --ops rms_norm {SIZES} --lengths 32 --time-limit 1e-9"
    for row in run_of(late, tmp_path / "b.json")["measurements"]:
        assert "--time-limit" in row["skipped"]
