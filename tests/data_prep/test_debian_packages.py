"""Debian's packages: pinned, from wherever they come, and read without dpkg."""

import dataclasses
import hashlib
import json
import shutil
import subprocess

import pytest

from data_prep.documentation import debian_packages
from data_prep.documentation.debian_docs import PACKAGES
from data_prep.documentation.debian_packages import package_version, unpack
from tests.messages import refuses

from .commands import debian_docs, documentation_topics
from .debian_copies import ar, deb, files_of, write_documentation
from .local_server import served

VERSION, OTHER_VERSION = "1.0-1", "1.0-2"


def file_name(package, version=VERSION):
    return f"{package.name}_{version}_all.deb"


@pytest.fixture(scope="module")
def documentation(tmp_path_factory):
    """A folder that has the packages' usr/share."""
    folder = tmp_path_factory.mktemp("documentation")
    write_documentation(folder)
    return folder


@pytest.fixture(scope="module")
def packages(documentation):
    """Contents of small .deb files by package, which is pinned to them."""
    files = files_of(documentation)
    contents = {}
    for package in PACKAGES:
        top = package.documents.as_posix()
        own = {name: data for name, data in files.items() if name.startswith(top)}
        content = deb(package.name, VERSION, own)
        pinned = dataclasses.replace(
            package,
            version=VERSION,
            sha256=hashlib.sha256(content).hexdigest(),
            sha1=hashlib.sha1(content).hexdigest(),
        )
        contents[pinned] = content
    return contents


@pytest.fixture
def debs(packages, monkeypatch):
    path = "data_prep.documentation.debian_docs.PACKAGES"
    monkeypatch.setattr(path, list(packages))
    return packages


@pytest.fixture
def folder(tmp_path, debs):
    """The .deb files in a folder."""
    folder = tmp_path / "debs"
    folder.mkdir()
    for package, content in debs.items():
        (folder / package.file).write_bytes(content)
    return folder


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
def archive(debs, waits):
    """Address of an archive; it cuts two answers in the middle. What it was asked."""
    answers = {f"/file/{each.sha1}": content for each, content in debs.items()}
    with served(answers, broken=2) as (address, asked):
        yield address, asked


def made(dest, *options):
    assert debian_docs(["--dest", str(dest), *map(str, options)]) == 0
    return files_of(dest)


def settings_of(dest):
    return json.loads((dest / "manifest.json").read_text())["settings"]


def test_pins_are_whole():
    for package in PACKAGES:
        assert len(bytes.fromhex(package.sha256)) == 32
        assert len(bytes.fromhex(package.sha1)) == 20
        assert package.file == file_name(package, package.version)


def test_every_way_gives_the_same_data(
    folder, documentation, archive, waits, tmp_path, monkeypatch, no_apt_get
):
    address, asked = archive
    expected = made(tmp_path / "of-folder", "--from-dir", folder)
    assert made(tmp_path / "of-archive", "--archive", f"{address}/") == expected
    # one file was asked for three times, since two answers were broken
    assert len(asked) == len(PACKAGES) + 2 and waits == [1, 2]
    # the cache has them now, for all commands
    assert made(tmp_path / "again", "--archive", address) == expected
    assert len(asked) == len(PACKAGES) + 2
    copy = f'/bin/cp "{folder}/${{2%%=*}}_${{2#*=}}_all.deb" .'
    install_apt_get(tmp_path, monkeypatch, f'test "$1" = download && {copy}')
    monkeypatch.setattr(debian_packages, "ARCHIVE", "http://127.0.0.1:9")
    assert made(tmp_path / "of-apt-get") == expected
    unpacked = ["--from-dir", documentation, "--allow-other-versions"]
    texts = made(tmp_path / "of-root", *unpacked)
    assert {**texts, "manifest.json": 0} == {**expected, "manifest.json": 0}


def test_what_apt_get_has_not_comes_from_the_archive(
    archive, folder, tmp_path, monkeypatch, capsys
):
    error = f"E: Version '{VERSION}' for 'linux-doc-6.1' was not found"
    install_apt_get(tmp_path, monkeypatch, f'echo "{error}" >&2; exit 100')
    texts = made(tmp_path / "data", "--archive", archive[0])
    assert error.removeprefix("E: ") in capsys.readouterr().out
    assert texts == made(tmp_path / "expected", "--from-dir", folder)


def test_apt_get_with_another_file(debs, tmp_path, monkeypatch, fails):
    script = 'echo other >"${2%%=*}_${2#*=}_all.deb"'
    install_apt_get(tmp_path, monkeypatch, script)
    dest, (package, *_) = tmp_path / "data", debs
    parts = [package.file, hashlib.sha256(b"other\n").hexdigest(), package.sha256]
    fails(debian_docs, ["--dest", dest], *parts, dest=dest)


def test_an_archive_with_another_file(debs, waits, tmp_path, no_apt_get, fails):
    package, *_ = debs
    path, dest = f"/file/{package.sha1}", tmp_path / "data"
    with served({path: b"other"}) as (address, asked):
        command = ["--dest", dest, "--archive", address]
        parts = [f"{address}{path}", package.sha256, "--from-dir"]
        parts += [hashlib.sha256(b"other").hexdigest()]
        fails(debian_docs, command, *parts, dest=dest)
    assert asked == [path] * 4
    assert not any(path.is_file() for path in (tmp_path / "cache").rglob("*"))


