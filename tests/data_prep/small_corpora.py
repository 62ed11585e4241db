"""Text in the manner of WikiText, the same in every run."""

import random
from collections.abc import Iterable

from data_prep.long_range_arena.listops_generator import SYMBOLS

WORDS = (
    "the of and to in a was is for on as with by that from at his were which are "
    "naïve café Zürich 日本 – @-@ 1 @,@ 000 <unk> said time first game year Valkyria"
).split()


def article_lines(seed: int, count: int) -> list[str]:
    """Lines in the manner of WikiText: headings, paragraphs, blanks between them."""
    chance = random.Random(seed)
    lines = []
    for number in range(count):
        if number % 4 == 0:
            lines.append(f" = {chance.choice(WORDS)} {number % 50} = ")
        elif number % 4 == 2:
            words = chance.choices(WORDS, k=chance.randint(1, 40))
            lines.append(" " + " ".join(words) + " . ")
        else:
            lines.append(" ")
    return lines


def expression(ids: Iterable[int]) -> str:
    """ListOps, with a blank between the symbols."""
    return " ".join(SYMBOLS[index] for index in ids)
