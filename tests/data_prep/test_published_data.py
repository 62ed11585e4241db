"""Data sets of the hub: one revision; cut and changed copies are refused."""

import dataclasses
import gzip
import hashlib
import json
import struct

import numpy as np
import pytest
from PIL import Image

from data_prep.folders import cifar10_source
from data_prep.folders.hub_data import HubData
from data_prep.labelled_texts import glue_source
from data_prep.long_range_arena import lra, lra_hub
from data_prep.symbols import digit_pictures, digits
from data_prep.wikitext import wikitext_source

PARQUET = "{}-00000-of-00001.parquet"
# published with the data sets: examples in all, and classes
SIZES = [
    (lra_hub.IMDB, 2, {"train": 25_000, "test": 25_000}),
    (cifar10_source.CIFAR10, 10, {"train": 50_000, "test": 10_000}),
    (digit_pictures.MNIST, 10, {"train": 60_000, "test": 10_000}),
]
LABELS = {"train": [0, 1, 0, 1, 1], "test": [1, 0]}


def texts(labels):
    import datasets

    rows = {"text": [f"text {i}" for i in range(len(labels))], "label": labels}
    return datasets.Dataset.from_dict(rows)


def imdb(**labels):
    """A data set in small, with these labels instead of ``LABELS``."""
    import datasets

    return datasets.DatasetDict(
        {name: texts(each) for name, each in (LABELS | labels).items()}
    )


def write_copy(data, folder, form):
    """The copy in one of the forms; SHA-256 by name of what has the hub's names."""
    if form == "saved":
        data.save_to_disk(str(folder))
        return {}
    (folder / "plain_text").mkdir(parents=True)
    name_of = {"parquet": PARQUET, "renamed": "{}.parquet"}[form]
    for split, rows in data.items():
        rows.to_parquet(str(folder / "plain_text" / name_of.format(split)))
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*-of-*.parquet")
    }


def text(dest, *options):
    return ["text", "--dest", str(dest), *map(str, options)]


@pytest.fixture
def published(monkeypatch):
    """Makes ``imdb()``, with these files, what is published."""

    def publish(files, revision="0" * 40):
        data = HubData(
            "somebody/texts", revision, files, {"train": (2, 3), "test": (1, 1)}
        )
        monkeypatch.setattr(lra_hub, "IMDB", data)

    return publish


@pytest.mark.parametrize(("data", "classes", "sizes"), SIZES)
def test_what_is_published(data, classes, sizes):
    assert {name: sum(counts) for name, counts in data.labels.items()} == sizes
    assert {len(counts) for counts in data.labels.values()} == {classes}
    assert set(data.files) == {PARQUET.format(split) for split in sizes}
    assert {len(bytes.fromhex(each)) for each in data.files.values()} == {32}


def test_revisions_are_commits():
    known = [data for data, _, _ in SIZES]
    known += [glue_source.HUB_DATA, wikitext_source.HUB_DATA]
    assert {len(bytes.fromhex(data.revision)) for data in known} == {20}
    for data in known:
        assert data.identity("a")["revision"] == data.revision
    assert len({data.name for data in known}) == 5


@pytest.mark.parametrize("form", ["saved", "parquet", "renamed"])
def test_a_whole_copy_is_taken(form, tmp_path, published):
    published(write_copy(imdb(), tmp_path / "copy", form))
    assert lra.main(text(tmp_path / "d", "--from-dir", tmp_path / "copy")) == 0


@pytest.mark.parametrize("form", ["saved", "renamed"])
@pytest.mark.parametrize(
    ("labels", "parts"),
    [
        ({"train": [0, 1, 0, 1]}, ["train", "4 examples", "expected 5"]),
        ({"test": [0, 1, 0]}, ["test", "3 examples", "expected 2"]),
        ({"test": [1, 1]}, ["test", "0 examples with label 0", "expected 1"]),
        ({"test": [1, 5]}, ["test", "label 0", "expected 1"]),
    ],
)
def test_a_cut_copy_is_refused(form, labels, parts, tmp_path, published, fails):
    published({})
    write_copy(imdb(**labels), tmp_path / "copy", form)
    arguments = text(tmp_path / "d", "--from-dir", tmp_path / "copy")
    parts = [*parts, "somebody/texts", "--allow-other-sizes"]
    fails(lra.main, arguments, *parts, dest=tmp_path / "d")
    if 5 not in labels.get("test", []):
        assert lra.main([*arguments, "--allow-other-sizes"]) == 0


