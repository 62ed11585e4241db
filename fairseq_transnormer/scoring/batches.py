"""Windows of many texts, run together with those of like length."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import TypeVar

import torch
from torch import Tensor

Item = TypeVar("Item")
Found = TypeVar("Found")
# batches that are sorted by length together
SORTED_TOGETHER = 32


def in_batches(
    texts: Sequence[Iterable[Item]],
    length: Callable[[Item], int],
    run: Callable[[list[Item]], list[Found]],
    batch_tokens: int,
) -> Iterator[tuple[int, Item, Found]]:
    """Run the items of all texts, the longest of some hundred first.

    Args:
        texts: items of each; taken as they are needed.
        length: tokens of an item.
        run: what is found of each item of a batch.
        batch_tokens: items times tokens of the longest in a batch, at most; one item
            at least.

    Returns:
        (number of the text, item, what was found), in the order of texts and items.
    """
    items = ((number, item) for number, each in enumerate(texts) for item in each)
    while group := list(_up_to(items, length, SORTED_TOGETHER * batch_tokens)):
        lengths = [length(item) for _, item in group]
        order = sorted(range(len(group)), key=lambda i: -lengths[i])
        found: dict[int, Found] = {}
        while order:
            size = max(1, batch_tokens // max(1, lengths[order[0]]))
            batch, order = order[:size], order[size:]
            found |= zip(batch, run([group[i][1] for i in batch]), strict=True)
        for i, (number, item) in enumerate(group):
            yield number, item, found[i]


def _up_to(
    items: Iterator[tuple[int, Item]], length: Callable[[Item], int], tokens: int
) -> Iterator[tuple[int, Item]]:
    while tokens > 0 and (one := list(islice(items, 1))):
        tokens -= length(one[0][1])
        yield one[0]


def padded(rows: list[list[int]], pad: int) -> Tensor:
    """int64 (B, N) of B rows of up to N tokens, pads on the right."""
    width = max(map(len, rows))
    return torch.tensor([[*row, *[pad] * (width - len(row))] for row in rows])
