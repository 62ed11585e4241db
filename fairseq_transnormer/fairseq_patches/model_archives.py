"""Archives of models that ``from_pretrained`` is given: unpacked into one folder.

fairseq's own way lets a member of an archive be written anywhere, and removes the
archive afterwards.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tarfile
import tempfile
from pathlib import Path, PurePosixPath

from ..checkpoints.safe_loading import CheckpointError


def load_archive(load, archive_file):
    """Around fairseq/file_utils.py, ``load_archive_file``: local archives.

    Folders, names that are not there, and addresses of downloads are left to it.

    Returns:
        the folder with the archive's files; it lives as long as this process.

    Raises:
        CheckpointError: it is no tar archive, is damaged, does not fit on the disk, or
            has members other than files and folders inside of it.
    """
    if not os.path.isfile(archive_file):
        return load(archive_file)
    folder = Path(tempfile.mkdtemp(prefix="model_archive_"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    _unpack(Path(archive_file), folder)
    found = list(folder.iterdir())
    # an archive of a folder, as they are usually made
    return str(found[0] if len(found) == 1 and found[0].is_dir() else folder)


def _unpack(path: Path, folder: Path) -> None:
    # the filter is younger than Python 3.10; links, which it allows, are refused below
    filtered = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
    try:
        with tarfile.open(path, "r:*") as archive:
            members = archive.getmembers()
            for member in members:
                _check(path, member)
            size, free = sum(each.size for each in members), shutil.disk_usage(folder)
            if size > free.free:
                raise CheckpointError(
                    f"{path}: {size} bytes when unpacked; {folder} has {free.free} left"
                )
            archive.extractall(folder, members, **filtered)
    except CheckpointError:
        raise
    # tarfile and what decompresses raise what the damage happens to lead to
    except Exception as error:
        reason = str(error) or type(error).__name__
        raise CheckpointError(
            f"{path}: neither a folder nor a whole tar archive ({reason[:200]})"
        ) from error


def _check(path: Path, member: tarfile.TarInfo) -> None:
    name = PurePosixPath(member.name)
    if name.is_absolute() or ".." in name.parts:
        problem = "a path out of it"
    elif not (member.isdir() or (member.isreg() and not member.issparse())):
        problem = "a link, a device or the like"
    else:
        return
    raise CheckpointError(
        f"{path}: refused, since its member {member.name[:200]!r} is {problem}; "
        "allowed: files and folders inside of the archive. Nothing has been unpacked"
    )
