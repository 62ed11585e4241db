"""Debian's documentation packages: which versions, where they come from, unpacked.

The versions are pinned, so that two people's corpus is the same text: every .deb is
compared with its SHA-256, whichever way it came. apt-get fetches them where it has
these versions; elsewhere they come from Debian's snapshot archive, which keeps every
file that Debian ever published, by its SHA-1.
"""

from __future__ import annotations

import hashlib
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from fairseq_transnormer.data.fingerprints import file_sha256

from ..folders.downloads import fetched, one_line, require_sha256
from ..folders.options import refuse_given

ARCHIVE = "https://snapshot.debian.org"
SHARE = Path("usr/share")


@dataclass(frozen=True)
class Package:
    """A package of Debian 12 at one version; ``documents`` is where its text lies."""

    name: str
    version: str
    sha256: str
    sha1: str  # its address in the snapshot archive
    documents: Path

    @property
    def file(self) -> str:
        """The name that apt-get gives it."""
        return f"{self.name}_{self.version}_all.deb"


LINUX = Package(
    *("linux-doc-6.1", "6.1.176-1"),
    sha256="0d843674607703b9ef8c1db5e715c38ed52ff23574feabfe0d961d552126859f",
    sha1="97a5e89b363de0a3439a2b0953a366683e859d77",
    documents=SHARE / "doc/linux-doc-6.1/Documentation",
)
PYTHON = Package(
    *("python3.11-doc", "3.11.2-6+deb12u8"),
    sha256="50eb63e7f636c4281e9ce1b8f10386f1def42159eddce34fc1f41c46261df71b",
    sha1="d4a9ab01ca393dc30872e1ea65f14be24cfcfe73",
    documents=SHARE / "doc/python3.11/html/_sources",
)
POSTGRESQL = Package(
    *("postgresql-doc-15", "15.18-0+deb12u1"),
    sha256="3c598277a463c44d672daa2c335deb8d8252e1852fb025fd4578ea2d9a1b90f0",
    sha1="c7509465c969020f6ce89ae57ff0b70bb0d05b45",
    documents=SHARE / "doc/postgresql-doc-15/html",
)
DICTIONARY = Package(
    *("dict-gcide", "0.48.5+nmu2"),
    sha256="7b0af5cfde3cbdef5e9d6e78f92ec335ced7c2790f37a40f49bebc6f7347ac0f",
    sha1="a731e5db951f4e5cc16d55bc42736be0768ba8c5",
    documents=SHARE / "dictd/gcide.dict.dz",
)


@dataclass(frozen=True)
class Origin:
    """Where packages come from."""

    from_dir: Annotated[Path | None, tyro.conf.arg(metavar="DIR")] = None
    """folder of the .deb files; None: apt-get download, or else the archive"""
    archive: str | None = None
    """URL, where URL/file/SHA1 has .deb files; None: https://snapshot.debian.org"""
    allow_other_versions: bool = False
    """take --from-dir's packages at any version, as .deb files or unpacked in usr/"""


@dataclass(frozen=True)
class Packages:
    """What was found of packages.

    Attributes:
        identity: what identifies them in the settings of data, by package.
        files: the .deb files; the folder is for downloads.
        folder: has usr/ of them already.
    """

    identity: dict[str, dict[str, str]]
    files: Callable[[Path], Iterable[Path]] = lambda folder: ()
    folder: Path | None = None

    @contextmanager
    def unpacked(self) -> Iterator[Path]:
        """A folder with usr/ of all packages, for the time of the context."""
        if self.folder is not None:
            yield self.folder
            return
        with tempfile.TemporaryDirectory(prefix="debian-docs-") as name:
            for path in self.files(Path(name)):
                unpack(path, Path(name))
            yield Path(name)


