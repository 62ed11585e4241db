"""The user's text files: finding them, and splitting them by document."""

import hashlib
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from data_prep.folders.errors import InputError
from data_prep.folders.text_files import TextFile, scan
from fairseq_transnormer.data import SPLITS


def find_files(option: str, paths: Sequence[Path]) -> list[TextFile]:
    """The files given and, in name order, the *.txt files in the folders given."""
    files = []
    for path in paths:
        if path.is_dir():
            found = sorted(file for file in path.rglob("*.txt") if file.is_file())
            if not found:
                raise InputError(f"{option} {path}: no *.txt file in this folder")
            files += [scan(file, str(file.relative_to(path))) for file in found]
        elif path.is_file():
            files.append(scan(path))
        else:
            raise InputError(f"{option} {path}: no such file or folder")
    return files


def split_documents(
    files: Sequence[TextFile], fractions: Sequence[float], seed: int
) -> dict[str, list[TextFile]]:
    """Divides the files among train, valid and test.

    The order is by a hash of seed and content, so that neither names nor places of
    files matter and copies of one document never come to stand in two splits.
    Every split whose fraction is not zero gets at least one document.
    """
    copies = [
        list(group) for _, group in groupby(sorted(files, key=_content), key=_content)
    ]
    documents = sorted(copies, key=lambda group: _rank(seed, group[0]))
    wanted = [split for split, part in zip(SPLITS, fractions, strict=True) if part > 0]
    if len(documents) < len(wanted):
        raise InputError(
            f"--input: {len(documents)} different documents cannot fill the "
            f"{len(wanted)} splits {', '.join(wanted)}; give more files, or the "
            "splits themselves with --train, --valid and --test"
        )
    sizes = {
        split: max(1, round(part * len(documents))) if part else 0
        for split, part in zip(SPLITS[1:], fractions[1:], strict=True)
    }
    first = len(documents) - sum(sizes.values())
    if first < 1:
        raise InputError(
            f"--input: {len(documents)} different documents leave none for train "
            f"after {sizes}; give more files or other --fractions"
        )
    divided = {"train": documents[:first]}
    for split, size in sizes.items():
        divided[split] = documents[first : first + size]
        first += size
    home = {
        group[0].sha256: split for split, groups in divided.items() for group in groups
    }
    return {
        split: [file for file in files if home[file.sha256] == split]
        for split, groups in divided.items()
        if groups
    }


def shared_documents(splits: dict[str, list[TextFile]]) -> list[str]:
    """A sentence for each file that stands, by content, in two splits."""
    home: dict[str, tuple[str, Path]] = {}
    sentences = []
    for split, files in splits.items():
        for file in files:
            other, path = home.setdefault(file.sha256, (split, file.path))
            if other != split:
                sentences.append(f"{file.path} ({split}) is {path} ({other})")
    return sentences


def _content(file: TextFile) -> str:
    return file.sha256


def _rank(seed: int, file: TextFile) -> str:
    return hashlib.sha256(f"{seed}:{file.sha256}".encode()).hexdigest()
