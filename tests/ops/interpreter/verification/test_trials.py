"""A kernel that is wrong, in whatever way, does not pass.

Kernels are broken on purpose behind their launch: what they wrote is changed.
"""

import pytest
import torch

from fairseq_transnormer import ops
from fairseq_transnormer.ops import backend, trial_cases, trials, verdicts
from fairseq_transnormer.ops.block_attention import triton_impl as block_attention
from fairseq_transnormer.ops.kernels import residual, rms_norm
from tests.messages import refuses

from .launches import (
    ATTENTION,
    X,
    added,
    after_a_state,
    block,
    encoded,
    glu,
    linear,
    norm,
    one_percent,
    reasons_against,
    set_multiprocessors,
    trials_of,
)


def one_row(name, x):
    if x.dim() == 3:
        x[0, 5].mul_(1.05)


def gradient_alone(name, x):
    if "backward" in name:
        x.mul_(1.01)


def last_row(name, x):
    x.view(-1, x.shape[-1])[-1] = 0


def nothing_written(name, x):
    # as what torch.empty gave
    x.view(-1, x.shape[-1])[-1] = torch.nan


def run_to_run(name, x, calls=[]):  # noqa: B006
    calls.append(name)
    x.mul_(1 + 1e-6 * len(calls))


def raising(name, x):
    raise RuntimeError("Triton Error [CUDA]: out of resource: shared memory")


@pytest.mark.parametrize(
    "change",
    [one_percent, one_row, gradient_alone, last_row, nothing_written, raising]
    + [run_to_run],
)
def test_a_broken_kernel_does_not_pass(change, launches):
    launches.change = change
    (found,) = trials_of(norm)
    assert found.verdict.reason and found.lasts
    assert found.raised == (change is raising)


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("Triton Error [CUDA]: out of memory"),
        RuntimeError("Failed to find C compiler"),
        torch.OutOfMemoryError("CUDA out of memory"),
        OSError("no space left on device"),
    ],
)
def test_what_says_nothing_of_a_kernel_does_not_last(error, launches):
    def change(name, x):
        raise error

    launches.change = change
    (found,) = trials_of(norm)
    assert found.verdict.reason and not found.lasts


@pytest.mark.parametrize("broken", ["norm_kernel", "norm_backward_kernel"])
def test_what_is_left_unwritten_is_seen(broken, monkeypatch):
    """A row keeps what its memory held, forward or backward: NaN."""
    launch = rms_norm.launch

    def all_but_a_row(kernel, grid, *arguments, **keywords):
        results = arguments[1:2] if broken == "norm_kernel" else arguments[2:3]
        if kernel.fn.__name__ != broken:
            return launch(kernel, grid, *arguments, **keywords)
        before = [x.clone() for x in results]
        launch(kernel, grid, *arguments, **keywords)
        for x, old in zip(results, before, strict=True):
            x[0, 3] = old[0, 3]

    monkeypatch.setattr(rms_norm, "launch", all_but_a_row)
    assert "nan" in reasons_against(norm)[0]


def silu():
    return ops.gated_silu(X, X)


def bidirectional():
    return linear(causal=False)


# kernel, and where that is not enough its use -> a call that launches it, or whose
# gradient does
KERNELS = {
    "gate_kernel": silu,
    "gate_backward_kernel": silu,
    "norm_backward_kernel": norm,
    "residual_kernel": added,
    "residual_backward_kernel": added,
    "gate_kernel of halves": glu,
    "halves_backward_kernel": glu,
    "total_kernel": glu,
    "encode_kernel": encoded,
    "encode_backward_kernel": encoded,
    "block_attention_forward": block,
    "block_attention_backward": block,
    "block_attention_step": lambda: after_a_state(ops.block_attention, block_size=16),
    "causal_forward_kernel": linear,
    "causal_backward_kernel": lambda: linear(ATTENTION.detach().requires_grad_()),
    "segment_sums_kernel": lambda: linear(ATTENTION.repeat(1, 8, 1, 1)[:, :, :1]),
    "bidirectional_forward_kernel": bidirectional,
    "bidirectional_backward_kernel": bidirectional,
    "step_kernel": lambda: after_a_state(ops.linear_attention),
}


SLOW = {"segment_sums_kernel"}
# each once, by the first of its kernels
CALLS = {call: name for name, call in reversed(KERNELS.items()) if name not in SLOW}


@pytest.mark.parametrize(
    "kernel",
    [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in KERNELS],
)
def test_every_kernel_is_tried(kernel, launches, monkeypatch):
    """One row of what it writes, wrong by a twentieth, and its op does not pass."""
    if kernel == "segment_sums_kernel":
        set_multiprocessors(monkeypatch, 108)

    broken = kernel.split()[0]

    def change(name, x):
        if name == broken:
            x.mul_(1.05) if x.dim() < 2 else x[-1].mul_(1.05)

    launches.change = change
    assert len(reasons_against(KERNELS[kernel])) == 1 and broken in launches


