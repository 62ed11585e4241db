"""A folder that appears complete or not at all.

The work happens in DEST.tmp-PID, where the file MARK names what was made. The finished
folder gets a listing with the SHA-256 of each file, loses MARK and takes the name DEST.
A run that is killed leaves its folder; the next run for DEST removes what MARK names,
or puts a finished folder in its place.

Files that neither MARK nor a listing names are somebody's: they are never removed.
"""

from __future__ import annotations

import itertools
import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from fairseq_transnormer.data import MANIFEST, REPORT
from fairseq_transnormer.data.fingerprints import file_sha256, installed_versions
from fairseq_transnormer.data.whole_files import json_text

from .options import SHOWN, Directory, Place, listed

MARK = ".made-by-data_prep"
SOFTWARE = ("ve-fairseq", "fairseq", "fairseq-fixed", "sentencepiece", "tiktoken")
# names of folders in the making: the destination's, and the process
WORK = re.compile(r"(.+)\.tmp-\d+")

Record = dict[str, Any]


class Work:
    """A folder in the making, which is there and empty."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / MARK).touch()

    def file(self, name: str) -> Path:
        """The path of a file that is about to be made."""
        with open(self.folder / MARK, "a", encoding="utf-8") as mark:
            mark.write(f"{name}\n")
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        return path


def publish(
    place: Place, settings: Record, listing: str, make: Callable[[Work], Record]
) -> None:
    """Make a folder, unless it is there with these settings.

    Args:
        place: links in it are followed.
        settings: what identifies the data.
        listing: name of the file that lists the others.
        make: writes the files; what it returns stands in the listing, too.

    Raises:
        ValueError: something else is in the place, or another process at work.
    """
    dest = place.dest.resolve()
    if WORK.fullmatch(dest.name):
        raise ValueError(f"--dest {dest}: names of *.tmp-NUMBER are of work; another")
    settings = json.loads(json.dumps(settings))
    dest.parent.mkdir(parents=True, exist_ok=True)
    with _locked(dest):
        for folder in _work_folders(dest):
            # what a killed run has made: the lock says that none is at work
            _remove(folder, _marked(folder))
        there = read_listing(dest / listing)
        if _is_complete(dest, settings, listing, there, place.overwrite):
            print(f"{dest}: already complete with these settings, nothing to do")
            return
        finished = [
            folder
            for folder in _work_folders(dest)
            if read_listing(folder / listing).get("settings") == settings
            and not (folder / MARK).exists()
        ]
        if finished:
            _check_files(finished[0], listing)
        folder = finished[0] if finished else _made(dest, settings, listing, make)
        _put_in_place(folder, dest, listing, there)
    _show_splits(dest, listing)


def verify(folder: Directory, /) -> None:
    """Check that a folder of prepared data is as it was made.

    The SHA-256 of each file must be that in report.json or manifest.json. The first
    fault ends the check with one line and exit code 2. Token ids of data that other
    programs made are checked by every training.

    Args:
        folder: what was prepared.
    """
    listing = MANIFEST if (folder / MANIFEST).is_file() else REPORT
    _check_files(folder, listing)
    _show_splits(folder, listing)
    print(f"{folder}: good")


def _show_splits(folder: Path, listing: str) -> None:
    record = read_listing(folder / listing)
    for split, counts in record.get("counts", record["splits"]).items():
        shown = (f"{n:,} {unit}" for unit, n in counts.items() if isinstance(n, int))
        print(f"{folder}: {split}: {', '.join(shown)}")


def read_listing(path: Path) -> Record:
    """What a listing says; empty where there is none of ours."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    ours = isinstance(content, dict) and {"settings", "files"} <= {*content}
    return content if ours and isinstance(content["files"], dict) else {}


def _check_files(folder: Path, listing: str, by_size: bool = False) -> None:
    """Raise ValueError for the first file that is missing or not the listed one.

    by_size: reads no file, and so passes over changes that keep the size.
    """
    record = read_listing(folder / listing)
    if not record:
        raise ValueError(f"{folder / listing}: no report of data_prep")
    for name, recorded in record["files"].items():
        path = folder / name
        if not path.is_file():
            raise ValueError(f"{path}: no such file, but {listing} lists it")
        what = "bytes" if by_size else "sha256"
        if (path.stat().st_size if by_size else file_sha256(path)) != recorded[what]:
            raise ValueError(
                f"{path}: changed or truncated since it was made: its {what} is not "
                f"that in {listing}"
            )


