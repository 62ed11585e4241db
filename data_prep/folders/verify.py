"""Checks a folder of prepared data before a training run trips over it.

Of labelled sequences (a manifest.json of ``data_prep lra``) every file's size and
SHA-256, labels, offsets and tokens are checked. Of fairseq's binary data:
dict.txt can be read; each split has an .idx of the right format and a
.bin of exactly the size that the .idx says; every token id lies in the dictionary, and
none begins, ends, pads or masks a text within a line; no split is empty; and, if the
folder has a report.json, every file has the recorded SHA-256. Of a folder of labelled
texts (input0, input1, label) each column is checked, and that they have equally many
lines. Of texts, and of tables of them, with a manifest.json: every file's size and
SHA-256. The first fault ends the check: one line on stderr and exit code 1.
"""

import argparse
from pathlib import Path
from typing import Any

from data_prep.folders.arguments import command_parser
from data_prep.folders.encoders import EOS_ID
from data_prep.folders.errors import InputError, run_command
from data_prep.folders.fairseq_format import load_dictionary
from data_prep.folders.report import check_files, read_report
from data_prep.folders.sequence_folder import verify_sequences
from fairseq_transnormer.data import MANIFEST, REPORT
from fairseq_transnormer.data.binary_data import in_parts, read_binary_data
from fairseq_transnormer.data.subword_files import control_ids

# of the folders that sentence_prediction reads
FIRST_COLUMN = "input0"
OTHER_COLUMNS = ("input1", "label")


def verify_folder(folder: Path) -> dict[str, dict[str, int]]:
    """Counts by split; raises InputError naming the file and its first fault."""
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder")
    if (folder / FIRST_COLUMN).is_dir():
        counts = _verify_columns(folder)
    else:
        counts = _verify_splits(folder)
    if (folder / REPORT).exists():
        check_files(folder, read_report(folder)["files"], REPORT)
    return counts


def _verify_columns(folder: Path) -> dict[str, dict[str, int]]:
    """Counts of the first column, which the others must agree with."""
    counts = _verify_splits(folder / FIRST_COLUMN)
    for column in OTHER_COLUMNS:
        # numbers to predict are no binary data
        if not (folder / column / "dict.txt").exists():
            continue
        for split, found in _verify_splits(folder / column).items():
            expected = counts.get(split, {"lines": 0})["lines"]
            if found["lines"] != expected:
                raise InputError(
                    f"{folder / column / split}.idx: {found['lines']} lines, expected "
                    f"{expected}, as {FIRST_COLUMN} has"
                )
    return counts


def _verify_splits(folder: Path) -> dict[str, dict[str, int]]:
    dictionary = load_dictionary(folder / "dict.txt")
    stems = {path.stem for path in folder.iterdir() if path.suffix in (".bin", ".idx")}
    if not stems:
        raise InputError(f"{folder}: holds no split (train.bin with train.idx, ...)")
    for split in sorted(stems):
        for suffix in (".bin", ".idx"):
            if not (folder / f"{split}{suffix}").is_file():
                raise InputError(f"{folder / split}{suffix}: no such file")
    return {split: _verify_split(folder, split, dictionary) for split in sorted(stems)}


def _verify_split(folder: Path, split: str, dictionary: Any) -> dict[str, int]:
    from tqdm import tqdm

    try:
        data = read_binary_data(folder / split)
    except ValueError as error:
        raise InputError(str(error)) from error
    path = folder / f"{split}.bin"
    if not data.tokens:
        raise InputError(f"{path}: empty split")
    only_ends = True
    bar = tqdm(
        total=data.tokens, unit=" ids", unit_scale=True, desc=split, disable=None
    )
    with bar:
        for start, part in in_parts(data.ids()):
            fault = data.fault(start, part, len(dictionary), control_ids(dictionary))
            if fault is not None:
                raise InputError(f"{fault}; dict.txt has {len(dictionary)} entries")
            only_ends &= bool((part == EOS_ID).all())
            bar.update(len(part))
    if only_ends:
        raise InputError(f"{path}: empty split: nothing but ends of sentences")
    return {"lines": len(data.sizes), "tokens": data.tokens}


def main(arguments: list[str] | None = None) -> int:
    """The command line; returns the exit code."""
    parser = command_parser("verify", __doc__)
    parser.add_argument("folder", type=Path, metavar="DIR", help="what was prepared")
    options = parser.parse_args(arguments)
    return run_command(parser.prog, lambda: _verify(options), failure=1)


def _verify(options: argparse.Namespace) -> None:
    folder = options.folder
    if not (folder / MANIFEST).is_file():
        for split, counts in verify_folder(folder).items():
            print(f"{split}: {counts['lines']:,} lines, {counts['tokens']:,} tokens")
    elif "format" in (manifest := read_report(folder, MANIFEST)):
        for split, counts in verify_sequences(folder)["splits"].items():
            print(f"{split}: {counts['examples']:,} examples")
    else:
        check_files(folder, manifest["files"], MANIFEST)
        for name, record in manifest["files"].items():
            print(f"{name}: {record['bytes']:,} bytes")
    print(f"{folder}: good")
