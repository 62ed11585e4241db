"""The user's text files: finding them, and dividing them by document."""

import hashlib
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from data_prep.folders.text_files import TextFile, scan
from fairseq_transnormer.data import SPLITS

SUFFIXES = (".txt",)
SHOWN_SUFFIXES = 5
# where a folder is -> its name as given, and the names of its files
Folders = dict[Path, tuple[str, list[str]]]


def find_files(
    option: str,
    paths: Sequence[Path],
    suffixes: Sequence[str] = SUFFIXES,
    dest: Path | None = None,
) -> list[TextFile]:
    """The files given and, in name order, those in the folders given.

    Args:
        option: of the command line that gave the paths.
        paths: files, whatever their names, and folders.
        suffixes: of the files that are read in folders and below, in any case of
            letters; hidden files and folders are left out, links are followed.
        dest: where something is to be made of them, in none of the folders.
    """
    files = []
    for path in paths:
        if path.is_dir():
            folders = _folders(path)
            if dest is not None and _would_be_read(dest.resolve(), folders):
                raise ValueError(
                    f"--dest {dest} lies in {option} {path}: what is made there would "
                    "be read as text by the next run; allowed: a folder elsewhere"
                )
            found = [file for file in _visible(folders) if _has(file, suffixes)]
            if not found:
                endings = ", ".join(f"*{x}" if x else "suffixless" for x in suffixes)
                there = described(left_out([path], suffixes)) or "it is empty"
                raise ValueError(
                    f"{option} {path}: no {endings} file in this folder ({there})"
                )
            files += [scan(file, str(file.relative_to(path))) for file in found]
        elif path.is_file():
            files.append(scan(path))
        else:
            raise ValueError(f"{option} {path}: no such file or folder")
    return files


def left_out(paths: Sequence[Path], suffixes: Sequence[str]) -> Counter[str]:
    """How many files of the folders ``find_files`` does not read, by their suffix."""
    return Counter(
        file.suffix.lower()
        for path in paths
        if path.is_dir()
        for file in _visible(_folders(path))
        if not _has(file, suffixes)
    )


def described(suffixes: Counter[str]) -> str:
    """12 *.png, 3 without suffix, ..."""
    shown = [
        # names of files may be no UTF-8
        f"{count} *{suffix.encode(errors='replace').decode()}"
        if suffix
        else f"{count} without suffix"
        for suffix, count in suffixes.most_common(SHOWN_SUFFIXES)
    ]
    return ", ".join(shown + (["..."] if len(suffixes) > SHOWN_SUFFIXES else []))


def _visible(folders: Folders) -> list[Path]:
    """All files, and links that lead nowhere, in the order of their names, without
    hidden ones."""
    return sorted(
        path
        for place, names in folders.values()
        for name in names
        if not name.startswith(".")
        and ((path := Path(place, name)).is_file() or not path.exists())
    )


def _folders(top: Path) -> Folders:
    """The folders that are read: where they are, under which name, and their files.

    Links are followed, into each folder once; of its names that without a link counts.

    Raises:
        OSError: a folder cannot be read.
    """

    def refuse(error: OSError) -> None:
        raise error

    found: Folders = {}
    starts = [top]
    while starts:
        for place, folders, names in os.walk(starts.pop(0), onerror=refuse):
            if Path(place).resolve() in found:
                folders.clear()
                continue
            found[Path(place).resolve()] = (place, names)
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            inside = [Path(place, name) for name in folders]
            starts += [path for path in inside if path.is_symlink()]
    return found


def _would_be_read(place: Path, folders: Folders) -> bool:
    """Whether a file in ``place``, which may be missing, would be one of theirs."""
    above = next((path for path in (place, *place.parents) if path in folders), None)
    return above is not None and not any(
        part.startswith(".") for part in place.relative_to(above).parts
    )


def _has(file: Path, suffixes: Sequence[str]) -> bool:
    return file.suffix.lower() in suffixes


def without_copies(files: Sequence[TextFile]) -> list[TextFile]:
    """The files in their order, of those of one text the first.

    Copies made on other systems have other ends of lines, or a byte order mark.
    """
    first: dict[str, TextFile] = {}
    for file in files:
        first.setdefault(file.text_sha256, file)
    return list(first.values())


def sizes_of_splits(count: int, fractions: Sequence[float]) -> dict[str, int]:
    """How many of ``count`` documents each split gets, one at least if it is wanted.

    train gets what the others leave, which may be none, or less.
    """
    sizes = {
        split: max(1, round(part * count)) if part else 0
        for split, part in zip(SPLITS[1:], fractions[1:], strict=True)
    }
    return {"train": count - sum(sizes.values())} | sizes


def split_documents(
    files: Sequence[TextFile], fractions: Sequence[float], seed: int
) -> dict[str, list[TextFile]]:
    """Divides files, of which none is a copy, among train, valid and test.

    The order is by a hash of seed and content, so that names and places of files do
    not matter; of copies that differ in ends of lines, the first by name counts. Every
    split whose fraction is not zero gets at least one document.
    """
    documents = sorted(files, key=lambda file: _rank(seed, file))
    sizes = sizes_of_splits(len(documents), fractions)
    if sizes["train"] < 1:
        wanted = [split for split, size in sizes.items() if size or split == "train"]
        raise ValueError(
            f"{len(documents)} different documents cannot fill the "
            f"{len(wanted)} splits {', '.join(wanted)}; allowed: {len(wanted)} or "
            "more, or --split-by paragraph"
        )
    divided, first = {}, 0
    for split, size in sizes.items():
        chosen = {file.sha256 for file in documents[first : first + size]}
        first += size
        if chosen:
            divided[split] = [file for file in files if file.sha256 in chosen]
    return divided


def shared_documents(splits: dict[str, list[TextFile]]) -> list[str]:
    """A sentence for each file whose text stands in two splits."""
    home: dict[str, tuple[str, Path]] = {}
    sentences = []
    for split, files in splits.items():
        for file in files:
            other, path = home.setdefault(file.text_sha256, (split, file.path))
            if other != split:
                sentences.append(f"{file.path} ({split}) is {path} ({other})")
    return sentences


def _rank(seed: int, file: TextFile) -> str:
    return hashlib.sha256(f"{seed}:{file.sha256}".encode()).hexdigest()
