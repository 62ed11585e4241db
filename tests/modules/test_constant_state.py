"""Generation with states of constant size equals the full forward pass.

The layers alone: token_mixers/test_states.py.
"""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fairseq_transnormer.ops import state_bytes
from tests.messages import refuses

from .building import BLOCK, LAYOUTS, PAD, draw_tokens, language_model, padded, variants


@variants
@pytest.mark.parametrize("prompt", [1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK])
@torch.no_grad()
def test_prefill_and_steps_equal_one_pass(prompt, variant):
    model = language_model(variant)
    tokens = draw_tokens(3, prompt + 2 * BLOCK + 1)
    logits, states = model(tokens[:, :prompt], return_states=True)
    outputs, sizes = [logits], set()
    for token in tokens[:, prompt:].split(1, dim=1):
        logits, states = model(token, states, return_states=True)
        outputs.append(logits)
        sizes.add(sum(map(state_bytes, states)))
    torch.testing.assert_close(torch.cat(outputs, 1), model(tokens))
    assert len(sizes) == 1


@variants
@settings(max_examples=8)
@given(
    counts=st.lists(st.tuples(*[st.integers(0, 11)] * 3), min_size=1, max_size=5),
    layout=st.sampled_from(LAYOUTS),
)
@torch.no_grad()
def test_ragged_parts_of_any_lengths(variant, counts, layout):
    model = language_model(variant)
    totals = torch.tensor(counts).sum(0)
    rows = [draw_tokens(int(total)) for total in totals]
    collected, starts, states = [[], [], []], [0, 0, 0], None
    for part in counts:
        parts = [row[s : s + c] for row, s, c in zip(rows, starts, part, strict=True)]
        # two columns at least: a single one is taken for a decoding step
        tokens, columns = padded(parts, layout, max(*part, 2))
        logits, states = model(tokens, states, return_states=True)
        for b, where in enumerate(columns):
            collected[b].append(logits[b, where])
        starts = [s + c for s, c in zip(starts, part, strict=True)]
    for b, row in enumerate(rows):
        if len(row):
            torch.testing.assert_close(torch.cat(collected[b]), model(row[None])[0])


@variants
@torch.no_grad()
def test_a_single_column_counts_as_a_token_whatever_stands_there(variant):
    """The documented exception: a decoding step does not look at the values."""
    model = language_model(variant)
    _, states = model(draw_tokens(2, 5), return_states=True)
    _, states = model(torch.tensor([[PAD], [7]]), states, return_states=True)
    assert states[0].length.tolist() == [6, 6]
    _, states = model(torch.tensor([[PAD], [7]]), return_states=True)
    assert states[0].length.tolist() == [0, 1]


@variants
@torch.no_grad()
def test_states_at_length_100_000_and_beyond_are_just_as_large(variant):
    """Positions have no end; state bytes at a length that no table would hold."""
    model = language_model(variant)
    _, states = model(draw_tokens(1, 3), return_states=True)
    size = sum(map(state_bytes, states))
    far = tuple(s._replace(length=s.length + 200_000) for s in states)
    logits, far = model(draw_tokens(1, 1), far, return_states=True)
    assert logits.isfinite().all()
    assert sum(map(state_bytes, far)) == size


@torch.no_grad()
def test_states_of_another_model_or_batch_are_refused():
    """... and not cut, or read for every row."""
    model = language_model("t2")
    token = draw_tokens(2, 1)
    _, states = model(draw_tokens(2, 5), return_states=True)
    with refuses(ValueError, "layers", len(states) + 1, len(states)):
        model(token, (*states, states[0]))
    for rows in (1, 3):
        with refuses(ValueError, "2 rows", f"allowed: {rows}"):
            model(draw_tokens(rows, 1), states)
    with refuses(ValueError, "state of LinearAttentionState", "BlockAttentionState"):
        model(token, states[::-1])
    assert model(token, states).shape[:2] == (2, 1)