def test_another_parquet_file_is_refused(tmp_path, published, fails):
    files = write_copy(imdb(), tmp_path / "copy", "parquet")
    published(files | {"test-00000-of-00001.parquet": "5" * 64})
    arguments = text(tmp_path / "d", "--from-dir", tmp_path / "copy")
    name = PARQUET.format("test")
    parts = [name, files[name], "5" * 64, "0" * 40, "--allow-other-sizes"]
    fails(lra.main, arguments, *parts, dest=tmp_path / "d")
    assert lra.main([*arguments, "--allow-other-sizes"]) == 0


@pytest.mark.parametrize("form", ["saved", "renamed"])
def test_a_copy_without_labels(form, tmp_path, published, fails):
    published({})
    data = imdb().remove_columns("label")
    write_copy(data, tmp_path / "copy", form)
    arguments = text(tmp_path / "d", "--from-dir", tmp_path / "copy")
    fails(lra.main, arguments, "'label'", "'text'", dest=tmp_path / "d")


@pytest.mark.parametrize(("data", "number"), [("text", 25_000), ("image", 50_000)])
def test_small_copies_are_not_taken_for_the_benchmarks(data, number, tmp_path, fails):
    import datasets

    pictures = [Image.fromarray(np.zeros((32, 32, 3), np.uint8))] * 2
    columns = {"text": ["a", "b"], "img": pictures, "label": [0, 1]}
    features = {"text": datasets.Value("string"), "img": datasets.Image()}
    features = datasets.Features(**features, label=datasets.Value("int64"))
    rows = datasets.Dataset.from_dict(columns, features)
    saved = datasets.DatasetDict(train=rows, test=rows)
    saved.save_to_disk(str(tmp_path / "copy"))
    arguments = [data, "--dest", tmp_path / "d", "--from-dir", tmp_path / "copy"]
    parts = ["2 examples", f"{number:,}", "--allow-other-sizes"]
    fails(lra.main, arguments, *parts, dest=tmp_path / "d")


def hub(monkeypatch, answers):
    """Stands in for the network: what each attempt to load gives. Asked revisions."""
    asked = []

    def load_dataset(name, revision):
        asked.append(revision)
        answer = answers[len(asked) - 1] if len(asked) <= len(answers) else answers[-1]
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr("datasets.load_dataset", load_dataset)
    # tests of transformers are offline, of which datasets hears when it is imported
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", False)
    return asked


class TransportError(Exception):
    """Named as the error of httpx that all failures of its connections are."""


class ReadError(TransportError):
    pass


class Refused(Exception):
    def __init__(self, status):
        super().__init__(f"status {status}")
        self.response = type("Response", (), {"status_code": status})


def test_the_revision_is_asked_for_and_identifies_the_data(
    tmp_path, published, monkeypatch, fails
):
    asked = hub(monkeypatch, [imdb()])
    published({}, "a" * 40)
    assert lra.main(text(tmp_path / "d")) == 0
    assert asked == ["a" * 40]
    manifest = json.loads((tmp_path / "d/manifest.json").read_text())
    expected = {"hub": "somebody/texts", "revision": "a" * 40}
    assert manifest["settings"]["source"] == expected
    # neither finished nor unfinished data are taken for another revision's
    published({}, "b" * 40)
    parts = ["revision", "a" * 40, "b" * 40, "--overwrite"]
    fails(lra.main, text(tmp_path / "d"), *parts)
    unfinished = tmp_path / "e.partial"
    stages = {"test": {}}
    unfinished.mkdir()
    settings = manifest["settings"]
    state = {"settings": settings, "stages": stages, "files": [], "ready": False}
    state |= {"made_by": "data_prep", "replaces": None}
    (unfinished / ".stages.json").write_text(json.dumps(state))
    fails(lra.main, text(tmp_path / "e"), *parts, "unfinished")


def test_a_cut_copy_of_the_hub_is_refused(tmp_path, published, monkeypatch, fails):
    hub(monkeypatch, [imdb(train=[0, 1])])
    published({})
    parts = ["somebody/texts", "train", "2 examples", "expected 5"]
    fails(lra.main, text(tmp_path / "d"), *parts, dest=tmp_path / "d")


