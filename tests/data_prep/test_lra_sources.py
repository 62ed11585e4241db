"""The original files of the Long-Range Arena and hub copies, with their faults."""

import shutil

import numpy as np
import pytest
from PIL import Image

from fairseq_transnormer.data import SPLITS
from fairseq_transnormer.data.labelled_sequences import LabelledSequences

from .commands import lra
from .small_corpora import expression

LISTOPS = {
    "train": ["( ( ( [MAX 2 ) 9 ) ] )\t9", "( ( ( [SM 7 ) 8 ) ] )\t5.0"],
    "val": ["[MED 1 [MIN 4 3 ] ]\t2"],
    "test": ["7\t7"],
}
AAN = {
    "train": [b'1.0\tA\tB\tfirst "text\tse\xffcond', b"0.0\tC\tD\tx\ty\r"],
    "eval": ["1\tE\tF\tä\tz".encode()],
    "test": [b"0\tG\tH\t" + b"g" * 5000 + b"\t\0h"],
}


def run(data, dest, *arguments):
    assert lra([data, "--dest", str(dest), *map(str, arguments)]) == 0
    return {split: LabelledSequences(dest, split) for split in SPLITS}


@pytest.fixture
def listops_release(tmp_path):
    folder = tmp_path / "lra_release" / "listops-1000"
    folder.mkdir(parents=True)
    for split, lines in LISTOPS.items():
        text = "\n".join(["Source\tTarget", *lines]) + "\n"
        (folder / f"basic_{split}.tsv").write_text(text)
    return folder


def test_listops_of_the_release(listops_release, tmp_path):
    made = run("listops", tmp_path / "data", "--from-dir", listops_release.parents[1])
    rows = [(expression(row.tokens[0]), row.label) for row in iter_of(made["train"])]
    assert rows == [("[MAX 2 9 ]", 9), ("[SM 7 8 ]", 5)]
    assert made["test"][0].lengths == (1,)
    assert made["valid"].classes == 10 and made["valid"].vocabulary == 15


def iter_of(data):
    return [data[i] for i in range(len(data))]


@pytest.mark.parametrize(
    ("line", "parts"),
    [
        ("[MAX 1 2 ]\t10", ["label '10'", "0 to 9"]),
        ("[MAX 1 2 ]\tone", ["label 'one'", "0 to 9"]),
        ("[MAX 1 2 ]", ["1 columns", 2]),
        ("[FOO 2 ]\t2", ["'[FOO'", "symbol"]),
        ("\t2", ["brackets"]),
        ("[MAX 2 3\t3", ["brackets"]),
        ("[MAX 2 ] [MIN 3 ]\t2", ["brackets"]),
    ],
)
def test_listops_with_a_wrong_line(line, parts, listops_release, tmp_path, fails):
    path = listops_release / "basic_val.tsv"
    path.write_text(f"Source\tTarget\n[MIN 1 2 ]\t1\n{line}\n")
    arguments = ["listops", "--dest", tmp_path / "data", "--from-dir", listops_release]
    fails(lra, arguments, path, "line 3", *parts, dest=tmp_path / "data")


def test_a_missing_file_is_named(listops_release, tmp_path, fails):
    (listops_release / "basic_test.tsv").unlink()
    arguments = ["listops", "--dest", tmp_path / "data", "--from-dir"]
    missing = listops_release / "basic_test.tsv"
    fails(lra, [*arguments, listops_release], missing)
    no, empty = tmp_path / "no", tmp_path / "empty"
    fails(lra, [*arguments, no], "--from-dir", no)
    empty.mkdir()
    fails(lra, [*arguments, empty], "--from-dir", empty, "basic_train.tsv")


def write_pairs(folder, lines):
    for split, each in lines.items():
        path = folder / f"new_aan_pairs.{split}.tsv"
        path.write_bytes(b"".join(line + b"\n" for line in each))


def test_retrieval_reads_bytes(tmp_path):
    folder = tmp_path / "tsv_data"
    folder.mkdir()
    write_pairs(folder, AAN)
    made = run("retrieval", tmp_path / "data", "--from-dir", tmp_path)
    first, second = made["train"][0].tokens
    assert bytes(first.tolist()) == b'first "text'
    assert bytes(second.tolist()) == b"se\xffcond"
    assert [row.label for row in iter_of(made["train"])] == [1, 0]
    assert made["valid"][0].lengths == (2, 1)  # two bytes, one character
    assert made["test"][0].lengths == (4000, 2)
    assert made["test"][0].tokens[1].tolist() == [0, ord("h")]


def test_an_empty_text(tmp_path, fails):
    write_pairs(tmp_path, AAN | {"test": [*AAN["test"], b"1.0\ta\tb\t\ttwo"]})
    arguments = ["retrieval", "--dest", tmp_path / "d", "--from-dir", tmp_path]
    fails(lra, arguments, "test", "example 2", "empty", dest=tmp_path / "d")


