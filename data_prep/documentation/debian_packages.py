"""Debian's documentation packages: which versions, where they come from, their texts.

The versions are pinned, so that two people's corpus is the same text: every .deb is
compared with its SHA-256, whichever way it came. apt-get fetches them where it has
these versions. Elsewhere they come from Debian's snapshot archive, which keeps every
file that Debian ever published, by its SHA-1.
"""

from __future__ import annotations

import gzip
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from fairseq_transnormer.data.fingerprints import file_sha256

from ..folders.downloads import fetched, reading, require_sha256
from ..folders.options import MaybeDirectory, refuse_given

ARCHIVE = "https://snapshot.debian.org"
SHARE = PurePosixPath("usr/share")


@dataclass(frozen=True)
class Package:
    """A package of Debian 12 at one version, and where its text lies."""

    name: str
    version: str
    sha256: str
    sha1: str  # its address in the snapshot archive
    documents: PurePosixPath
    suffixes: tuple[str, ...]

    @property
    def file(self) -> str:
        """The name that apt-get gives it."""
        return f"{self.name}_{self.version}_all.deb"


LINUX = Package(
    *("linux-doc-6.1", "6.1.176-1"),
    sha256="0d843674607703b9ef8c1db5e715c38ed52ff23574feabfe0d961d552126859f",
    sha1="97a5e89b363de0a3439a2b0953a366683e859d77",
    documents=SHARE / "doc/linux-doc-6.1/Documentation",
    suffixes=(".rst.gz", ".txt.gz"),
)
PYTHON = Package(
    *("python3.11-doc", "3.11.2-6+deb12u8"),
    sha256="50eb63e7f636c4281e9ce1b8f10386f1def42159eddce34fc1f41c46261df71b",
    sha1="d4a9ab01ca393dc30872e1ea65f14be24cfcfe73",
    documents=SHARE / "doc/python3.11/html/_sources",
    suffixes=(".rst.txt",),
)
POSTGRESQL = Package(
    *("postgresql-doc-15", "15.18-0+deb12u1"),
    sha256="3c598277a463c44d672daa2c335deb8d8252e1852fb025fd4578ea2d9a1b90f0",
    sha1="c7509465c969020f6ce89ae57ff0b70bb0d05b45",
    documents=SHARE / "doc/postgresql-doc-15/html",
    suffixes=(".html",),
)
DICTIONARY = Package(
    *("dict-gcide", "0.48.5+nmu2"),
    sha256="7b0af5cfde3cbdef5e9d6e78f92ec335ced7c2790f37a40f49bebc6f7347ac0f",
    sha1="a731e5db951f4e5cc16d55bc42736be0768ba8c5",
    documents=SHARE / "dictd",
    suffixes=("gcide.dict.dz",),
)


@dataclass(frozen=True)
class Origin:
    """Where packages come from."""

    from_dir: MaybeDirectory = None
    """folder of the .deb files; None: apt-get download, or else Debian's archive"""
    allow_other_versions: bool = False
    """take --from-dir's packages at any version"""

    def __post_init__(self) -> None:
        if self.from_dir is None:
            given = {"allow_other_versions": self.allow_other_versions}
            refuse_given("with --from-dir", **given)

    def identity(self, packages: list[Package]) -> dict[str, dict[str, str]]:
        """Version and SHA-256 by package, for the settings of data."""
        if self.from_dir is None or not self.allow_other_versions:
            return {
                each.name: {"version": each.version, "sha256": each.sha256}
                for each in packages
            }
        from debian.debfile import DebFile

        found = {}
        for each in packages:
            path = _only_file(self.from_dir, each)
            with reading(path), DebFile(str(path)) as deb:
                version = str(deb.debcontrol()["Version"])
            found[each.name] = {"version": version, "sha256": file_sha256(path)}
        return found

    def texts(self, package: Package) -> Iterator[tuple[str, str]]:
        """Names below ``package.documents``, and texts, of a package's documents.

        Links are left out. Raises ValueError where --from-dir has not the package.
        """
        from debian.debfile import DebFile
        from tqdm import tqdm

        with (
            tempfile.TemporaryDirectory(prefix="debian-docs-") as downloads,
            reading(file := self._file(package, Path(downloads))),
            DebFile(str(file)) as deb,
        ):
            archive = deb.data.tgz()
            for member in tqdm(archive, package.name, unit=" files", disable=None):
                path = PurePosixPath(member.name)
                if (
                    member.isfile()
                    and path.is_relative_to(package.documents)
                    and path.name.endswith(package.suffixes)
                ):
                    text = archive.extractfile(member).read()
                    if path.suffix in (".gz", ".dz"):
                        text = gzip.decompress(text)
                    name = path.relative_to(package.documents).as_posix()
                    # a few bytes of the dictionary are of another encoding
                    yield name, text.decode(errors="ignore")

    def _file(self, package: Package, downloads: Path) -> Path:
        if self.from_dir is None:
            return _download(downloads, package)
        if self.allow_other_versions:
            return _only_file(self.from_dir, package)
        path = self.from_dir / package.file
        require_sha256(path, package.sha256)
        return path


def _only_file(folder: Path, package: Package) -> Path:
    """The .deb file of a package, of any version."""
    found = sorted(folder.glob(f"{package.name}_*.deb"))
    if len(found) != 1:
        raise ValueError(
            f"--from-dir {folder} must have one {package.name}_*.deb, got {len(found)}"
        )
    return found[0]


def _download(folder: Path, package: Package) -> Path:
    """The .deb file, by apt-get (which needs no root) or from the archive."""
    command = ["apt-get", "download", f"{package.name}={package.version}"]
    try:
        subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    except (FileNotFoundError, subprocess.CalledProcessError):
        url = f"{ARCHIVE}/file/{package.sha1}"
        instead = f"download {package.file} elsewhere and give its folder as --from-dir"
        return fetched(url, package.file, package.sha256, instead)
    path = folder / package.file
    require_sha256(path, package.sha256)
    return path
