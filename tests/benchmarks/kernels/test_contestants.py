"""Contestants compute what they claim, and those that do not are found out."""

from dataclasses import replace
from functools import partial

import pytest
import torch

from benchmarks.kernels import contestants
from benchmarks.kernels.accuracy import FACTOR, Judge, check_case, relative_error
from benchmarks.kernels.contestants import Case, Setup, equations
from benchmarks.kernels.contestants.contestant import Contestant, as_tuple
from fairseq_transnormer.ops import reference

CPU = torch.device("cpu")
SETUP = Setup(
    tokens=64,
    heads=2,
    width=8,
    block_size=16,
    feature_map="identity",
    device=CPU,
    dtype=torch.float32,
)
GROUPS = contestants.all_groups(SETUP, [Case(2, 32)], Case(2, 32))
# a group's published shape is that of another with larger sizes
KINDS = [group for group in GROUPS if "T2048" not in group.variant]


@pytest.mark.parametrize("group", KINDS, ids=lambda each: f"{each.name} {each.variant}")
def test_who_runs_on_a_cpu_is_right(group):
    judge = Judge(group)
    for contestant in group.contestants:
        if contestant.slow_start or contestant.why_not_on(CPU) is not None:
            continue
        if contestant.name == "ours (triton)":
            with pytest.raises(ValueError, match="backend='triton'"):
                judge(contestant)
            continue
        verdict = judge(contestant)
        assert not verdict.is_wrong, verdict
        assert verdict.errors.forward < 1e-5
        if any(x.requires_grad for x in judge.inputs):
            assert 0 < verdict.errors.gradients < 1e-5
        if group.name == "published_shapes":  # the others are of linear_attention
            assert contestant.name == "ours (torch)"
            break


def test_every_group_has_ours_and_names_are_unique():
    assert {group.name for group in GROUPS} == set(contestants.NAMES)
    for group in GROUPS:
        names = [contestant.name for contestant in group.contestants]
        assert len(set(names)) == len(names)
        assert "ours (torch)" in names
        assert ("ours (triton)" in names) == (group.variant != "sum-normalised")


def group_named(name, variant):
    (group,) = (g for g in GROUPS if (g.name, g.variant) == (name, variant))
    return group


class GradientOff(torch.autograd.Function):
    """The identity, whose gradient is off by a thousandth."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        return grad * 1.001


CAUSAL = equations.causal_linear_attention
WRONG = {
    "both": [
        lambda q, k, v: 1.001 * CAUSAL(q, k, v),
        equations.bidirectional_linear_attention,
        lambda q, k, v: CAUSAL(q, k, v) * torch.nan,
    ],
    "gradients": [lambda q, k, v: CAUSAL(GradientOff.apply(q), k, v)],
}


@pytest.mark.parametrize("wrong_in", WRONG)
def test_wrong_ones_are_marked(wrong_in):
    group = group_named("linear_attention", "causal")
    for function in WRONG[wrong_in]:
        verdict = Judge(group)(Contestant("wrong", function))
        assert verdict.is_wrong and verdict.fields()["wrong"] is True
        right_forward = verdict.errors.forward <= FACTOR * verdict.yardstick.forward
        assert right_forward == (wrong_in == "gradients")
    with pytest.raises(RuntimeError):
        Judge(group)(Contestant("shape", lambda q, k, v: CAUSAL(q, k, v)[:, 1:]))


def test_bfloat16_is_judged_by_bfloat16():
    setup = SETUP._replace(dtype=torch.bfloat16)
    groups = contestants.all_groups(setup, [Case(2, 32)], Case(2, 32))
    verdict = Judge(groups[0])(groups[0].contestants[1])
    assert not verdict.is_wrong
    assert 1e-3 < verdict.yardstick.forward < 2e-2


def test_layouts():
    """A contestant that wants heads first gets them, and is judged as the others."""
    group = group_named("linear_attention", "causal")
    seen = []

    def heads_first(q, k, v):
        seen.append((q.shape, q.is_contiguous(), q.is_leaf))
        return (q @ k.mT).tril() @ v

    contestant = Contestant("heads first", heads_first, heads_first=True)
    assert not Judge(group)(contestant).is_wrong
    assert seen == [((2, 2, 32, 8), True, True)]


@pytest.mark.parametrize("causal", [True, False])
def test_equations_are_the_papers(causal):
    def same(found, name, *inputs, **keywords):
        expected = getattr(reference, name)(*inputs, **keywords)
        torch.testing.assert_close(found, expected)

    q, k, v = torch.randn(3, 2, 32, 2, 8, dtype=torch.float64)
    for activation in ("softmax", "relu"):
        kind = dict(block_size=16, causal=causal, activation=activation)
        found = equations.block_attention(q, k, v, **kind)
        same(found, "block_attention", q, k, v, **kind)
    linear = CAUSAL if causal else equations.bidirectional_linear_attention
    for phi in ("identity", "1+elu"):
        kind = {"causal": causal, "feature_map": phi}
        same(linear(q, k, v, phi), "linear_attention", q, k, v, **kind)
    kind = {"causal": True, "feature_map": "1+elu", "normalize": True}
    found = equations.sum_normalised_attention(q, k, v, "1+elu")
    same(found, "linear_attention", q, k, v, **kind)
    same(equations.gated_silu(q, v), "gated_silu", q, v)


def test_norm_attention_equation_is_the_papers():
    """As the reference's lrpe, linear_attention and rms_norm, one after the other."""
    group = group_named("norm_attention", "causal")
    q, k, v, theta, direction = (x.detach().double() for x in group.inputs(Case(2, 20)))
    encoded = reference.lrpe(
        q, k, theta, direction, torch.arange(20), feature_map="1+elu"
    )
    expected = reference.linear_attention(*encoded, v, causal=True)
    torch.testing.assert_close(
        equations.norm_attention(q, k, v, theta, direction),
        reference.rms_norm(expected.flatten(2)),
    )


