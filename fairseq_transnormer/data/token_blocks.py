"""A split of text in blocks, and its batches: those of fairseq's language_modeling.

That is with ``--sample-break-mode none``, where lines do not count, and a
``--batch-size``. numpy's generator is seeded as fairseq seeds it.

Letters: B blocks of a batch, N tokens of its longest.
"""

from pathlib import Path

import numpy as np

from .binary_data import read_binary_data
from .subword_files import BOS, EOS, PAD


class TokenBlocks:
    """Blocks of ``length`` tokens, the last of which may be shorter.

    Args:
        prefix: of the split's files, without .idx and .bin.
        length: tokens of a block.
        vocabulary: entries of the dictionary, which the tokens are numbers of.

    Raises:
        ValueError: the files are damaged, have no tokens, or one that no text has.
    """

    def __init__(self, prefix: str | Path, length: int, vocabulary: int) -> None:
        data = read_binary_data(prefix)
        self.ids, self.length = data.ids(), length
        if not len(self.ids):
            raise ValueError(f"{prefix}.bin has no tokens")
        if fault := data.fault(vocabulary, (BOS, PAD, EOS)):
            raise ValueError(fault)

    def __len__(self) -> int:
        return -(-len(self.ids) // self.length)

    def batches(
        self, size: int, seed: int, epoch: int | None = None
    ) -> list[np.ndarray]:
        """The numbers of the blocks of each batch, (B,).

        They are made once, a short block in the first; epochs differ in their order.

        Args:
            size: blocks of a batch; the last one may have fewer.
            seed: fairseq's ``--seed``.
            epoch: from 1; None leaves them in the order in which they are made.
        """
        order = np.random.RandomState(seed + 1).permutation(len(self))
        if len(self.ids) % self.length:
            order[-1] = -1
        order = np.argsort(order)
        batches = [order[i : i + size] for i in range(0, len(order), size)]
        if epoch is not None:
            np.random.RandomState(seed + epoch).shuffle(batches)
        return batches

    def batch(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
        """Tokens, the next ones, both int64 (B, N) with pads on the right; how many.

        What comes before a block's first token is the last one of the block before it,
        and before the first block an end of line.
        """
        starts = [int(number) * self.length for number in numbers]
        rows = [self.ids[start : start + self.length] for start in starts]
        shape = (2, len(rows), max(map(len, rows)))
        tokens, targets = np.full(shape, PAD, dtype=np.int64)
        for i, (start, row) in enumerate(zip(starts, rows, strict=True)):
            targets[i, : len(row)] = row
            tokens[i, 0] = self.ids[start - 1] if start else EOS
            tokens[i, 1 : len(row)] = row[:-1]
        return tokens, targets, sum(map(len, rows))