def test_a_flaky_network_is_tried_again(tmp_path, published, monkeypatch, waits):
    published({})
    answers = [ConnectionResetError("reset"), ReadError("cut"), Refused(503), imdb()]
    asked = hub(monkeypatch, answers)
    assert lra.main(text(tmp_path / "d")) == 0
    assert len(asked) == 4 and waits == [1, 2, 4]


@pytest.mark.parametrize(
    ("error", "attempts"),
    [
        (TimeoutError("too long"), 4),
        (Refused(404), 1),
        (ValueError("no such configuration"), 1),
    ],
)
def test_what_does_not_pass_ends_in_a_line(
    error, attempts, tmp_path, published, monkeypatch, waits, fails
):
    published({})
    asked = hub(monkeypatch, [error])
    parts = ["somebody/texts", str(error), "--from-dir", "save_to_disk"]
    fails(lra.main, text(tmp_path / "d"), *parts, dest=tmp_path / "d")
    assert len(asked) == attempts


def test_nothing_is_waited_for_offline(tmp_path, published, monkeypatch, waits, fails):
    published({})
    asked = hub(monkeypatch, [ConnectionError("offline")])
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", True)
    fails(lra.main, text(tmp_path / "d"), "offline", dest=tmp_path / "d")
    assert len(asked) == 1


def idx(count):
    pixels = np.random.default_rng(count).integers(0, 256, (count, 28, 28), np.uint8)
    return struct.pack(">4i", 2051, count, 28, 28) + pixels.tobytes()


@pytest.fixture
def mnist(monkeypatch):
    """Makes 30 and 4 pictures MNIST's own; the contents of the files."""
    contents = {"train": idx(30), "test": idx(4)}
    labels = {"train": (3,) * 10, "test": (4,)}
    known = dataclasses.replace(digit_pictures.MNIST, labels=labels)
    monkeypatch.setattr(digit_pictures, "MNIST", known)
    sums = {name: hashlib.sha256(each).hexdigest() for name, each in contents.items()}
    monkeypatch.setattr(digit_pictures, "ORIGINAL_SHA256", sums)
    return contents


@pytest.mark.parametrize("compressed", [True, False])
def test_mnists_own_files(compressed, mnist, tmp_path, fails):
    def write(contents):
        for name, stem in digit_pictures.ORIGINAL_FILES.items():
            content = contents[name]
            path = tmp_path / (f"{stem}.gz" if compressed else stem)
            path.write_bytes(gzip.compress(content) if compressed else content)
        return path

    def arguments(dest):
        given = ["--source", "mnist", "--from-dir", tmp_path, "--dest", tmp_path / dest]
        return list(map(str, given))

    write(mnist)
    assert digits.main(arguments("whole")) == 0
    path = write(mnist | {"test": idx(3)})
    parts = [path, "3 pictures", "expected 4", "--allow-other-sizes"]
    fails(digits.main, arguments("d"), *parts, dest=tmp_path / "d")
    changed = mnist["test"][:-1] + bytes([mnist["test"][-1] ^ 1])
    path = write(mnist | {"test": changed})
    parts = [path, hashlib.sha256(changed).hexdigest(), "--allow-other-sizes"]
    parts += [hashlib.sha256(mnist["test"]).hexdigest()]
    fails(digits.main, arguments("d"), *parts, dest=tmp_path / "d")
    assert digits.main([*arguments("changed"), "--allow-other-sizes"]) == 0


def test_a_saved_copy_of_mnist(mnist, tmp_path, fails):
    import datasets

    pictures = [Image.fromarray(np.zeros((28, 28), np.uint8))] * 30
    features = {"image": datasets.Image(), "label": datasets.Value("int64")}
    columns = {"image": pictures, "label": [*range(10)] * 3}
    rows = datasets.Dataset.from_dict(columns, datasets.Features(**features))
    folder, dest = tmp_path / "copy", tmp_path / "d"
    test = rows.filter(lambda row: row["label"] == 0)
    datasets.DatasetDict(train=rows, test=test).save_to_disk(str(folder))
    arguments = ["--source", "mnist", "--from-dir", folder, "--dest", dest]
    parts = ["test", "3 examples", "expected 4", "ylecun/mnist"]
    fails(digits.main, arguments, *parts, dest=dest)
