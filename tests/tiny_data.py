"""A binarised corpus of random words, made in a moment."""

import random
from pathlib import Path

from fairseq.data import Dictionary

from .binary_data import write_binary_data


def write_tiny_data(folder: Path, lines: int = 300, words: int = 60) -> Path:
    """Write train, valid and their dictionary of ``words`` words into ``folder``."""
    chance = random.Random(0)
    dictionary = Dictionary()
    for i in range(words):
        dictionary.add_symbol(f"word{i}", n=words - i)
    splits = {
        split: [
            " ".join(f"word{chance.randrange(words)}" for _ in range(20))
            for _ in range(rows)
        ]
        for split, rows in (("train", lines), ("valid", lines // 10))
    }
    return write_binary_data(folder, dictionary, splits)
