"""Counting the words of a whole split."""

from collections import Counter
from collections.abc import Iterable

from data_prep.encoders import count_words
from data_prep.parallel import map_batches


def count_all_words(
    lines: Iterable[str], workers: int, total: int | None = None
) -> tuple[int, Counter[str]]:
    """The number of lines and the count of every word in them."""
    from tqdm import tqdm

    line_count = 0
    words: Counter[str] = Counter()
    with tqdm(total=total, unit=" lines", desc="count words", disable=None) as bar:
        for batch_lines, batch_words in map_batches(count_words, lines, workers):
            line_count += batch_lines
            words.update(batch_words)
            bar.update(batch_lines)
    return line_count, words
