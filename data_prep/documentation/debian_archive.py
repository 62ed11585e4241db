"""Debian packages as files: a .deb is read without dpkg.

A .deb is an ``ar`` archive of three members: the number of the format, control.tar.*
with the package's name and version, and data.tar.* with what it installs.
"""

import io
import tarfile
from pathlib import Path

from data_prep.folders.errors import DAMAGED, InputError

MAGIC = b"!<arch>\n"
# name 16, time 12, owner 6, group 6, mode 8, size 10, and the two bytes of END
HEADER_BYTES, NAME, SIZE = 60, slice(0, 16), slice(48, 58)
END = b"`\n"
COMPRESSIONS = ("", "gz", "bz2", "xz")


def package_version(path: Path) -> str:
    """The version that a .deb says it has; raises InputError for a damaged one."""
    with _member(path, "control") as archive:
        try:
            texts = [
                archive.extractfile(member).read().decode("utf-8", "replace")
                for member in archive
                if member.isfile() and member.name.removeprefix("./") == "control"
            ]
        except DAMAGED as error:
            raise InputError(f"{path}: damaged: {error}") from error
    for line in "".join(texts).splitlines():
        if line.startswith("Version:"):
            return line.removeprefix("Version:").strip()
    raise InputError(f"{path}: no version in its control file")


def unpack(path: Path, folder: Path) -> None:
    """What a .deb installs, below ``folder``; raises InputError for a damaged one.

    Links that lead out of ``folder`` are left out: they are of other packages.
    """
    with _member(path, "data") as archive:
        try:
            archive.extractall(folder, filter=_within)
        except DAMAGED as error:
            raise InputError(f"{path}: damaged: {error}") from error


def _within(member: tarfile.TarInfo, folder: str) -> tarfile.TarInfo | None:
    try:
        return tarfile.data_filter(member, folder)
    except (tarfile.AbsoluteLinkError, tarfile.LinkOutsideDestinationError):
        return None


def _member(path: Path, stem: str) -> tarfile.TarFile:
    """The archive ``stem``.tar, .tar.gz, .tar.bz2 or .tar.xz in a .deb."""
    allowed = {
        f"{stem}.tar{'.' if each else ''}{each}": f"r:{each}" for each in COMPRESSIONS
    }
    content = path.read_bytes()
    if not content.startswith(MAGIC):
        raise InputError(f"{path}: no Debian package")
    place, names = len(MAGIC), []
    while place < len(content):
        header = content[place : place + HEADER_BYTES]
        place += HEADER_BYTES
        if not header.endswith(END) or not header[SIZE].strip().isdigit():
            raise InputError(f"{path}: truncated or damaged, at byte {place}")
        name = header[NAME].decode("ascii", "replace").strip().rstrip("/")
        size = int(header[SIZE])
        if place + size > len(content):
            raise InputError(f"{path}: truncated, in {name}")
        if name in allowed:
            member = io.BytesIO(content[place : place + size])
            try:
                return tarfile.open(fileobj=member, mode=allowed[name])
            except DAMAGED as error:
                raise InputError(f"{path}: {name}: damaged: {error}") from error
        names.append(name)
        place += size + size % 2  # members begin at even bytes
    raise InputError(
        f"{path}: has {', '.join(names)}; allowed is one of {', '.join(allowed)}"
    )
