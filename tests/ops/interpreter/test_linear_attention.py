"""Triton's linear attention, interpreted, against the equation in float64."""

import pytest
import torch

from fairseq_transnormer.ops import LinearAttentionState, linear_attention
from fairseq_transnormer.ops.triton_ops import launching
from fairseq_transnormer.ops.triton_ops.linear_attention import causal, options
from fairseq_transnormer.ops.triton_ops.linear_attention.options import Rule
from tests.messages import refuses
from tests.ops.drawing import draw_mask, relative_error

from .poison import poisoned_memory  # noqa: F401
from .tolerances import TOLERANCES

pytestmark = pytest.mark.usefixtures("poisoned_memory")
slow = pytest.mark.slow


def draw(length, dtype=torch.float32, width=32, value_width=32, key_length=None):
    key_length = key_length or length
    shapes = ((length, width), (key_length, width), (key_length, value_width))
    return [torch.randn(2, n, 2, w).to(dtype) for n, w in shapes]


def run(qkv, state=None, weights=None, **keywords):
    """Output, state after and every gradient of a loss over both."""
    leaves = [x.detach().requires_grad_() for x in qkv]
    if state is not None:
        leaves.append(state.key_value.detach().clone().requires_grad_())
        keywords["initial_state"] = state._replace(key_value=leaves[3])
    result = linear_attention(*leaves[:3], **keywords)
    results = {}
    if keywords.get("return_state"):
        result, after = result
        results |= {"state": after.key_value, "length": after.length}
    results["output"] = result
    if weights is not None:
        loss = (result * weights[0].to(result.dtype)).sum()
        if "state" in results:
            loss = loss + (results["state"] * weights[1].to(loss.dtype)).sum()
        names = ("query", "key", "value", "initial")
        gradients = torch.autograd.grad(loss, leaves)
        results |= dict(zip(names, gradients, strict=False))
    return {name: x.detach() for name, x in results.items()}


def check(qkv, state=None, tolerance=None, weights=True, **keywords):
    """Triton on qkv against the reference on the same numbers in float64."""
    query, _, value = qkv
    dtype = query.dtype
    if weights:
        shape = (*query.shape[:3], value.shape[-1])
        state_shape = (query.shape[0], query.shape[2], query.shape[3], shape[-1])
        weights = torch.randn(shape).to(dtype), torch.randn(state_shape)
    else:
        weights = None
    computed = run(qkv, state, weights, backend="triton", **keywords)
    if state is not None:
        state = state._replace(key_value=state.key_value.double())
    expected = run(
        [x.double() for x in qkv], state, weights, backend="reference", **keywords
    )
    assert computed.keys() == expected.keys()
    for name, x in computed.items():
        if name == "length":
            assert torch.equal(x, expected[name])
            continue
        error = relative_error(x, expected[name])
        assert error < (tolerance or TOLERANCES[dtype]), f"{name}: {error}"
        if name in ("query", "key", "value"):
            assert x.dtype == dtype
    wide = dtype == torch.float16
    assert computed["output"].dtype == (torch.float32 if wide else dtype)
    return computed


def draw_state(width=32, value_width=32, normalize=False):
    return LinearAttentionState(
        torch.randn(2, 2, width, value_width),
        torch.rand(2, 2, width) if normalize else None,
        torch.tensor([5, 7]),
    )


NEVER = float("inf")
RULES = {
    "segments": Rule(NEVER, enough=NEVER, smallest_segment=64),
    "one segment": Rule(one_segment=0),
}


@pytest.fixture(params=RULES)
def form(request, monkeypatch):
    """The launches that lengths, batches and heads of these tests would not reach."""
    monkeypatch.setattr(options, "RULE", RULES[request.param])
    return request.param


@pytest.mark.parametrize("length", [1, 64, 200])
def test_causal_lengths(length, form):
    check(draw(length), causal=True)


@pytest.mark.parametrize("dtype", TOLERANCES)
def test_causal_dtypes_with_states_masks_and_feature_map(dtype, form):
    check(
        draw(130, dtype),
        draw_state(),
        causal=True,
        feature_map="1+elu",
        key_padding_mask=draw_mask(2, 130),
        return_state=True,
    )


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("feature_map", ["elu", "relu"])
def test_feature_maps(feature_map, causal):
    check(draw(70), causal=causal, feature_map=feature_map)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("widths", [(64, 128), (128, 32)])
def test_head_widths(widths, causal):
    check(draw(70, torch.float32, *widths), causal=causal)


@pytest.mark.parametrize("widths", [(32, 128), pytest.param((128, 64), marks=slow)])
def test_states_of_unequal_widths(widths, form):
    check(
        draw(66, torch.float32, *widths),
        draw_state(*widths),
        causal=True,
        return_state=True,
    )