@pytest.mark.parametrize("call", CALLS, ids=CALLS.values())
def test_what_is_launched_has_been_tried(call, launches, monkeypatch):
    """Constants, dtypes, and which tensors are left out; as they are, kernels pass."""
    assert reasons_against(call) == []
    tried = set(launches.compiled)
    launches.compiled.clear()
    monkeypatch.setattr(backend, "_why_kernels_are_avoided", lambda *arguments: None)
    result = call()
    if result.requires_grad:
        result.sum().backward()
    assert launches.compiled and launches.compiled <= tried


def test_gradients_in_float16(launches):
    """The gradient of a float32 output comes in float32."""
    x = ATTENTION.half().requires_grad_()
    assert reasons_against(lambda: linear(x)) == []
    tried = set(launches.compiled)
    launches.compiled.clear()
    linear(x, backend="triton").float().sum().backward()
    assert launches.compiled <= tried


def cut(x):
    """x as TF32 has it: its last 13 bits are dropped."""
    return (x.view(torch.int32) & ~0x1FFF).view(torch.float32)


def test_what_tensor_cores_cut_off_is_allowed_and_one_percent_is_not():
    query, key, value = trial_cases.draw((64, 64), (64, 64), (64, 64), device=X.device)
    exact = query.double() @ key.double().T @ value.double()
    found = cut(cut(query) @ cut(key).T) @ cut(value)
    slack = trials.slack_of(torch.float32, products=True)
    trials.judge(found, exact.float(), exact, slack, "a right one")
    with pytest.raises(trial_cases.Mismatch):
        trials.judge(found * 1.01, exact.float(), exact, slack, "a wrong one")
    with pytest.raises(trial_cases.Mismatch):
        half = trials.slack_of(torch.float16, products=True)
        trials.judge(found, exact.float(), exact, half, "float16 is not cut")


def test_averages_are_torchs():
    with verdicts.collected() as configurations:
        linear(ATTENTION, normalize=True)
    assert configurations == []
    with refuses(ValueError, "triton", "normalize"):
        linear(ATTENTION, normalize=True, backend="triton")


def from_token_256_on(name, x):
    if name == "bidirectional_forward_kernel" and x.dim() == 4 and x.shape[1] > 256:
        x[:, 256:].mul_(1.5)


def rows_without_a_token(name, x):
    if name == "block_attention_forward":
        # a query that sees no key gives zeros
        x[(x == 0).all(-1)] = torch.nan


@pytest.mark.parametrize(
    ("change", "call"),
    [
        (from_token_256_on, lambda: linear(causal=False)),
        (
            rows_without_a_token,
            lambda: block(key_padding_mask=torch.arange(70)[None] > 60),
        ),
    ],
)
def test_faults_that_small_inputs_do_not_have(change, call, launches):
    launches.change = change
    assert len(reasons_against(call)) == 1


@pytest.mark.parametrize("broken", ["scale", "seed", "neighbours"])
def test_dropout_that_is_none(broken, launches, monkeypatch):
    """Wrong factors, one mask for all seeds, four columns dropped together."""
    draw_seed = residual.draw_seed

    def change(name, x):
        # the factors themselves: 0 and 1 / (1 - p)
        if name != "residual_kernel" or x.dim() != 3 or len(x.unique()) != 2:
            return
        if broken == "scale":
            x.mul_(1.1)
        if broken == "neighbours":
            x.copy_(x[..., ::4].repeat_interleave(4, -1))

    launches.change = change
    if broken == "seed":
        monkeypatch.setattr(residual, "draw_seed", lambda: draw_seed() * 0 + 2**62)
    assert len(reasons_against(added)) == 1


def drop_weights():
    return block(activation="relu", dropout_p=0.5)


@pytest.mark.parametrize(
    "broken",
    [
        *(pytest.param(each, marks=pytest.mark.slow) for each in ("scale", "seed")),
        *("heads", "backward"),
    ],
)
def test_dropout_of_weights_that_is_none(broken, launches, monkeypatch):
    """Besides: one mask for all heads, another one backwards."""
    draw_seed, launch = block_attention.draw_seed, block_attention.launch

    def change(name, x):
        # the factors themselves
        if name != "block_attention_forward" or len(x.unique()) != 2:
            return
        if broken == "scale":
            x.mul_(1.1)
        if broken == "heads":
            x.copy_(x[:, :, :1].expand_as(x))

    def other_seed_backwards(kernel, grid, *arguments, **keywords):
        if kernel.fn.__name__ == "block_attention_backward":
            arguments = [
                x + 1 if isinstance(x, int) and x >= 2**62 else x for x in arguments
            ]
        return launch(kernel, grid, *arguments, **keywords)

    launches.change = change
    if broken == "seed":
        monkeypatch.setattr(
            block_attention, "draw_seed", lambda: draw_seed() * 0 + 2**62
        )
    if broken == "backward":
        monkeypatch.setattr(block_attention, "launch", other_seed_backwards)
    assert len(reasons_against(drop_weights)) == 1


def test_dropout_of_weights_passes_its_trial(launches):
    assert reasons_against(drop_weights) == [] and "block_attention_forward" in launches