@pytest.fixture
def pathfinder_release(tmp_path):
    release = tmp_path / "lra_release"
    folder = release / "pathfinder32" / "curv_contour_length_14"
    (folder / "metadata").mkdir(parents=True)
    for size in (64, 128, 256):  # 128 and 256 come before 32, by name
        other = release / f"pathfinder{size}" / folder.name
        for name in ("imgs/0", "metadata"):
            (other / name).mkdir(parents=True)
        Image.new("L", (size, size)).save(other / "imgs" / "0" / "sample_0.png")
        line = "imgs/0 sample_0.png 0 0 1.0 14 4 2 0.5 1 1\n"
        (other / "metadata" / "0.npy").write_text(line)
    for batch in (0, 1):
        (folder / "imgs" / str(batch)).mkdir(parents=True)
        lines = []
        for i in range(10):
            pixels = np.full((32, 32), 10 * batch + i, np.uint8)
            name = f"sample_{i}.png"
            Image.fromarray(pixels).save(folder / "imgs" / str(batch) / name)
            lines.append(f"imgs/{batch} {name} {i} {i % 2} 1.0 14 4 2 0.5 1 1\n")
        (folder / "metadata" / f"{batch}.npy").write_text("".join(lines))
    return folder


@pytest.mark.parametrize("above", [2, 3])
def test_pathfinder_of_the_release(above, pathfinder_release, tmp_path):
    place = [pathfinder_release, *pathfinder_release.parents][above]
    made = run("pathfinder", tmp_path / "data", "--from-dir", place)
    assert [len(made[split]) for split in SPLITS] == [16, 2, 2]
    rows = [row for data in made.values() for row in iter_of(data)]
    greys = [int(row.tokens[0][0]) for row in rows]
    assert sorted(greys) == list(range(20))
    assert all(row.label == grey % 2 for row, grey in zip(rows, greys, strict=True))
    assert {row.lengths for row in rows} == {(1024,)}


def test_a_picture_that_is_listed_again_is_in_one_split(pathfinder_release, tmp_path):
    lists = pathfinder_release / "metadata"
    shutil.copy(lists / "1.npy", lists / "1 (copy).npy")
    made = run("pathfinder", tmp_path / "data", "--from-dir", tmp_path)
    assert [len(made[split]) for split in SPLITS] == [16, 2, 2]
    greys = [int(row.tokens[0][0]) for data in made.values() for row in iter_of(data)]
    assert sorted(greys) == list(range(20))


def test_pathfinder_of_other_sizes_alone(pathfinder_release, tmp_path, fails):
    shutil.rmtree(pathfinder_release.parent)
    arguments = ["pathfinder", "--dest", tmp_path / "d", "--from-dir", tmp_path]
    parts = (tmp_path, "pathfinder32/curv_contour_length_14")
    fails(lra, arguments, *parts, dest=tmp_path / "d")


@pytest.mark.parametrize("fault", ["missing", "truncated", "label", "two labels"])
def test_pathfinder_with_a_fault(fault, pathfinder_release, tmp_path, fails):
    picture = pathfinder_release / "imgs" / "1" / "sample_3.png"
    parts = [picture]
    if fault == "missing":
        picture.unlink()
    elif fault == "truncated":
        picture.write_bytes(picture.read_bytes()[:40])
    elif fault == "two labels":
        path = pathfinder_release / "metadata" / "2.npy"
        path.write_text("imgs/1 sample_3.png 3 0 1.0\n")
        parts = [path, "line 1", picture.name, "another label"]
    else:
        path = pathfinder_release / "metadata" / "1.npy"
        path.write_text(
            path.read_text().replace("sample_3.png 3 1", "sample_3.png 3 2")
        )
        parts = [path, "line 4", "label '2'", "0 to 1"]
    arguments = ["pathfinder", "--dest", tmp_path / "d", "--from-dir", tmp_path]
    fails(lra, arguments, *parts, dest=tmp_path / "d")


def test_texts_of_a_local_copy(tmp_path, fails):
    import datasets

    rows = datasets.Dataset.from_dict({"text": ["é" * 3000, "b"], "label": [1, 0]})
    (tmp_path / "imdb").mkdir()
    for split in ("train", "test", "unsupervised"):
        rows.to_parquet(str(tmp_path / "imdb" / f"{split}.parquet"))
    options = ["--from-dir", tmp_path / "imdb", "--allow-other-sizes"]
    made = run("text", tmp_path / "data", *options)
    assert [row.lengths for row in iter_of(made["train"])] == [(4000,), (1,)]
    assert [row.label for row in iter_of(made["valid"])] == [1, 0]
    for text, label, named in ("a", -1, "label -1"), ("a", 2, "2"), (None, 0, "empty"):
        rows = datasets.Dataset.from_dict({"text": ["a", text], "label": [0, label]})
        rows.to_parquet(str(tmp_path / "imdb/test.parquet"))
        words, dest = ["text", "--dest", tmp_path / "d", *options], tmp_path / "d"
        fails(lra, words, "example 2", named, dest=dest)
