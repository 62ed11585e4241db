"""Data sets of the hub: one revision; cut and changed copies are refused."""

import hashlib
import json

import pytest

from data_prep.folders.hub import HubData
from data_prep.folders.pictures import CIFAR10
from data_prep.labelled_texts import glue
from data_prep.long_range_arena import lra as module
from data_prep.symbols.images import MNIST
from data_prep.wikitext import wikitext103

from .commands import lra

PARQUET = "{}-00000-of-00001.parquet"
# published with the data sets: examples in all, and classes
SIZES = [
    (module.IMDB, 2, {"train": 25_000, "test": 25_000}),
    (CIFAR10, 10, {"train": 50_000, "test": 10_000}),
    (MNIST, 10, {"train": 60_000, "test": 10_000}),
]
LABELS = {"train": [0, 1, 0, 1, 1], "test": [1, 0]}


def imdb(**labels):
    """A data set in small, with these labels instead of ``LABELS``."""
    import datasets

    return datasets.DatasetDict(
        {
            split: datasets.Dataset.from_dict(
                {"text": [f"text {i}" for i in range(len(each))], "label": each}
            )
            for split, each in (LABELS | labels).items()
        }
    )


def write_copy(data, folder, name=PARQUET):
    """A copy in a folder below; SHA-256 of its files by split."""
    (folder / "plain_text").mkdir(parents=True)
    for split, rows in data.items():
        rows.to_parquet(str(folder / "plain_text" / name.format(split)))
    return {
        split: hashlib.sha256(path.read_bytes()).hexdigest()
        for split in data
        for path in folder.rglob(name.format(split))
    }


def text(dest, *options):
    return ["text", "--dest", str(dest), *map(str, options)]


@pytest.fixture
def published(monkeypatch):
    """Makes ``imdb()``, with these files, what is published."""

    def publish(files, revision="0" * 40):
        labels = {"train": (2, 3), "test": (1, 1)}
        monkeypatch.setattr(
            module, "IMDB", HubData("somebody/texts", revision, files, labels)
        )

    return publish


@pytest.mark.parametrize(("data", "classes", "sizes"), SIZES)
def test_what_is_published(data, classes, sizes):
    assert {name: sum(counts) for name, counts in data.labels.items()} == sizes
    assert {len(counts) for counts in data.labels.values()} == {classes}
    assert set(data.files) == set(sizes)
    assert {len(bytes.fromhex(each)) for each in data.files.values()} == {32}


def test_revisions_are_commits():
    known = [*(data for data, _, _ in SIZES), glue.HUB_DATA, wikitext103.HUB_DATA]
    assert {len(bytes.fromhex(data.revision)) for data in known} == {20}
    assert len({data.name for data in known}) == 5


@pytest.mark.parametrize("name", [PARQUET, "{}.parquet"])
def test_a_whole_copy_is_taken(name, tmp_path, published):
    published(write_copy(imdb(), tmp_path / "copy", name))
    assert lra(text(tmp_path / "d", "--from-dir", tmp_path / "copy")) == 0


@pytest.mark.parametrize(
    "labels", [{"train": [0, 1, 0, 1]}, {"test": [0, 1, 0]}, {"test": [1, 1]}]
)
def test_a_cut_copy_is_refused(labels, tmp_path, published, fails):
    published({})
    write_copy(imdb(**labels), tmp_path / "copy")
    arguments = text(tmp_path / "d", "--from-dir", tmp_path / "copy")
    parts = [*labels, "somebody/texts", "--allow-other-sizes"]
    fails(lra, arguments, *parts, dest=tmp_path / "d")
    assert lra([*arguments, "--allow-other-sizes"]) == 0


def test_another_or_missing_parquet_file_is_refused(tmp_path, published, fails):
    files = write_copy(imdb(), tmp_path / "copy")
    name = PARQUET.format("test")
    published(files | {"test": "5" * 64})
    arguments = text(tmp_path / "d", "--from-dir", tmp_path / "copy")
    parts = [name, files["test"], "5" * 64, "0" * 40, "--allow-other-sizes"]
    fails(lra, arguments, *parts, dest=tmp_path / "d")
    half = tmp_path / "copy/plain_text/test-00000-of-00002.parquet"
    half.with_name(name).rename(half)
    fails(lra, arguments, half, "1 of 2 parts", dest=tmp_path / "d")
    half.unlink()
    fails(lra, arguments, "copy/plain_text", "test.parquet", dest=tmp_path / "d")
    (tmp_path / "empty").mkdir()
    arguments = text(tmp_path / "d", "--from-dir", tmp_path / "empty")
    fails(lra, arguments, tmp_path / "empty", "parquet", dest=tmp_path / "d")


def test_a_copy_without_labels(tmp_path, published, fails):
    published({})
    write_copy(imdb().remove_columns("label"), tmp_path / "copy")
    arguments = text(tmp_path / "d", "--from-dir", tmp_path / "copy")
    fails(lra, arguments, "'label'", "'text'", dest=tmp_path / "d")


def test_the_revision_is_asked_for_and_identifies_the_data(
    tmp_path, published, monkeypatch, fails
):
    asked = []

    def load_dataset(name, config, revision):
        asked.append((name, config, revision))
        return imdb()

    monkeypatch.setattr("datasets.load_dataset", load_dataset)
    published({}, "a" * 40)
    assert lra(text(tmp_path / "d")) == 0
    assert asked == [("somebody/texts", None, "a" * 40)]
    manifest = json.loads((tmp_path / "d/manifest.json").read_text())
    expected = {"hub": "somebody/texts", "revision": "a" * 40}
    assert manifest["settings"]["source"] == expected
    # data of one revision are not taken for another's
    published({}, "b" * 40)
    parts = ["revision", "a" * 40, "b" * 40, "--overwrite"]
    fails(lra, text(tmp_path / "d"), *parts)


def test_a_hub_out_of_reach(tmp_path, published, monkeypatch, fails):
    def load_dataset(*_, **__):
        raise ConnectionError("reset\nby peer")

    monkeypatch.setattr("datasets.load_dataset", load_dataset)
    published({})
    parts = ["somebody/texts", "reset by peer", "--from-dir"]
    fails(lra, text(tmp_path / "d"), *parts, dest=tmp_path / "d")
