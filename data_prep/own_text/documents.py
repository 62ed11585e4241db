"""The user's text files: finding them, and which of them are copies."""

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from ..folders.text_files import TextFile, scan

NO_SUFFIX = "none"
SHOWN_SUFFIXES = 5


def find_files(
    option: str, paths: Iterable[Path], suffixes: Sequence[str], dest: Path
) -> tuple[list[TextFile], str]:
    """The files given and, in name order, those in the folders given.

    Args:
        option: of the command line that gave the paths.
        paths: files, whatever their names, and folders.
        suffixes: of the files that are read in folders and below, in any case of
            letters, "none" of those without. Hidden files and folders are left out,
            links are followed.
        dest: where something is to be made of them, in none of the folders.

    Returns:
        the files, and a line that counts those read and those skipped.
    """
    files, left_out = [], []
    known = [suffix.lower() for suffix in suffixes]
    for path in paths:
        if not path.is_dir():
            files.append(scan(path))
            continue
        every, folders = _visible(path)
        if folders.intersection((dest.resolve(), *dest.resolve().parents)):
            raise ValueError(
                f"--dest {dest} lies in {option} {path}: what is made there would "
                "be read as text by the next run; allowed: a folder elsewhere"
            )
        chosen = {x for x in every if (x.suffix.lower() or NO_SUFFIX) in known}
        if not chosen:
            endings = ", ".join(f"*{x}" for x in suffixes)
            there = described(every) or "it is empty"
            raise ValueError(
                f"{option} {path}: no {endings} file in this folder ({there})"
            )
        files += [scan(x, str(x.relative_to(path))) for x in every if x in chosen]
        left_out += [file for file in every if file not in chosen]
    read = described(file.path for file in files)
    return files, f"read {read}; left out: {described(left_out) or 'nothing'}"


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


def _visible(top: Path) -> tuple[list[Path], set[Path]]:
    """The files in a folder and below, hidden ones left out, and the folders.

    Links are followed, into each folder once. Links that lead nowhere are files, pipes
    are not.

    Raises:
        OSError: a folder cannot be read.
    """

    def refuse(error: OSError) -> None:
        raise error

    found, seen = [], set()
    for place, folders, names in os.walk(top, onerror=refuse, followlinks=True):
        here = Path(place)
        if here.resolve() in seen:
            folders.clear()
            continue
        seen.add(here.resolve())
        visible = [here / name for name in folders if not name.startswith(".")]
        # the name without a link counts
        visible.sort(key=lambda path: (path.is_symlink(), path))
        folders[:] = [path.name for path in visible]
        files = [here / name for name in names if not name.startswith(".")]
        found += [each for each in files if each.is_file() or not each.exists()]
    return sorted(found), seen


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