def find_packages(origin: Origin, packages: list[Package]) -> Packages:
    """The packages of an origin; nothing is fetched yet.

    Raises ValueError where --from-dir does not have the packages, or has other versions
    without --allow-other-versions, and for options that do not go together.
    """
    source, others = origin.from_dir, origin.allow_other_versions
    pins = {
        each.name: {"version": each.version, "sha256": each.sha256} for each in packages
    }
    if source is None:
        refuse_given("with --from-dir", allow_other_versions=others)
        archive = (origin.archive or ARCHIVE).rstrip("/")
        return Packages(
            pins, lambda folder: (_download(folder, each, archive) for each in packages)
        )
    refuse_given("without --from-dir", archive=origin.archive)
    if others and (source / SHARE).is_dir():
        identity = {
            each.name: {"documents": _fingerprint(source, each.documents)}
            for each in packages
        }
        return Packages(identity, folder=source)
    files = {each: _file(source, each, others) for each in packages}
    found = {
        package.name: {"version": package_version(path), "sha256": file_sha256(path)}
        for package, path in files.items()
    }
    return Packages(found if others else pins, lambda folder: files.values())


def _file(folder: Path, package: Package, others: bool) -> Path:
    """The .deb file of a package: of its version, or the only one."""
    found = sorted(folder.glob(f"{package.name}_*.deb"))
    if others and len(found) == 1:
        return found[0]
    path = folder / package.file
    if others or path not in found:
        shown = ", ".join(each.name for each in found) or "none of this package"
        way_out = "" if others else " (--allow-other-versions takes another version)"
        raise ValueError(
            f"--from-dir {folder} must have {package.file}{way_out}, got {shown}"
        )
    require_sha256(path, package.sha256)
    return path


def package_version(path: Path) -> str:
    """The version that a .deb says it has."""
    with _opened(path) as package:
        return str(package.debcontrol()["Version"])


def unpack(path: Path, folder: Path) -> None:
    """What a .deb installs, below ``folder``.

    Links that lead out of ``folder`` are left out: they are of other packages.
    """

    def within(member: tarfile.TarInfo, folder: str) -> tarfile.TarInfo | None:
        try:
            return tarfile.data_filter(member, folder)
        except (tarfile.AbsoluteLinkError, tarfile.LinkOutsideDestinationError):
            return None

    with _opened(path) as package:
        package.data.tgz().extractall(folder, filter=within)


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    from debian.debfile import DebFile

    try:
        with DebFile(str(path)) as package:
            yield package
    except Exception as error:  # what is damaged raises nearly anything
        raise ValueError(f"{path}: cannot be read: {one_line(error)}") from error


def _fingerprint(folder: Path, documents: Path) -> str:
    """SHA-256 of the names and contents of a package's unpacked documents."""
    digest = hashlib.sha256()
    top = folder / documents
    for path in [top] if top.is_file() else sorted(top.rglob("*")):
        if path.is_file():
            name = path.relative_to(folder).as_posix()
            digest.update(f"{name}\0{file_sha256(path)}\n".encode())
    return digest.hexdigest()


def _download(folder: Path, package: Package, archive: str) -> Path:
    """The .deb file, by apt-get or from the archive; ``folder`` is for apt-get's."""
    reason = _apt_get(folder, package)
    if reason is None:
        path = folder / package.file
        require_sha256(path, package.sha256)
        return path
    print(f"{package.file}: from {archive}, since apt-get has none: {reason}")
    return fetched(
        f"{archive}/file/{package.sha1}",
        package.file,
        package.sha256,
        f"apt-get: {reason}; download {package.file} elsewhere and give its folder "
        "with --from-dir",
    )


def _apt_get(folder: Path, package: Package) -> str | None:
    """``apt-get download``, which needs no root; why it failed, or None."""
    command = ["apt-get", "download", f"{package.name}={package.version}"]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    except FileNotFoundError:
        return "not on this machine"
    if not done.returncode and (folder / package.file).is_file():
        return None
    lines = done.stderr.strip().splitlines() or ["no message"]
    errors = [line.removeprefix("E: ") for line in lines if line.startswith("E:")]
    return (errors or lines)[0]
