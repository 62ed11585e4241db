"""Debian's packages: pinned, from wherever they come, and read without dpkg."""

import hashlib
import json
import shutil
import subprocess

import pytest

from data_prep.documentation import debian_packages
from data_prep.documentation.debian_docs import READERS
from data_prep.documentation.debian_packages import LINUX, Origin, Package
from fairseq_transnormer.data.fingerprints import file_sha256

from .commands import contents, debian_docs, documentation_topics
from .debian_copies import DICTIONARY, VERSION, deb, pinned, write_packages
from .local_server import served

OTHER_VERSION = "1.0-2"


@pytest.fixture(scope="module")
def all_debs(tmp_path_factory):
    """A folder of small .deb files of the packages."""
    folder = tmp_path_factory.mktemp("debs")
    write_packages(folder)
    return folder


@pytest.fixture
def packages(all_debs, monkeypatch):
    """The packages, pinned to the small .deb files."""
    own = {pinned(each, all_debs): read for each, read in READERS.items()}
    monkeypatch.setattr("data_prep.documentation.debian_docs.READERS", own)
    return {each.name: each for each in own}


@pytest.fixture
def folder(tmp_path, all_debs, packages):
    return shutil.copytree(all_debs, tmp_path / "debs")


def install_apt_get(tmp_path, monkeypatch, script):
    """An apt-get that runs ``script``, and no other program on this machine."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/apt-get").write_text(f"#!/bin/sh\n{script}\n")
    (tmp_path / "bin/apt-get").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))


@pytest.fixture
def no_apt_get(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path / "none"))


@pytest.fixture
def archive(packages, all_debs, waits, monkeypatch):
    """An archive, which cuts two answers in the middle; what it was asked."""
    answers = {
        f"/file/{each.sha1}": (all_debs / each.file).read_bytes()
        for each in packages.values()
    }
    with served(answers, broken=2) as (address, asked):
        monkeypatch.setattr(debian_packages, "ARCHIVE", address)
        yield asked


def made(dest, *options):
    assert debian_docs(["--dest", str(dest), *map(str, options)]) == 0
    return contents(dest)


def packages_of(dest):
    return json.loads((dest / "manifest.json").read_text())["settings"]["packages"]


def test_pins_are_whole():
    for package in READERS:
        assert len(bytes.fromhex(package.sha256)) == 32
        assert len(bytes.fromhex(package.sha1)) == 20
        assert package.file == f"{package.name}_{package.version}_all.deb"


def test_every_way_gives_the_same_data(
    folder, archive, waits, tmp_path, monkeypatch, no_apt_get
):
    expected = made(tmp_path / "of-folder", "--from-dir", folder)
    assert made(tmp_path / "of-archive") == expected
    # one file was asked for three times, since two answers were broken
    assert len(archive) == len(READERS) + 2 and waits == [1, 2]
    # the cache has them now, for all commands
    assert made(tmp_path / "again") == expected
    assert len(archive) == len(READERS) + 2
    copy = f'/bin/cp "{folder}/${{2%%=*}}_${{2#*=}}_all.deb" .'
    install_apt_get(tmp_path, monkeypatch, f'test "$1" = download && {copy}')
    monkeypatch.setattr(debian_packages, "ARCHIVE", "http://127.0.0.1:9")
    assert made(tmp_path / "of-apt-get") == expected


def test_what_apt_get_has_not_comes_from_the_archive(
    archive, folder, tmp_path, monkeypatch
):
    install_apt_get(tmp_path, monkeypatch, "exit 100")
    assert made(tmp_path / "data") == made(tmp_path / "expected", "--from-dir", folder)


def test_apt_get_with_another_file(packages, tmp_path, monkeypatch, fails):
    script = 'echo other >"${2%%=*}_${2#*=}_all.deb"'
    install_apt_get(tmp_path, monkeypatch, script)
    dest, package = tmp_path / "data", packages[LINUX.name]
    parts = [package.file, hashlib.sha256(b"other\n").hexdigest(), package.sha256]
    fails(debian_docs, ["--dest", dest], *parts, dest=dest)


def test_an_archive_with_another_file(
    packages, waits, tmp_path, no_apt_get, fails, monkeypatch
):
    package, dest = packages[LINUX.name], tmp_path / "data"
    path = f"/file/{package.sha1}"
    with served({path: b"other"}) as (address, asked):
        monkeypatch.setattr(debian_packages, "ARCHIVE", address)
        parts = [f"{address}{path}", package.sha256, "--from-dir"]
        parts += [hashlib.sha256(b"other").hexdigest()]
        fails(debian_docs, ["--dest", dest], *parts, dest=dest)
    assert asked == [path] * 4
    assert not any(path.is_file() for path in (tmp_path / "cache").rglob("*"))


def test_another_version(folder, packages, tmp_path, fails):
    package = packages["dict-gcide"]
    with_text = folder / package.file
    other = folder / f"{package.name}_{OTHER_VERSION}_all.deb"
    files = {str(package.documents / "gcide.dict.dz"): DICTIONARY}
    other.write_bytes(deb(package.name, OTHER_VERSION, files))
    dest = tmp_path / "data"
    command = ["--dest", dest, "--from-dir", folder]
    options = [*command, "--allow-other-versions"]
    fails(debian_docs, options, "dict-gcide_*.deb", "got 2", dest=dest)
    with_text.unlink()
    fails(debian_docs, command, with_text, "no such file", dest=dest)
    made(dest, *options[2:])
    found = packages_of(dest)
    identity = {"version": OTHER_VERSION, "sha256": file_sha256(other)}
    assert found[package.name] == identity
    assert {each["version"] for each in found.values()} == {VERSION, OTHER_VERSION}
    # these data are not taken for the pinned ones'
    fails(debian_docs, command, OTHER_VERSION, VERSION)
    assert packages_of(dest) == found


@pytest.mark.parametrize("command", [debian_docs, documentation_topics])
def test_a_changed_file_with_the_pinned_name(
    command, folder, packages, tmp_path, fails, monkeypatch
):
    topics = "data_prep.documentation.documentation_topics.LINUX"
    package = packages[LINUX.name]
    monkeypatch.setattr(topics, package)
    path, dest = folder / package.file, tmp_path / "data"
    path.write_bytes(path.read_bytes() + b"\n")
    words = ["--dest", dest, "--from-dir", folder]
    fails(command, words, path, file_sha256(path), package.sha256, dest=dest)


@pytest.mark.parametrize("part", ["!<arch>", "control.tar", "data.tar", "\xfd7zXZ"])
def test_a_damaged_package_of_another_version(folder, packages, tmp_path, fails, part):
    """In its frame, or in its last member, the compressed documents."""
    path, dest = folder / packages[LINUX.name].file, tmp_path / "data"
    before, mark, after = path.read_bytes().rpartition(part.encode("latin-1"))
    path.write_bytes(before + b"?" * len(mark) + after)
    options = ["--from-dir", folder, "--allow-other-versions"]
    fails(debian_docs, ["--dest", dest, *options], path, "cannot be read", dest=dest)


FILES = {"usr/share/doc/a/text.txt": b"odd", "usr/share/doc/a/b/c.txt": b"x" * 2000}


def read(path, content=None):
    """The texts of a .deb file in usr/share/doc/a, and its version."""
    if content is not None:
        path.write_bytes(content)
    where = debian_packages.SHARE / "doc/a"
    package = Package("a", "", "", "", documents=where, suffixes=(".txt",))
    origin = Origin(path.parent, allow_other_versions=True)
    return dict(origin.texts(package)), origin.identity([package])["a"]["version"]


TEXTS = {"text.txt": "odd", "b/c.txt": "x" * 2000}


@pytest.mark.parametrize("compression", ["xz", "gz", "bz2", ""])
def test_a_package_is_read_whole(compression, tmp_path):
    others = {"usr/share/doc/a/image.png": b"", "usr/share/doc/ab/text.txt": b"x"}
    links = {"usr/share/doc/a/link.txt": "/etc/passwd"}
    content = deb("a", "2:1.0-1", FILES | others, links, compression)
    assert read(tmp_path / "a_1.deb", content) == (TEXTS, "2:1.0-1")


@pytest.mark.skipif(not shutil.which("dpkg-deb"), reason="no dpkg-deb on this machine")
def test_a_package_of_debians_own_tool(tmp_path):
    for name, content in FILES.items():
        file = tmp_path / "build" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    (tmp_path / "build/DEBIAN").mkdir()
    control = "Package: a\nVersion: 1.2-3\nArchitecture: all\n"
    control += "Maintainer: nobody <nobody@example.org>\nDescription: text\n"
    (tmp_path / "build/DEBIAN/control").write_text(control)
    path = tmp_path / "a_1.deb"
    command = ["dpkg-deb", "-Zxz", "--build", tmp_path / "build", path]
    subprocess.run(command, check=True, capture_output=True)
    assert read(path) == (TEXTS, "1.2-3")
