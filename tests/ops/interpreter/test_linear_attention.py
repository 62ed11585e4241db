"""Triton's linear attention beside its laws: steps, states, forms of launches."""

import pytest
import torch

from fairseq_transnormer.ops import LinearAttentionState, linear_attention
from fairseq_transnormer.ops.kernels import launch
from fairseq_transnormer.ops.linear_attention import launch_table, triton_impl
from tests.messages import refuses
from tests.ops import laws
from tests.ops.drawing import relative_error
from tests.ops.laws import INTERPRETER

from .test_laws import RULES
from .tolerances import TOLERANCES

pytestmark = pytest.mark.usefixtures("poisoned_memory")


def draw(length, dtype=torch.float32, width=32, value_width=32, key_length=None):
    key_length = key_length or length
    shapes = ((length, width), (key_length, width), (key_length, value_width))
    return [torch.randn(2, n, 2, w).to(dtype) for n, w in shapes]


def draw_state(width=32, value_width=32, normalize=False):
    return LinearAttentionState(
        torch.randn(2, 2, width, value_width),
        torch.rand(2, 2, width) if normalize else None,
        torch.tensor([5, 7]),
    )


@pytest.mark.parametrize(
    ("dtype", "pads", "normalize"),
    [(torch.float32, [[True], [False]], True), (torch.float32, None, False)]
    + [(torch.bfloat16, None, True), (torch.float16, [[True], [False]], False)],
)
@torch.no_grad()
def test_one_token_updates_the_state_in_place(dtype, pads, normalize):
    qkv = draw(1, dtype, 32, 128)
    state = draw_state(32, 128, normalize)
    keywords = {
        "causal": True,
        "normalize": normalize,
        "feature_map": "1+elu",
        "return_state": True,
        "key_padding_mask": None if pads is None else torch.tensor(pads),
    }
    expected, after = linear_attention(
        *qkv, backend="reference", initial_state=state, **keywords
    )
    output, state_after = linear_attention(
        *qkv, backend="triton", initial_state=state, **keywords
    )
    assert state_after.key_value is state.key_value
    # torch rounds elu to the inputs' dtype before it adds 1, so phi may differ a bit
    assert relative_error(output, expected) < TOLERANCES[dtype]
    assert relative_error(state.key_value, after.key_value) < TOLERANCES[dtype]
    if normalize:
        assert state_after.key_sum is state.key_sum
        assert relative_error(state.key_sum, after.key_sum) < TOLERANCES[dtype]
    assert torch.equal(state_after.length, after.length)


@torch.no_grad()
def test_a_state_with_other_strides_is_updated_in_place():
    qkv = draw(1, width=32, value_width=64)
    stored, keys = torch.randn(2, 2, 64, 32), torch.rand(2, 2, 32, 2)
    state = LinearAttentionState(stored.mT, keys[..., 1], torch.tensor([5, 7]))
    keywords = {"causal": True, "normalize": True, "initial_state": state}
    _, after = linear_attention(
        *qkv, backend="reference", return_state=True, **keywords
    )
    linear_attention(*qkv, backend="triton", **keywords)
    assert relative_error(stored.mT, after.key_value) < 1e-6
    assert relative_error(keys[..., 1], after.key_sum) < 1e-6


def test_a_backward_pass_sees_that_a_step_changed_its_state():
    state = draw_state()
    qkv = [x.requires_grad_() for x in draw(5)]
    output = linear_attention(*qkv, causal=True, initial_state=state, backend="triton")[
        0
    ]
    with torch.no_grad():
        linear_attention(*draw(1), causal=True, initial_state=state, backend="triton")
    with refuses(RuntimeError, "modified", "inplace"):
        output.sum().backward()


