"""CIFAR-10's own files as lines of pixels; what is damaged or another is refused."""

import io
import os
import pickle
import tarfile

import numpy as np
import pytest
from PIL import Image

from data_prep.folders.cifar10_source import cifar10_pictures, cifar10_rows
from data_prep.folders.report import read_report
from data_prep.folders.verify import verify_folder
from data_prep.long_range_arena import lra
from data_prep.symbols import cifar10
from fairseq_transnormer.data.labelled_sequences import LabelledSequences

from .binary_reading import read_text

BATCHES = [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]
OF_A_BATCH = 4
# red, green and blue of each of 32 * 32 places, as the files have them
PLANES = {
    name: np.random.default_rng(seed).integers(0, 256, (OF_A_BATCH, 3, 1024), np.uint8)
    for seed, name in enumerate(BATCHES)
}


def pickled(planes, **changes) -> bytes:
    data = planes.reshape(len(planes), -1)
    batch = {"data": data, "labels": [3, 1, 4, 1]} | changes
    return pickle.dumps(batch, protocol=2)


CONTENTS = {name: pickled(planes) for name, planes in PLANES.items()}


def write_archive(path, contents):
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz") as archive:
        for name, content in contents.items():
            member = tarfile.TarInfo(f"cifar-10-batches-py/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


def write_folder(folder, contents):
    folder.mkdir(parents=True)
    for name, content in contents.items():
        (folder / name).write_bytes(content)


@pytest.fixture
def archive(tmp_path):
    return write_archive(tmp_path / "mine" / "cifar-10-python.tar.gz", CONTENTS)


def arguments(source, dest, *more):
    given = ["--from-dir", source, "--dest", dest, "--allow-other-sizes", *more]
    return list(map(str, given))


def pixel_by_pixel(planes) -> list[str]:
    """Line by line, each place's three levels side by side."""
    return [
        " ".join(str(plane[place]) for place in range(1024) for plane in picture)
        for picture in planes
    ]


def test_every_pixel_is_in_its_place(archive, tmp_path):
    dest, sheet = tmp_path / "data", tmp_path / "sheet.png"
    assert cifar10.main(arguments(archive, dest, "--pictures", sheet)) == 0
    verify_folder(dest)
    train = np.concatenate([PLANES[name] for name in BATCHES[:5]])
    splits = {"train": train[:18], "valid": train[18:], "test": PLANES["test_batch"]}
    for split, planes in splits.items():
        assert read_text(dest, split) == pixel_by_pixel(planes)
    settings = read_report(dest)["settings"]
    size = [settings[name] for name in ("height", "width", "channels", "levels")]
    assert size == [32, 32, 3, 256]
    with Image.open(sheet) as picture:
        pixels = np.asarray(picture)
    # enlarged three times, in a frame and a border
    shown = pixels[4 : 4 + 96 : 3, 4 : 4 + 96 : 3].reshape(1024, 3)
    assert (shown.T == train[0]).all()


def test_folders_are_read_as_the_archive(archive, tmp_path):
    unpacked = tmp_path / "unpacked"
    write_folder(unpacked / "cifar-10-batches-py", CONTENTS)
    pixels, labels = {}, {}
    for source in (archive, archive.parent, unpacked):
        found = [*cifar10_pictures(cifar10_rows(source, True), "valid")]
        pixels[source] = np.stack([each for each, _, _ in found])
        labels[source] = [label for _, label, _ in found]
    for source in (archive.parent, unpacked):
        assert (pixels[source] == pixels[archive]).all()
        assert labels[source] == labels[archive] == [4, 1]


def test_the_arena_reads_the_same_archive(archive, tmp_path):
    dest = tmp_path / "data"
    assert lra.main(["image", *arguments(archive, dest)]) == 0
    red, green, blue = PLANES["test_batch"].transpose(1, 0, 2).astype(float)
    grey = np.rint(0.2989 * red + 0.587 * green + 0.114 * blue)
    found = [LabelledSequences(dest, "test")[i] for i in range(OF_A_BATCH)]
    assert [each.label for each in found] == [3, 1, 4, 1]
    assert (np.stack([each.tokens[0] for each in found]) == grey).all()


def test_others_than_the_published_pictures_are_refused(archive, tmp_path, fails):
    given = arguments(archive, tmp_path / "d")
    given.remove("--allow-other-sizes")
    parts = [archive, "data_batch_1", "md5", "--allow-other-sizes"]
    fails(cifar10.main, given, *parts, dest=tmp_path / "d")


class Command:
    """What a pickle may run when it is read."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize(
    "changes",
    [
        {"labels": [1, 2, 3]},
        {"labels": []},
        {"labels": 4},
        {"data": PLANES["test_batch"].reshape(OF_A_BATCH, -1)[:, 1:]},
        {"data": PLANES["test_batch"].reshape(OF_A_BATCH, -1).astype(int)},
        {"data": [1, 2, 3]},
        "a command",
        "cut short",
    ],
)
def test_a_batch_with_a_fault_is_named(changes, tmp_path, fails):
    run = tmp_path / "run"
    if changes == "cut short":
        content = CONTENTS["test_batch"][:-100]
    else:
        changes = {"data": Command(run)} if changes == "a command" else changes
        content = pickled(PLANES["test_batch"], **changes)
    folder = tmp_path / "mine"
    write_folder(folder, CONTENTS | {"test_batch": content})
    parts = [folder / "test_batch"]
    fails(cifar10.main, arguments(folder, tmp_path / "d"), *parts, dest=tmp_path / "d")
    assert not run.exists()


def test_a_copy_that_is_not_whole(archive, tmp_path, fails):
    dest = tmp_path / "d"
    few = {name: CONTENTS[name] for name in BATCHES[:3]}
    write_folder(tmp_path / "few", few)
    missing = "data_batch_4"
    given = arguments(tmp_path / "few", dest)
    fails(cifar10.main, given, "--from-dir", tmp_path / "few", missing, dest=dest)
    path = write_archive(tmp_path / "few.tar.gz", few)
    fails(cifar10.main, arguments(path, dest), "--from-dir", path, missing, dest=dest)
    archive.write_bytes(archive.read_bytes()[:-2000])
    fails(cifar10.main, arguments(archive, dest), archive, "truncated", dest=dest)
    (tmp_path / "empty").mkdir()
    parts = ["--from-dir", tmp_path / "empty", "cifar-10-python.tar.gz", "save_to_disk"]
    fails(cifar10.main, arguments(tmp_path / "empty", dest), *parts, dest=dest)


@pytest.mark.parametrize("target", ["/etc/hostname", "test_batch"], ids=["out", "self"])
def test_a_link_in_the_archive_is_no_batch(target, tmp_path, fails):
    path = tmp_path / "cifar-10-python.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        member = tarfile.TarInfo("cifar-10-batches-py/test_batch")
        member.type, member.linkname = tarfile.SYMTYPE, target
        archive.addfile(member)
    given = arguments(path, tmp_path / "d")
    fails(cifar10.main, given, path, "cannot be read", "allowed", dest=tmp_path / "d")
