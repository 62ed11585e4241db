"""Debian packages: finding, downloading and unpacking them without root."""

import argparse
import subprocess
import tempfile
from pathlib import Path

from data_prep.folders.errors import InputError


def add_packages(parser: argparse.ArgumentParser) -> None:
    """``--from-dir``."""
    parser.add_argument(
        "--from-dir",
        type=Path,
        metavar="SRC",
        help="folder of the .deb files or of usr/ (default: apt-get download)",
    )


def find_packages(folder: Path, names: list[str]) -> dict[str, Path]:
    """The .deb file of each package in ``folder``; raises InputError without one."""
    found = {}
    for name in names:
        files = sorted(folder.glob(f"{name}_*.deb"))
        if len(files) != 1:
            what = "no" if not files else f"{len(files)} versions of"
            raise InputError(
                f"{folder}: {what} {name}_VERSION_all.deb; give a folder with one of "
                f"each: {', '.join(names)}"
            )
        found[name] = files[0]
    return found


def download_packages(folder: Path, names: list[str]) -> dict[str, Path]:
    """``apt-get download`` into ``folder``, which needs no root."""
    try:
        done = subprocess.run(
            ["apt-get", "download", *names], cwd=folder, capture_output=True, text=True
        )
    except FileNotFoundError:
        raise InputError(
            "apt-get: not on this machine; download the packages elsewhere and give "
            f"their folder with --from-dir: {', '.join(names)}"
        ) from None
    if done.returncode:
        reason = done.stderr.strip().splitlines()[-1:] or ["no message"]
        raise InputError(f"apt-get download: {reason[0]}; packages: {' '.join(names)}")
    return find_packages(folder, names)


def unpack(package: Path, folder: Path) -> None:
    """``dpkg-deb --extract``; raises InputError where that fails."""
    command = ["dpkg-deb", "--extract", str(package), str(folder)]
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except FileNotFoundError:
        raise InputError(
            "dpkg-deb: not on this machine; unpack the packages elsewhere and give the "
            "folder that has usr/share with --from-dir"
        ) from None
    if done.returncode:
        raise InputError(f"{package}: {done.stderr.strip()}")


class UnpackedPackages:
    """A folder with usr/share of the packages, as a context.

    Args:
        source: a folder of .deb files or an unpacked one; None downloads.
        names: of the packages.
    """

    def __init__(self, source: Path | None, names: list[str]) -> None:
        self._source, self._names = source, names
        self._temporary = tempfile.TemporaryDirectory(prefix="debian-docs-")

    def __enter__(self) -> Path:
        folder = Path(self._temporary.name)
        if self._source is not None:
            if not self._source.is_dir():
                raise InputError(f"--from-dir {self._source}: no such folder")
            if (self._source / "usr" / "share").is_dir():
                return self._source
            packages = find_packages(self._source, self._names)
        else:
            packages = download_packages(folder, self._names)
        for package in packages.values():
            unpack(package, folder)
        return folder

    def __exit__(self, *_: object) -> None:
        self._temporary.cleanup()
