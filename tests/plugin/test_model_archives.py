"""Archives that from_pretrained is given: unpacked into one folder, and kept."""

import io
import tarfile
from pathlib import Path

import pytest
from fairseq import file_utils

import fairseq_transnormer.plugin  # noqa: F401 (changes fairseq)
from fairseq_transnormer.checkpoints.safe_loading import CheckpointError
from tests.messages import refuses


def member(name, kind=tarfile.REGTYPE, target="", content=b"content"):
    made = tarfile.TarInfo(name)
    made.type, made.linkname = kind, str(target)
    made.size = len(content) if kind == tarfile.REGTYPE else 0
    return made, io.BytesIO(content)


def archive(path, *members, mode="w:gz"):
    with tarfile.open(path, mode) as file:
        for each in members:
            file.addfile(*each)
    return path


@pytest.fixture
def outside(tmp_path, monkeypatch):
    """Temporary files have a folder of their own; what else is there stays."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/dict.txt").write_text("mine")

    def files():
        kept = tmp_path.rglob("*")
        return {
            str(each.relative_to(tmp_path)): each.read_bytes()
            for each in kept
            if each.is_file() and "temporary" not in each.parts
        }

    return files


@pytest.mark.parametrize("suffix", ["tar", "tar.gz", "tar.bz2", "tar.xz", "tgz", "pt"])
def test_an_archive_is_unpacked_and_kept(suffix, tmp_path, outside):
    mode = {"tar": "w", "tar.bz2": "w:bz2", "tar.xz": "w:xz"}.get(suffix, "w:gz")
    path = archive(
        tmp_path / f"model.{suffix}",
        member("model", tarfile.DIRTYPE),
        member("model/dict.txt"),
        member("model/model.pt"),
        mode=mode,
    )
    before = outside()
    folder = Path(file_utils.load_archive_file(str(path)))
    assert sorted(each.name for each in folder.iterdir()) == ["dict.txt", "model.pt"]
    assert (folder / "dict.txt").read_bytes() == b"content"
    assert outside() == before and path.is_file()
    # a second time, too
    assert (Path(file_utils.load_archive_file(str(path))) / "model.pt").is_file()


HOSTILE = {
    "a parent": lambda mine: [member("../../mine/dict.txt")],
    "a parent further on": lambda mine: [member("model/../../../mine/dict.txt")],
    "a symbolic link out": lambda mine: [
        member("out", tarfile.SYMTYPE, mine),
        member("out/dict.txt"),
    ],
    "a symbolic link inside": lambda mine: [
        member("dict.txt"),
        member("again.txt", tarfile.SYMTYPE, "dict.txt"),
    ],
    "a hard link": lambda mine: [
        member("dict.txt", tarfile.LNKTYPE, mine / "dict.txt"),
        member("dict.txt"),
    ],
    "a device": lambda mine: [member("null", tarfile.CHRTYPE)],
    "a pipe": lambda mine: [member("pipe", tarfile.FIFOTYPE)],
    "links through long paths": lambda mine: [
        member("/".join(["d" * 200] * 20), tarfile.DIRTYPE),
        member("a", tarfile.SYMTYPE, "/".join(["d" * 200] * 20)),
        member("a/l", tarfile.SYMTYPE, "../" * 20),
        member("a/l/mine/dict.txt"),
    ],
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_members_that_leave_the_folder_are_refused(kind, tmp_path, outside):
    path = archive(tmp_path / "model.tar.gz", *HOSTILE[kind](tmp_path / "mine"))
    before = outside()
    with refuses(CheckpointError, path, "files and folders"):
        file_utils.load_archive_file(str(path))
    assert outside() == before
    assert not any(each.is_file() for each in (tmp_path / "temporary").rglob("*"))


def test_an_absolute_path_stays_inside(tmp_path, outside):
    path = archive(tmp_path / "model.tar.gz", member(str(tmp_path / "mine/dict.txt")))
    before = outside()
    file_utils.load_archive_file(str(path))
    assert outside() == before