@pytest.mark.parametrize(
    ("lengths", "dtype"),
    [
        *(((17, 130), dtype) for dtype in TOLERANCES),
        ((130, 1), torch.float32),
        *(
            pytest.param((130, 1), dtype, marks=slow)
            for dtype in TOLERANCES
            if dtype != torch.float32
        ),
    ],
)
def test_bidirectional(lengths, dtype):
    length, key_length = lengths
    check(
        draw(length, dtype, key_length=key_length),
        causal=False,
        feature_map="1+elu",
        key_padding_mask=draw_mask(2, key_length),
    )


def test_bidirectional_in_parts(form):
    check(draw(130), causal=False, key_padding_mask=draw_mask(2, 130))


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("feature_map", [pytest.param("identity", marks=slow), "1+elu"])
@pytest.mark.parametrize(
    "poison", [pytest.param(torch.inf, marks=pytest.mark.slow), torch.nan]
)
def test_what_stands_at_pads_does_not_leak(poison, feature_map, causal):
    query, key, value = draw(100)
    mask = draw_mask(2, 100)
    pads = mask[..., None, None]
    weights = (torch.randn(2, 100, 2, 32),)
    keywords = {"causal": causal, "feature_map": feature_map, "backend": "triton"}
    clean, poisoned = (
        run(
            (query, key.masked_fill(pads, filler), value.masked_fill(pads, filler)),
            weights=weights,
            key_padding_mask=mask,
            **keywords,
        )
        for filler in (0.0, poison)
    )
    for name, x in clean.items():
        assert torch.equal(x, poisoned[name]), name
    assert (poisoned["key"][mask] == 0).all() and (poisoned["value"][mask] == 0).all()


@pytest.mark.parametrize("causal", [True, False])
def test_strides_do_not_matter(causal):
    # fairseq's (N, B, H * D), one projection for all three
    packed = torch.randn(70, 2, 3 * 2 * 32)
    views = [x.unflatten(-1, (2, 32)).transpose(0, 1) for x in packed.chunk(3, -1)]
    one_token = torch.randn(1, 1, 1, 32).expand(2, 70, 2, 32)
    every_other = torch.randn(2, 70, 2, 64)[..., ::2]
    for qkv in (views, (one_token, every_other, views[2])):
        check(qkv, causal=causal)
    output = linear_attention(*views, causal=causal, backend="triton")
    # what follows reads it as (N, B, H * D), without a copy
    assert output.transpose(0, 1).is_contiguous()


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("scale", [4.0, 60.0])
def test_float16_beyond_its_range(scale, causal, form):
    """Scores, states and outputs past 65,504: 130 tokens of 32 products of 3,600."""
    qkv = [
        (scale * (0.5 + torch.rand(1, 130, 1, 32))).to(torch.float16) for _ in range(3)
    ]
    output = linear_attention(*qkv, causal=causal, backend="triton")
    assert output.dtype == torch.float32
    assert output.max() > torch.finfo(torch.float16).max
    expected = linear_attention(
        *(x.double() for x in qkv), causal=causal, backend="reference"
    )
    assert relative_error(output, expected) < 1e-3


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("pads", [None, [[True], [False]]])
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


@torch.no_grad()
def test_a_step_refuses_a_state_whose_rows_share_memory():
    state = draw_state()
    shared = state._replace(key_value=state.key_value[:1].expand(2, -1, -1, -1))
    with pytest.raises(ValueError, match="expanded"):
        linear_attention(*draw(1), causal=True, initial_state=shared, backend="triton")


def test_a_backward_pass_sees_that_a_step_changed_its_state():
    state = draw_state()
    qkv = [x.requires_grad_() for x in draw(5)]
    output = linear_attention(*qkv, causal=True, initial_state=state, backend="triton")
    with torch.no_grad():
        linear_attention(*draw(1), causal=True, initial_state=state, backend="triton")
    with refuses(RuntimeError, "modified", "inplace"):
        output.sum().backward()


@pytest.mark.parametrize("causal", [True, False])
def test_tokens_too_far_apart_for_offsets_of_32_bits_are_copied(causal, monkeypatch):
    # 2 rows of 2 heads of 32 in T x B x C
    monkeypatch.setattr(launching, "FARTHEST_TOKEN", 127)
    views = [torch.randn(70, 2, 2, 32).transpose(0, 1) for _ in range(3)]
    check(views, causal=causal)
    leaves = [x.detach().requires_grad_() for x in views]
    output = linear_attention(*leaves, causal=causal, backend="triton")
    for x in (output, *torch.autograd.grad(output.sum(), leaves)):
        assert x.stride(1) <= 127