def test_steps_continue_a_state():
    """A second call of the step is the next token, not the same one again."""
    group = group_named("decode_step", "linear attention")
    ours = next(c for c in group.contestants if c.name == "ours (torch)")
    q, k, v = group.inputs(Case(2, 5))
    step = ours.start((q, k, v))
    first, second = step().clone(), step()
    again = [torch.cat((x, x[:, -1:]), 1) for x in (q, k, v)]
    torch.testing.assert_close(first, group.computation.equation(q, k, v))
    torch.testing.assert_close(second, group.computation.equation(*again))


def test_what_is_not_there_is_said():
    contestant = Contestant("x", as_tuple, package="no-such-package")
    assert contestant.why_not_on(CPU) == "no-such-package is not installed"
    contestant = replace(contestant, needs_cuda=True)
    assert contestant.why_not_on(CPU) == "needs a CUDA device"
    assert Contestant("y", as_tuple).why_not_on(CPU) is None


def test_relative_error_by_hand():
    error = relative_error(torch.tensor([3.0, 4.0]), torch.tensor([0.0, 4.0]))
    assert error == pytest.approx(0.75)
    assert relative_error(torch.zeros(2), torch.zeros(3)) == float("inf")


def test_all_tokens_are_checked_on_a_gpu():
    assert check_case(65536, 512, torch.device("cuda")) == Case(128, 512)
    assert check_case(65536, 512, CPU) == Case(2, 512)


@pytest.mark.slow
def test_compiled_contestants_are_right():
    """One of them: compiling takes seconds."""
    group = group_named("rms_norm", "")
    compiled = next(c for c in group.contestants if c.name == "torch.compile")
    try:
        verdict = Judge(group)(compiled)
    except torch._dynamo.exc.BackendCompilerFailed as error:
        pytest.skip(f"torch.compile does not work here: {error}")
    assert not verdict.is_wrong


def test_sdpa_peer_is_softmax_attention():
    from torch.nn.attention import SDPBackend

    from benchmarks.kernels.contestants.torch_attention import sdpa, sdpa_on_blocks

    q, k, v = torch.randn(3, 2, 32, 2, 8)
    for causal in (True, False):
        torch.testing.assert_close(
            sdpa(causal)(q, k, v), equations.softmax_attention(q, k, v, causal)
        )
        blocks = sdpa_on_blocks(causal, 16, SDPBackend.FLASH_ATTENTION)
        equation = partial(
            equations.block_attention,
            block_size=16,
            causal=causal,
            activation="softmax",
        )
        torch.testing.assert_close(blocks(q, k, v), equation(q, k, v))