@pytest.mark.parametrize("causal", [True, False])
def test_tokens_too_far_apart_for_offsets_of_32_bits_are_copied(causal, monkeypatch):
    # 2 rows of 2 heads of 32 in T x B x C
    monkeypatch.setattr(launch, "FARTHEST_TOKEN", 127)
    seen = []

    def view(tensors):
        seen[:] = [laws.VIEWS["tokens first"](x) for x in tensors]
        return seen

    laws.equation(INTERPRETER, "linear", torch.float32, view, causal=causal)
    leaves = [x.detach().requires_grad_() for x in seen]
    output = linear_attention(*leaves, causal=causal, backend="triton")[0]
    for x in (output, *torch.autograd.grad(output.sum(), leaves)):
        assert x.stride(1) <= 127


def test_a_loss_over_the_state_alone():
    query, key, value = (x.requires_grad_() for x in draw(70))
    _, state = linear_attention(
        query, key, value, causal=True, return_state=True, backend="triton"
    )
    state.key_value.sum().backward()
    assert (query.grad == 0).all()
    torch.testing.assert_close(key.grad, value.sum(-1, True).expand_as(key.grad))


def test_segments_are_powers_of_two_near_the_balance():
    lengths = {1025: 512, 4096: 512, 8192: 1024, 65536: 2048, 1 << 20: 8192}
    for length, segment in lengths.items():
        assert launch_table.cut(length, 64, processors=91) == segment
    # few sequences are cut finer, until the programs are enough
    assert launch_table.cut(65536, 1, processors=200) == 1024
    assert launch_table.cut(2048, 1, processors=91) == 256


@pytest.mark.parametrize("heads", [1, 8, 9, 26, 27])
@pytest.mark.parametrize("length", [512, 513])
def test_the_form_follows_sequences(length, heads):
    """On 108 multiprocessors: one segment forward from 27 sequences on, where a quarter
    of them have a program; backward from 9 on, since each has three."""
    x = torch.empty(1, 1, 1, 64).expand(1, length, heads, 64)
    for direction, enough in (("forward", 27), ("backward", 9)):
        plan = launch_table.causal_plan(direction, x, x)
        assert plan == ((length, False) if heads >= enough else (256, True))
    # wide heads have more programs: each has a tile of 64 columns
    wide = torch.empty(1, 1, 1, 128).expand(1, length, heads, 128)
    plan = launch_table.causal_plan("forward", wide, wide)
    assert (plan == (length, False)) == (heads >= 14)
    # without an order there is no state in front of each segment
    assert launch_table.sums_segment(x, x) == (length if heads >= 27 else 256)


def forms(monkeypatch, forward, backward):
    """The forms of the two launches, each a name of RULES."""
    plan = launch_table.causal_plan

    def of_its_direction(direction, query, value):
        rule = RULES[forward if direction == "forward" else backward]
        with monkeypatch.context() as patch:
            patch.setattr(launch_table, "RULE", rule)
            return plan(direction, query, value)

    monkeypatch.setattr(triton_impl, "causal_plan", of_its_direction)


@pytest.mark.parametrize(
    ("forward", "backward"),
    [
        ("one segment", "segments"),
        ("segments", "one segment"),
    ],
)
def test_the_backward_pass_may_have_a_form_of_its_own(forward, backward, monkeypatch):
    """Also where it needs sums of segments that the forward pass had no use for."""
    forms(monkeypatch, forward, backward)
    laws.equation(INTERPRETER, "linear", torch.float32, length=100, pads=True)


@pytest.mark.parametrize(
    ("backward", "kept"), [("segments", True), ("one segment", False)]
)
def test_sums_are_kept_for_a_backward_pass_that_reads_them(backward, kept, monkeypatch):
    forms(monkeypatch, "segments", backward)
    shapes = []
    query, key, value = draw(100)
    with torch.autograd.graph.saved_tensors_hooks(
        lambda x: shapes.append(x.shape) or x, lambda x: x
    ):
        linear_attention(
            query.requires_grad_(), key, value, causal=True, backend="triton"
        )
    assert ((4, 2, 32, 32) in shapes) == kept
