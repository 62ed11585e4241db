"""Sequences in parts: what a state must not notice.

A call of one part is (tokens of each row in this call); rows are laid left-aligned with
pads on the right, as a ragged batch comes.
"""

import torch
from hypothesis import strategies

# one-token calls take a path of their own, so they come often
part_lengths = strategies.lists(
    strategies.one_of(strategies.just(1), strategies.integers(1, 20)),
    min_size=1,
    max_size=6,
)


def split(qkv, lengths):
    """The parts of query, key and value, ``lengths`` tokens each."""
    return zip(*(x.split(list(lengths), dim=1) for x in qkv), strict=True)


def ragged_part(qkv, starts, counts):
    """Tokens starts[b] ... starts[b] + counts[b] of each row, pads on the right.

    Returns query, key, value (B, max(counts), H, D) and the mask, None without pads.
    Pads hold large numbers, which must not leak.
    """
    width = max(max(counts), 1)
    mask = torch.arange(width) >= torch.tensor(counts)[:, None]
    parts = []
    for x in qkv:
        part = x.new_full((x.shape[0], width, *x.shape[2:]), 1e6)
        for b, (start, count) in enumerate(zip(starts, counts, strict=True)):
            part[b, :count] = x[b, start : start + count]
        parts.append(part)
    return parts, mask if mask.any() else None