def test_a_network_out_of_reach(debs, waits, tmp_path, no_apt_get, fails):
    package, *_ = debs
    dest = tmp_path / "data"
    command = ["--dest", dest, "--archive", "http://127.0.0.1:9"]
    parts = ["http://127.0.0.1:9", "apt-get", package.file, "--from-dir"]
    fails(debian_docs, command, *parts, dest=dest)


def test_another_version(debs, folder, documentation, tmp_path, fails):
    package = next(each for each in debs if each.name == "dict-gcide")
    entries = (documentation / package.documents).read_bytes()
    content = deb(package.name, OTHER_VERSION, {str(package.documents): entries})
    (folder / package.file).unlink()
    path = folder / file_name(package, OTHER_VERSION)
    path.write_bytes(content)
    dest = tmp_path / "data"
    command = ["--dest", dest, "--from-dir", folder]
    parts = [path.name, package.file, "--allow-other-versions"]
    fails(debian_docs, command, *parts, dest=dest)
    made(dest, "--from-dir", folder, "--allow-other-versions")
    found = settings_of(dest)["packages"]
    sha256 = hashlib.sha256(content).hexdigest()
    assert found[package.name] == {"version": OTHER_VERSION, "sha256": sha256}
    assert {each["version"] for each in found.values()} == {VERSION, OTHER_VERSION}
    # with the pinned one in the folder, too, these data are not taken for its
    (folder / package.file).write_bytes(debs[package])
    fails(debian_docs, command, OTHER_VERSION, VERSION)
    assert settings_of(dest)["packages"] == found


def test_a_changed_file_with_the_pinned_name(debs, folder, tmp_path, fails):
    package = list(debs)[2]
    path, dest = folder / package.file, tmp_path / "data"
    path.write_bytes(path.read_bytes() + b"\n")
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    command = ["--dest", dest, "--from-dir", folder]
    fails(debian_docs, command, path, found, package.sha256, dest=dest)


def test_unpacked_packages_have_no_version(tmp_path, fails):
    write_documentation(tmp_path / "root")
    dest = tmp_path / "data"
    command = ["--dest", dest, "--from-dir", tmp_path / "root"]
    parts = [tmp_path / "root", PACKAGES[0].file, "--allow-other-versions"]
    fails(debian_docs, command, *parts, dest=dest)
    parts[1] = "linux-doc-6.1_6.1.176-1_all.deb"
    fails(documentation_topics, command, *parts, dest=dest)
    options = [*command[2:], "--allow-other-versions"]
    made(dest, *options)
    page = next((tmp_path / "root").rglob("page7.html"))
    page.write_text(page.read_text().replace("Words", "Other words"))
    fails(debian_docs, [*command, options[-1]], "postgresql-doc-15", "--overwrite")


@pytest.mark.parametrize("compression", ["xz", "gz", "bz2", ""])
def test_a_package_is_read_whole(compression, tmp_path):
    files = {"usr/share/doc/a/text": b"odd", "usr/share/doc/a/b/c": bytes(range(256))}
    path = tmp_path / "a.deb"
    path.write_bytes(deb("a", "2:1.0~rc1-1", files, compression=compression))
    unpack(path, tmp_path / "root")
    assert files_of(tmp_path / "root") == files
    assert package_version(path) == "2:1.0~rc1-1"


@pytest.mark.skipif(not shutil.which("dpkg-deb"), reason="no dpkg-deb on this machine")
def test_a_package_of_debians_own_tool(tmp_path):
    expected = {"usr/share/doc/text/a": b"odd", "usr/share/dictd/b.dz": bytes(2000)}
    for name, content in expected.items():
        file = tmp_path / "build" / name
        file.parent.mkdir(parents=True)
        file.write_bytes(content)
    (tmp_path / "build/DEBIAN").mkdir()
    control = "Package: text\nVersion: 1.2-3\nArchitecture: all\n"
    control += "Maintainer: nobody <nobody@example.org>\nDescription: text\n"
    (tmp_path / "build/DEBIAN/control").write_text(control)
    path = tmp_path / "text.deb"
    command = ["dpkg-deb", "-Zxz", "--build", tmp_path / "build", path]
    subprocess.run(command, check=True, capture_output=True)
    unpack(path, tmp_path / "root")
    assert files_of(tmp_path / "root") == expected
    assert package_version(path) == "1.2-3"


def test_a_package_stays_in_its_folder(tmp_path):
    links = {"usr/share/absolute": "/etc/passwd", "usr/share/out": "../../../secret"}
    links["usr/share/within"] = "../lib/text"
    path = tmp_path / "a.deb"
    path.write_bytes(deb("a", "1", {"usr/lib/text": b"text"}, links))
    unpack(path, tmp_path / "root")
    share = tmp_path / "root/usr/share"
    assert {each.name for each in share.iterdir()} == {"within"}
    assert (share / "within").read_bytes() == b"text"
    path.write_bytes(deb("a", "1", {"../outside": b"text"}))
    with refuses(ValueError, path):
        unpack(path, tmp_path / "root")
    assert not (tmp_path / "outside").exists()


WHOLE = deb("a", "1", {"usr/share/text": bytes(range(256)) * 50})


@pytest.mark.parametrize(
    "content",
    [
        *(b"no archive", b"", WHOLE[:-100], WHOLE[:100], WHOLE[:8] + b"x" * 60),
        WHOLE[:-200] + b"\0" * 200,
        ar({"debian-binary": b"2.0\n", "data.tar.gz": b"x"}),
    ],
    ids=range(7),
)
def test_a_damaged_package(content, tmp_path):
    path = tmp_path / "a.deb"
    path.write_bytes(content)
    with refuses(ValueError, path, alone=True):
        unpack(path, tmp_path / "root")
