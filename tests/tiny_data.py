"""A binarised corpus of random words, made in a moment."""

import random
from pathlib import Path

from fairseq.data import Dictionary, indexed_dataset


def write_tiny_data(folder: Path, lines: int = 300, words: int = 60) -> Path:
    """Write train, valid and their dictionary of ``words`` words into ``folder``."""
    chance = random.Random(0)
    dictionary = Dictionary()
    for i in range(words):
        dictionary.add_symbol(f"word{i}", n=words - i)
    folder.mkdir(parents=True, exist_ok=True)
    dictionary.save(str(folder / "dict.txt"))
    for split, rows in (("train", lines), ("valid", lines // 10)):
        builder = indexed_dataset.make_builder(
            str(folder / f"{split}.bin"), impl="mmap", vocab_size=len(dictionary)
        )
        for _ in range(rows):
            text = " ".join(f"word{chance.randrange(words)}" for _ in range(20))
            builder.add_item(dictionary.encode_line(text, add_if_not_exist=False))
        builder.finalize(str(folder / f"{split}.idx"))
    return folder
