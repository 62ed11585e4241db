"""``data_prep verify``: a check of prepared data before a training trips over them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import tyro

from fairseq_transnormer.cli import run_command
from fairseq_transnormer.data import MANIFEST, REPORT, SPLITS
from fairseq_transnormer.data.binary_data import in_parts, read_binary_data
from fairseq_transnormer.data.subword_files import control_ids

from .binary_folder import load_dictionary
from .encoders import EOS_ID
from .staging import check_files, read_listing

# of the folders that sentence_prediction reads
FIRST_COLUMN = "input0"
OTHER_COLUMNS = ("input1", "label")

Counts = dict[str, dict[str, int]]


def verify(folder: Annotated[Path, tyro.conf.arg(metavar="DIR")], /) -> int:
    """Check a folder of prepared data before a training run trips over it.

    It compares the SHA-256 of each file with report.json or manifest.json. In labelled
    sequences (data_prep lra) it reads labels, offsets and tokens, too. In fairseq's
    binary data it reads dict.txt, each split's .idx and the size of its .bin. Every
    token id must be in the dictionary. No control token may stand within a line, and no
    split may be empty. Columns of labelled texts must have equal numbers of lines. The
    first fault ends the check with one line and exit code 1.

    Args:
        folder: what was prepared.
    """

    def show() -> None:
        for split, counts in verify_folder(folder).items():
            shown = ", ".join(f"{number:,} {unit}" for unit, number in counts.items())
            print(f"{split}: {shown}")
        print(f"{folder}: good")

    status = run_command("python -m data_prep verify", show)
    return 1 if status == 2 else status


def verify_folder(folder: Path) -> Counts:
    """Counts by split; raises ValueError naming the file and its first fault."""
    if (folder / MANIFEST).is_file():
        check_files(folder, MANIFEST)
        return _sequences(folder)
    if (folder / FIRST_COLUMN).is_dir():
        counts = _columns(folder)
    else:
        counts = _splits(folder)
    if (folder / REPORT).exists():
        check_files(folder, REPORT)
    return counts


def _sequences(folder: Path) -> Counts:
    if "format" not in read_listing(folder / MANIFEST):
        return {}
    # torch: a second that only these data should cost
    from fairseq_transnormer.data.labelled_sequences import LabelledSequences

    return {
        split: {"examples": len(LabelledSequences(folder, split))} for split in SPLITS
    }


def _columns(folder: Path) -> Counts:
    """Counts of the first column, which the others must agree with."""
    counts = _splits(folder / FIRST_COLUMN)
    for column in OTHER_COLUMNS:
        # numbers to predict are no binary data
        if not (folder / column / "dict.txt").exists():
            continue
        for split, found in _splits(folder / column).items():
            expected = counts.get(split, {"lines": 0})["lines"]
            if found["lines"] != expected:
                raise ValueError(
                    f"{folder / column / split}.idx: {found['lines']} lines, expected "
                    f"{expected}, as {FIRST_COLUMN} has"
                )
    return counts


def _splits(folder: Path) -> Counts:
    dictionary = load_dictionary(folder / "dict.txt")
    names = {path.stem for path in folder.iterdir() if path.suffix in (".bin", ".idx")}
    if not names:
        raise ValueError(f"{folder}: holds no split (train.bin with train.idx, ...)")
    return {split: _split(folder, split, dictionary) for split in sorted(names)}


def _split(folder: Path, split: str, dictionary: Any) -> dict[str, int]:
    data = read_binary_data(folder / split)
    only_ends = True
    for start, part in in_parts(data.ids()):
        fault = data.fault(start, part, len(dictionary), control_ids(dictionary))
        if fault is not None:
            raise ValueError(f"{fault}; dict.txt has {len(dictionary)} entries")
        only_ends &= bool((part == EOS_ID).all())
    if only_ends:
        raise ValueError(
            f"{folder / split}.bin: empty split: nothing but ends of sentences"
        )
    return {"lines": len(data.sizes), "tokens": data.tokens}
