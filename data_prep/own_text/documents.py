"""The user's text files: finding them, and which of them are copies."""

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from ..folders.text_files import TextFile, scan

SUFFIXES = (".txt",)
NO_SUFFIX = "none"
SHOWN_SUFFIXES = 5
SHOWN_FILES = 3


def find_files(
    option: str,
    paths: Iterable[Path],
    suffixes: Sequence[str] = SUFFIXES,
    dest: Path | None = None,
) -> list[TextFile]:
    """The files given and, in name order, those in the folders given.

    Args:
        option: of the command line that gave the paths.
        paths: files, whatever their names, and folders.
        suffixes: of the files that are read in folders and below, in any case of
            letters, "none" of those without; hidden files and folders are left out,
            links are followed.
        dest: where something is to be made of them, in none of the folders.
    """
    files = []
    for path in paths:
        if not path.is_dir():
            files.append(scan(path))
            continue
        folders = _folders(path)
        if dest is not None and _would_be_read(dest.resolve(), folders):
            raise ValueError(
                f"--dest {dest} lies in {option} {path}: what is made there would "
                "be read as text by the next run; allowed: a folder elsewhere"
            )
        every = sorted(file for found in folders.values() for file in found)
        read = [file for file in every if _has(file, suffixes)]
        if not read:
            endings = ", ".join(f"*{x}" for x in suffixes)
            there = described(every) or "it is empty"
            raise ValueError(
                f"{option} {path}: no {endings} file in this folder ({there})"
            )
        files += [scan(file, str(file.relative_to(path))) for file in read]
    return files


def left_out(paths: Iterable[Path], suffixes: Sequence[str]) -> list[Path]:
    """The files of the folders that ``find_files`` does not read."""
    tops = [path for path in paths if path.is_dir()]
    folders = [found for path in tops for found in _folders(path).values()]
    return [file for found in folders for file in found if not _has(file, suffixes)]


def described(files: Iterable[Path]) -> str:
    """12 *.png, 3 without suffix, ..."""
    suffixes = Counter(file.suffix.lower() for file in files)
    shown = [
        # names of files may be no UTF-8
        f"{count} *{suffix.encode(errors='replace').decode()}"
        if suffix
        else f"{count} without suffix"
        for suffix, count in suffixes.most_common(SHOWN_SUFFIXES)
    ]
    return ", ".join(shown + (["..."] if len(suffixes) > SHOWN_SUFFIXES else []))


def _folders(top: Path) -> dict[Path, list[Path]]:
    """The visible files of each folder that is read, by where it is.

    Links are followed, into each folder once; links that lead nowhere are files.

    Raises:
        OSError: a folder cannot be read.
    """

    def refuse(error: OSError) -> None:
        raise error

    found: dict[Path, list[Path]] = {}
    for place, folders, names in os.walk(top, onerror=refuse, followlinks=True):
        if Path(place).resolve() in found:
            folders.clear()
            continue
        visible = [name for name in folders if not name.startswith(".")]
        # the name without a link counts
        folders[:] = sorted(visible, key=lambda x: (Path(place, x).is_symlink(), x))  # noqa: B023
        files = [Path(place, name) for name in names if not name.startswith(".")]
        found[Path(place).resolve()] = [
            file for file in files if file.is_file() or not file.exists()
        ]
    return found


def _would_be_read(place: Path, folders: Iterable[Path]) -> bool:
    """Whether a file in ``place``, which may be missing, would be one of theirs."""
    above = next((path for path in (place, *place.parents) if path in folders), None)
    return above is not None and not any(
        part.startswith(".") for part in place.relative_to(above).parts
    )


def _has(file: Path, suffixes: Sequence[str]) -> bool:
    known = [suffix.lower() for suffix in suffixes]
    return (file.suffix.lower() or NO_SUFFIX) in known


def without_copies(files: Sequence[TextFile]) -> list[TextFile]:
    """The files in their order, of those of one text the first.

    Copies made on other systems have other ends of lines, or a byte order mark.
    """
    first: dict[str, TextFile] = {}
    for file in files:
        first.setdefault(file.text_sha256, file)
    return list(first.values())


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


def named(files: Sequence[TextFile]) -> str:
    """The first files, for a message."""
    shown = ", ".join(str(file.path) for file in files[:SHOWN_FILES])
    more = len(files) - SHOWN_FILES
    return f"{shown} and {more} more" if more > 0 else shown