def test_a_state_with_gradients_is_not_written_to():
    state = draw_state()
    check(draw(1), state, causal=True, return_state=True)
    kept = state.key_value.clone()
    check(draw(1), state, causal=True, return_state=True, weights=False)
    assert torch.equal(state.key_value, kept)


def test_prefill_then_steps_equal_one_call():
    qkv = draw(70)
    keywords = {"causal": True}
    expected = linear_attention(
        *(x.double() for x in qkv), backend="reference", **keywords
    )
    outputs, state = [], None
    with torch.no_grad():
        for part in zip(*(x.split([67, 1, 1, 1], 1) for x in qkv), strict=True):
            output, state = linear_attention(
                *part,
                initial_state=state,
                return_state=True,
                backend="triton",
                **keywords,
            )
            outputs.append(output)
    assert relative_error(torch.cat(outputs, 1), expected) < 1e-5
    assert state.length.tolist() == [70, 70]


def test_a_loss_over_the_state_alone():
    query, key, value = (x.requires_grad_() for x in draw(70))
    _, state = linear_attention(
        query, key, value, causal=True, return_state=True, backend="triton"
    )
    state.key_value.sum().backward()
    assert (query.grad == 0).all()
    torch.testing.assert_close(key.grad, value.sum(-1, True).expand_as(key.grad))


@pytest.mark.parametrize("causal", [True, pytest.param(False, marks=slow)])
@pytest.mark.parametrize(
    "form",
    ["segments", pytest.param("one segment", marks=slow)],
    indirect=True,
)
def test_the_same_inputs_give_the_same_bits(causal, form):
    qkv, weights = draw(130, torch.bfloat16), (torch.randn(2, 130, 2, 32),)
    first, second = (
        run(qkv, weights=weights, causal=causal, backend="triton") for _ in range(2)
    )
    for name, x in first.items():
        assert torch.equal(x, second[name])


@torch.no_grad()
def test_later_tokens_leave_earlier_outputs_untouched(form):
    qkv = draw(130)
    output = linear_attention(*qkv, causal=True, backend="triton")
    for changed_from in (64, 100):
        changed = [x.clone() for x in qkv]
        for x in changed:
            x[:, changed_from:] = torch.randn_like(x[:, changed_from:])
        after = linear_attention(*changed, causal=True, backend="triton")
        assert torch.equal(after[:, :changed_from], output[:, :changed_from])
        assert not torch.equal(after[:, changed_from], output[:, changed_from])


def test_autocast_changes_nothing():
    qkv, weights = draw(70), (torch.randn(2, 70, 2, 32),)
    plain = run(qkv, weights=weights, causal=True, backend="triton")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        under = run(qkv, weights=weights, causal=True, backend="triton")
    for name, x in plain.items():
        assert torch.equal(x, under[name])


def test_segments_are_powers_of_two_near_the_balance():
    lengths = {1025: 512, 4096: 512, 8192: 1024, 65536: 2048, 1 << 20: 8192}
    for length, segment in lengths.items():
        assert options.cut(length, 64, processors=91) == segment
    # few sequences are cut finer, until the programs are enough
    assert options.cut(65536, 1, processors=200) == 1024
    assert options.cut(2048, 1, processors=91) == 256


@pytest.mark.parametrize("heads", [1, 8, 9, 26, 27])
@pytest.mark.parametrize("length", [512, 513])
def test_the_form_follows_sequences(length, heads):
    """On 108 multiprocessors: one segment forward from 27 sequences on, where a quarter
    of them have a program; backward from 9 on, since each has three."""
    x = torch.empty(1, 1, 1, 64).expand(1, length, heads, 64)
    for direction, enough in (("forward", 27), ("backward", 9)):
        plan = options.causal_plan(direction, x, x)
        assert plan == ((length, False) if heads >= enough else (256, True))
    # wide heads have more programs: each has a tile of 64 columns
    wide = torch.empty(1, 1, 1, 128).expand(1, length, heads, 128)
    plan = options.causal_plan("forward", wide, wide)
    assert (plan == (length, False)) == (heads >= 14)
    # without an order there is no state in front of each segment
    assert options.sums_segment(x, x) == (length if heads >= 27 else 256)


def forms(monkeypatch, forward, backward):
    """The forms of the two launches, each a name of RULES."""
    plan = options.causal_plan

    def of_its_direction(direction, query, value):
        rule = RULES[forward if direction == "forward" else backward]
        with monkeypatch.context() as patch:
            patch.setattr(options, "RULE", rule)
            return plan(direction, query, value)

    monkeypatch.setattr(causal, "causal_plan", of_its_direction)


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
    qkv = draw(100)
    check(qkv, causal=True, key_padding_mask=draw_mask(2, 100))


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