@contextmanager
def _locked(dest: Path) -> Iterator[None]:
    from filelock import FileLock, Timeout

    path = dest.with_name(f".{dest.name}.data_prep-lock")
    lock = FileLock(path, timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise ValueError(f"--dest {dest}: another run is preparing it") from None
    try:
        yield
    finally:
        # filelock takes no lock of a file that has lost its name
        path.unlink(missing_ok=True)
        lock.release()


def _work_folders(dest: Path) -> list[Path]:
    return sorted(
        path
        for path in dest.parent.iterdir()
        if (work := WORK.fullmatch(path.name)) and work[1] == dest.name
        if path.is_dir() and not path.is_symlink()
    )


def _marked(folder: Path) -> list[str]:
    """The files that a run has made of a folder in the making, MARK as the last."""
    mark = folder / MARK
    names = mark.read_text("utf-8", "replace").splitlines() if mark.is_file() else []
    return [*names, MARK]


def _is_complete(
    dest: Path, settings: Record, listing: str, recorded: Record, overwrite: bool
) -> bool:
    empty = not os.path.lexists(dest) or (dest.is_dir() and not any(dest.iterdir()))
    if not (empty or recorded):
        raise ValueError(
            f"--dest {dest}: exists without {listing} of an earlier run, so it is left "
            "alone; give another folder"
        )
    if empty or overwrite:
        if os.path.ismount(dest):
            raise ValueError(
                f"--dest {dest}: a mount point, which no folder can replace; give a "
                "folder in it"
            )
        if recorded:
            _require_own(dest, recorded, listing)
        return False
    if recorded["settings"] != settings:
        different = "; ".join(_differences(recorded["settings"], settings, "")[:SHOWN])
        raise ValueError(
            f"--dest {dest}: already made with other settings ({different}); give "
            "another folder or --overwrite"
        )
    _check_files(dest, listing, by_size=True)
    return True


def _differences(there: Any, now: Any, name: str) -> list[str]:
    if isinstance(there, dict) and isinstance(now, dict):
        names = {**there, **now}
        found = (_differences(there.get(x), now.get(x), f"{name}.{x}") for x in names)
        return [difference for each in found for difference in each]
    shown = f"{name[1:]}: {there!r:.80} there, {now!r:.80} now"
    return [] if there == now else [shown]


def _made(
    dest: Path, settings: Record, listing: str, make: Callable[[Work], Record]
) -> Path:
    # a finished folder of other settings can have the name: numbers of processes recur
    names = (f"{dest.name}.tmp-{number}" for number in itertools.count(os.getpid()))
    folder = next(path for path in map(dest.with_name, names) if not path.exists())
    folder.mkdir()
    try:
        work = Work(folder)
        content = {"settings": settings, **make(work)}
        content["files"] = {
            name: {"bytes": path.stat().st_size, "sha256": file_sha256(path)}
            for name in _marked(work.folder)[:-1]
            for path in [work.folder / name]
        }
        content["software"] = installed_versions(SOFTWARE)
        text = json_text(content, indent=1)
        work.file(listing).write_text(f"{text}\n", encoding="utf-8")
    except BaseException:
        _remove(folder, _marked(folder))
        raise
    (folder / MARK).unlink()
    return folder


def _put_in_place(folder: Path, dest: Path, listing: str, there: Record) -> None:
    """Rename a finished folder, in place of the one whose listing is ``there``."""
    try:
        record = read_listing(dest / listing)
        if record != there:
            raise ValueError(f"{listing} changed during the work")
        if record:
            _require_own(dest, record, listing)
            _remove(dest, [*record["files"], listing])
        folder.rename(dest)
    except (OSError, ValueError) as error:
        raise ValueError(
            f"--dest {dest}: {error}; the finished data are in {folder}: move away "
            "what is in their place, and run the same command again"
        ) from error


def _require_own(folder: Path, record: Record, listing: str) -> None:
    """Raise ValueError where a folder has more than the listed, unchanged files."""
    made = {folder / name for name in (*record["files"], listing)}
    folders = {parent for path in made for parent in path.parents}
    foreign = [
        path
        for path in sorted(folder.rglob("*"))
        if path.is_symlink() or path not in (folders if path.is_dir() else made)
    ]
    foreign += [
        path
        for name, recorded in record["files"].items()
        if (path := folder / name).is_file() and file_sha256(path) != recorded["sha256"]
    ]
    if foreign:
        names = listed([path.relative_to(folder) for path in foreign])
        raise ValueError(
            f"{folder}: holds {names}, which no preparation made, or which changed "
            "since; move it away, or give another --dest"
        )


def _remove(folder: Path, names: Sequence[str]) -> None:
    """Remove these of a folder's files in their order, and folders once empty.

    Neither links nor names that lead elsewhere are followed.
    """
    files = [
        path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()
    ]
    there = {path.relative_to(folder).as_posix(): path for path in files}
    for name in names:
        if name in there:
            there[name].unlink()
    for place in sorted({path.parent for path in files} | {folder}, reverse=True):
        with suppress(OSError):
            place.rmdir()
