"""Few documents divided by paragraph, so that each of them is in every split.

A paragraph is what stands between blank lines. Where that would be much of a split,
and in a document without blank lines, it is a line.

Each document's paragraphs are put into an order by a hash of seed and content and laid
around a circle, by their bytes. The same arc of all circles is valid, the next one
test: of each document a split gets its part, to a paragraph. Each circle is turned by a
hash, so that of many documents of few paragraphs some are in valid. Copies of one
paragraph go where the first is.
"""

import hashlib
from array import array
from collections.abc import Iterator, Sequence
from itertools import chain, groupby, islice

import numpy as np

from fairseq_transnormer.data import SPLITS

from ..folders.text_files import TextFile

HASH_BYTES = 8


class DividedParagraphs:
    """The paragraphs of files, each with its split.

    Args:
        files: in the order in which their text is wanted; read twice here.
        fractions: of the bytes that train, valid and test get.
        seed: another one, other splits.

    Raises:
        ValueError: the different paragraphs do not fill the splits.
    """

    def __init__(
        self, files: Sequence[TextFile], fractions: Sequence[float], seed: int
    ):
        self.files = files
        # so that each split gets half of its part or more
        size = sum(file.path.stat().st_size for file in files)
        most = min(filter(None, fractions)) * size / 2
        self._longest = [most if _has_paragraphs(file) else 0 for file in files]
        hashes, sizes, documents = array("Q"), array("q"), array("q")
        for number, _, paragraph in self._paragraphs():
            content = "".join(paragraph).strip().encode()
            hashes.append(_hash(content, seed))
            sizes.append(len(content))
            documents.append(number)
        self._documents = np.array(documents)
        # how far the circle of each file is turned, from 0 to 1
        turns = [_hash(file.sha256.encode(), seed) / 2**64 for file in files]
        self._homes = self._divide(
            np.array(hashes), np.array(sizes), fractions, np.array(turns)
        )

    def lines(self, split: str) -> Iterator[str]:
        """The lines of a split; a blank line separates paragraphs, but not lines."""
        wanted, last = SPLITS.index(split), None
        for place, (*stretch, paragraph) in enumerate(self._paragraphs()):
            if self._homes[place] != wanted:
                continue
            if last not in (None, stretch):
                yield "\n"
            last = stretch
            yield from paragraph

    def counts(self, split: str) -> dict[str, int]:
        """Paragraphs, and documents that they are of."""
        chosen = self._documents[self._homes == SPLITS.index(split)]
        return {"documents": len(np.unique(chosen)), "paragraphs": len(chosen)}

    def _divide(
        self,
        hashes: np.ndarray,
        sizes: np.ndarray,
        fractions: Sequence[float],
        turns: np.ndarray,
    ) -> np.ndarray:
        """The number of the split of each paragraph, (paragraphs,)."""
        # neither names nor places matter: documents are taken in the order of content
        by_content = np.argsort([file.sha256 for file in self.files], kind="stable")
        rank = np.empty(len(self.files), np.int64)
        rank[by_content] = np.arange(len(self.files))
        ranks = rank[self._documents]
        order = np.argsort(ranks, kind="stable")
        # of copies the first, sorted by hash
        _, at, group = np.unique(hashes[order], return_index=True, return_inverse=True)
        first = order[at]
        places = _places(ranks[first], sizes[first], turns[by_content])
        homes = _arcs(places, sizes[first], fractions)
        found = np.empty(len(order), np.int8)
        found[order] = homes[group]
        return found

    def _paragraphs(self) -> Iterator[tuple[int, int, list[str]]]:
        """(number of the file, of the blank lines before, lines) of each paragraph."""
        for number, file in enumerate(self.files):
            groups = groupby(file.lines(), _has_text)
            for stretch, (has_text, lines) in enumerate(groups):
                if has_text:
                    for paragraph in _whole_or_lines(lines, self._longest[number]):
                        yield number, stretch, paragraph


def _whole_or_lines(lines: Iterator[str], most: float) -> Iterator[list[str]]:
    """The lines in one list, or each alone where their bytes are above ``most``."""
    kept, size = [], 0
    for line in lines:
        kept.append(line)
        size += len(line.encode())
        if size > most:
            yield from ([each] for each in chain(kept, lines))
            return
    yield kept


def _places(ranks: np.ndarray, sizes: np.ndarray, turns: np.ndarray) -> np.ndarray:
    """Where on its document's circle each paragraph lies, from 0 to 1.

    Args:
        ranks: of the paragraphs' documents; the paragraphs are in the order by hash.
        sizes: bytes of each paragraph.
        turns: of the documents, by rank.
    """
    order = np.argsort(ranks, kind="stable")
    ends = np.cumsum(sizes[order])
    totals = np.bincount(ranks, weights=sizes, minlength=len(turns))
    before = np.concatenate(([0], np.cumsum(totals)))[ranks[order]]
    middle = (ends - before - sizes[order] / 2) / totals[ranks[order]]
    places = np.empty(len(order))
    places[order] = (middle + turns[ranks[order]]) % 1
    return places


def _arcs(
    places: np.ndarray, sizes: np.ndarray, fractions: Sequence[float]
) -> np.ndarray:
    """The number of each paragraph's split: valid's arc, then test's, then train's."""
    order = np.argsort(places, kind="stable")
    ends = np.cumsum(sizes[order])
    homes, first, part = np.zeros(len(order), np.int8), 0, 0.0
    for number in range(1, len(SPLITS)):
        if not fractions[number]:
            continue
        half = (ends[first - 1] if first else 0) + fractions[number] * ends[-1] / 2
        part += fractions[number]
        end = int(np.searchsorted(ends, part * ends[-1], side="right"))
        end = max(end, int(np.searchsorted(ends, half)) + 1)
        homes[order[first:end]] = number
        first = end
        if first >= len(order):
            raise ValueError(
                f"{len(order)} different paragraphs are too few, or too unequal in "
                f"length, for {np.count_nonzero(fractions)} splits"
            )
    return homes


def _hash(content: bytes, seed: int) -> int:
    key = seed.to_bytes(HASH_BYTES, "big")
    digest = hashlib.blake2b(content, digest_size=HASH_BYTES, key=key).digest()
    return int.from_bytes(digest, "big")


def _has_paragraphs(file: TextFile) -> bool:
    """Whether blank lines stand between lines of text."""
    stretches = (has_text for has_text, _ in groupby(file.lines(), _has_text))
    return len([*islice(filter(None, stretches), 2)]) == 2


def _has_text(line: str) -> bool:
    return bool(line.strip())
