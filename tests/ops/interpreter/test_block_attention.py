"""Block attention's kernels beside their laws: steps, and what is kept."""

import pytest
import torch

from fairseq_transnormer.ops import BlockAttentionState, block_attention, reorder_state

from ..drawing import gradients
from ..splits import split

pytestmark = pytest.mark.usefixtures("poisoned_memory")

activations = pytest.mark.parametrize("activation", ["softmax", "relu"])


def triton(*qkv, **options):
    return block_attention(*qkv, **options, backend="triton")


def draw(length, *, batch=1, width=32, value_width=32, dtype=torch.float32):
    widths = (width, width, value_width)
    return [torch.randn(batch, length, 2, w).to(dtype) for w in widths]


def test_gradients_of_float16_sums_beyond_its_range():
    """The gradient of such a sum comes in float32 and may be large or tiny."""
    qkv = draw(32, dtype=torch.float16)
    options = {"block_size": 32, "causal": True, "activation": "relu"}
    weight = 1e6 * torch.randn(1, 32, 2, 32)
    small = [x * 2.0**-8 for x in qkv]
    for gradient in gradients(lambda *t: triton(*t, **options)[0], small, weight):
        assert gradient.isfinite().all() and gradient.abs().max() > 0


@activations
@torch.no_grad()
def test_a_step_writes_in_place_and_sees_no_leftovers(activation):
    first, last = split(draw(29, batch=2), (28, 1))
    options = {"block_size": 16, "activation": activation, "causal": True}
    _, state = triton(*first, **options, return_state=True)
    clean, _ = triton(
        *last, **options, initial_state=reorder_state(state, torch.arange(2))
    )
    # as a transposed view, which must be written through
    dirty = BlockAttentionState(
        *(
            x.index_fill(1, torch.arange(12, 16), torch.nan)
            .transpose(0, 2)
            .contiguous()
            .transpose(0, 2)
            for x in state[:2]
        ),
        state.length,
    )
    output, after = triton(*last, **options, initial_state=dirty, return_state=True)
    assert torch.equal(output, clean)
    assert after.key is dirty.key and after.value is dirty.value
    assert state.length.tolist() == [28, 28] and after.length.tolist() == [29, 29]
    for cached, before, token in zip(after[:2], state[:2], last[1:], strict=True):
        assert torch.equal(cached[:, :12], before[:, :12])
        assert torch.equal(cached[:, 12], token[:, 0])
        assert cached[:, 13:].isnan().all()


def draw_step():
    """A token of two rows, and a state behind 5 and 7 tokens."""
    cache = (torch.randn(2, 16, 2, 32) for _ in "kv")
    return draw(1, batch=2), BlockAttentionState(*cache, torch.tensor([5, 7]))


def rows_outside(state):
    return state._replace(**{n: x.mT.contiguous().mT for n, x in named_cache(state)})


def every_other_length(state):
    return state._replace(length=torch.tensor([5, 9, 7, 9])[::2])


def named_cache(state):
    return (("key", state.key), ("value", state.value))


@torch.no_grad()
@pytest.mark.parametrize("view", [rows_outside, every_other_length])
def test_a_step_takes_states_with_any_strides(view):
    token, state = draw_step()
    other = view(BlockAttentionState(*(x.clone() for x in state)))
    options = {"block_size": 16, "causal": True, "return_state": True}
    expected, after = triton(*token, **options, initial_state=state)
    output, other_after = triton(*token, **options, initial_state=other)
    assert torch.equal(output, expected)
    for x, y in zip(other_after, after, strict=True):
        assert torch.equal(x, y)
    assert other_after.key is other.key
