"""Labelled sequences as arrays that can be mapped into memory.

``SPLIT.tokens.K.bin`` has all tokens of the K-th sequences one after the other (uint8).
``SPLIT.offsets.K.npy`` has where each one starts and the last ends (int64, one more
than there are examples). ``SPLIT.labels.npy`` is uint8. K is 0, and 1 too for pairs of
documents. manifest.json has settings, counts and SHA-256 of every file.
``fairseq_transnormer.data.labelled_sequences`` reads the folder.
"""

import io
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from fairseq_transnormer.data import MANIFEST, SPLITS

from .options import Place
from .parallel import shown
from .staging import Record, Work, publish

# the sequences of an example, uint8 each, and its label
Example = tuple[tuple[np.ndarray, ...], int]


def prepare_sequences(
    place: Place,
    settings: Record,
    examples: Callable[[str], Iterator[Example]],
    vocabulary: int,
    classes: int,
    sequences: int = 1,
) -> None:
    """Make the folder.

    Args:
        settings: identify the data; "counts" of examples by split are for the bar.
        examples: gives a split's.
        vocabulary: number of token ids.
        sequences: of an example.
    """
    # torch: a second that a wrong option should not cost
    from fairseq_transnormer.data.labelled_sequences import FORMAT

    def make(work: Work) -> Record:
        # the small splits first: a fault shows before the long one
        splits = {}
        for split in reversed(SPLITS):
            total = settings.get("counts", {}).get(split)
            rows = shown(examples(split), split, total)
            splits[split] = _write_split(work, split, rows, classes, sequences)
        return {
            "format": FORMAT,
            "sequences": sequences,
            "vocabulary": vocabulary,
            "classes": classes,
            "splits": {split: splits[split] for split in SPLITS},
        }

    publish(place, settings, MANIFEST, make)


def _save(path: Path, array: np.ndarray) -> None:
    """``np.save``, which into a file loses the last bytes on a full disk in silence."""
    content = io.BytesIO()
    np.save(content, array)
    path.write_bytes(content.getbuffer())


def _write_split(
    work: Work, split: str, examples: Iterable[Example], classes: int, count: int
) -> Record:
    lengths: list[list[int]] = [[] for _ in range(count)]
    labels: list[int] = []
    with ExitStack() as stack:
        files = [
            stack.enter_context(open(work.file(f"{split}.tokens.{k}.bin"), "wb"))
            for k in range(count)
        ]
        for sequences, label in examples:
            labels.append(label)
            if label not in range(classes):
                fault = f"label {label!r}; allowed: 0 to {classes - 1}"
                raise ValueError(f"{split}, example {len(labels)}: {fault}")
            if not all(map(len, sequences)):
                raise ValueError(f"{split}, example {len(labels)}: an empty text")
            for file, sequence, each in zip(files, sequences, lengths, strict=True):
                file.write(sequence.astype(np.uint8, copy=False).tobytes())
                each.append(len(sequence))
    if not labels:
        raise ValueError(f"{split}: no example at all")
    for k, each in enumerate(lengths):
        _save(work.file(f"{split}.offsets.{k}.npy"), np.cumsum([0, *each]))
    _save(work.file(f"{split}.labels.npy"), np.array(labels, np.uint8))
    every = np.array(lengths)
    return {
        "examples": len(labels),
        "labels": np.bincount(labels, minlength=classes).tolist(),
        "shortest": int(every.min()),
        "longest": int(every.max()),
        "tokens": int(every.sum()),
    }
