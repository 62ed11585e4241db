"""Folders of labelled sequences: the same from any number of workers, and checked."""

import shutil
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader

from data_prep.folders import parallel
from data_prep.folders.pictures import write_sheet
from data_prep.long_range_arena.synthetic_lra import LETTERS
from fairseq_transnormer.data import SPLITS
from fairseq_transnormer.data.fingerprints import file_sha256
from fairseq_transnormer.data.labelled_sequences import (
    LabelledSequences,
    collate,
    read_manifest,
)
from tests.messages import refuses

from .commands import contents, lra, verify
from .commands import synthetic_lra as main

SMALL = ["--max-depth", "4", "--shortest", "10", "--longest", "60"]
COUNTS = ["--counts", "2100", "20", "30"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    dest = tmp_path_factory.mktemp("lra") / "listops"
    assert lra(["listops", "--dest", str(dest), *SMALL, *COUNTS, "--workers", "1"]) == 0
    return dest


def test_the_number_of_workers_does_not_matter_and_the_seed_does(
    folder, tmp_path, monkeypatch
):
    """Threads are enough: test_encoders has processes, which import for seconds."""

    def threads(workers, mp_context, **options):
        return ThreadPoolExecutor(workers, **options)

    monkeypatch.setattr(parallel, "ProcessPoolExecutor", threads)
    arguments = ["listops", *SMALL, *COUNTS, "--workers", "2", "--dest"]
    assert lra([*arguments, str(tmp_path / "two")]) == 0
    assert contents(tmp_path / "two") == contents(folder)
    made = []
    for seed in ("1", "2"):
        words = ["listops", *SMALL, "--counts", "2", "9", "2", "--seed", seed]
        assert lra([*words, "--dest", str(tmp_path / f"seed {seed}")]) == 0
        made.append((tmp_path / f"seed {seed}/valid.tokens.0.bin").read_bytes())
    assert made[0] != made[1]


def test_manifest_has_counts_and_checksums(folder):
    manifest = read_manifest(folder)
    assert [manifest["splits"][s]["examples"] for s in SPLITS] == [2100, 20, 30]
    for split in SPLITS:
        data, counts = LabelledSequences(folder, split), manifest["splits"][split]
        assert counts["shortest"] == data.lengths.min() > 10
        assert counts["longest"] == data.lengths.max() < 60
        assert counts["tokens"] == data.lengths.sum()
        labels = [data[i].label for i in range(len(data))]
        assert counts["labels"] == np.bincount(labels, minlength=10).tolist()
    for name, record in manifest["files"].items():
        assert record["sha256"] == file_sha256(folder / name)


def test_no_example_is_in_two_splits_or_twice(folder):
    seen = set()
    for split in SPLITS:
        data = LabelledSequences(folder, split)
        long = [data[i].tokens[0] for i in np.flatnonzero(data.lengths[:, 0] > 25)]
        rows = {bytes(row.tolist()) for row in long}
        assert len(rows) == len(long) and not rows & seen
        seen |= rows


def test_a_loader_of_plain_pytorch_pads_by_length(folder):
    data = LabelledSequences(folder, "valid")
    batch = next(iter(DataLoader(data, batch_size=8, collate_fn=collate)))
    (tokens,), (lengths,) = batch.tokens, batch.lengths
    assert tokens.dtype == lengths.dtype == batch.labels.dtype == torch.int64
    assert tokens.shape == (8, lengths.max())
    for i in range(8):
        example = data[i]
        assert torch.equal(tokens[i, : lengths[i]], example.tokens[0])
        assert not tokens[i, lengths[i] :].any()
        assert batch.labels[i] == example.label
    # 0 is a digit, not a pad
    assert (tokens[0, : lengths[0]] == 0).any() or (data[1].tokens[0] == 0).any()
    assert data[-1].tokens[0].equal(data[len(data) - 1].tokens[0])
    with pytest.raises(IndexError):
        data[len(data)]


def test_a_truncated_file_is_found(folder, tmp_path, fails, capsys):
    assert verify([folder]) == 0
    assert "train: 2,100 examples" in capsys.readouterr().out
    copy = shutil.copytree(folder, tmp_path / "copy")
    path = copy / "test.tokens.0.bin"
    path.write_bytes(path.read_bytes()[:-1])
    fails(verify, [copy], path, "sha256", "manifest.json")
    with refuses(ValueError, path, "size"):
        LabelledSequences(copy, "test")


def test_what_is_no_such_folder(folder, tmp_path):
    with refuses(OSError, tmp_path / "manifest.json"):
        LabelledSequences(tmp_path, "train")
    with refuses(OSError, folder, "dev.labels.npy"):
        LabelledSequences(folder, "dev")


def test_a_finished_folder_is_kept(folder, fails, capsys):
    arguments = ["listops", "--dest", str(folder), *SMALL, *COUNTS]
    assert lra([*arguments, "--workers", "1"]) == 0
    assert "already complete" in capsys.readouterr().out
    fails(lra, [*arguments, "--seed", "3"], folder, "seed", 1, 3, "--overwrite")


def test_the_end_of_an_array_is_not_lost_on_a_full_disk(tmp_path, full_disk):
    """numpy's own writer has no error then."""
    words = ["--shortest", "3", "--longest", "7", "--counts", "500", "50", "50"]
    arguments = ["listops", "--dest", str(tmp_path / "new"), *words, "--workers", "1"]
    with full_disk(4096):
        assert lra(arguments) == 2
    assert not (tmp_path / "new").exists()


def test_pathfinder_with_a_sheet_of_pictures(tmp_path, full_disk):
    dest, sheet = tmp_path / "pathfinder", tmp_path / "sheet.png"
    counts = ["--counts", "24", "2", "2", "--workers", "1"]
    arguments = ["pathfinder", "--dest", str(dest), "--pictures", str(sheet), *counts]
    assert lra(arguments) == 0
    assert np.asarray(Image.open(sheet)).shape == (3 * 104, 8 * 104)
    before = sheet.read_bytes()
    with full_disk(100), pytest.raises(OSError):
        write_sheet(np.zeros((30, 8, 8), np.uint8), np.arange(30) % 2, sheet, True)
    assert sheet.read_bytes() == before
    data = LabelledSequences(dest, "train")
    assert (data.lengths == 1024).all() and (data.vocabulary, data.classes) == (256, 2)


def examples(folder, split="valid"):
    found = LabelledSequences(folder, split)
    return [found[i] for i in range(len(found))]


def most_frequent(tokens):
    return np.bincount(tokens.numpy(), minlength=256).argmax()


def test_labels_follow_the_rules(tmp_path):
    assert main(["--dest", str(tmp_path), "--counts", "4", "200", "4"]) == 0
    for example in examples(tmp_path / "text"):
        assert most_frequent(example.tokens[0]) == LETTERS[example.label]
    for example in examples(tmp_path / "retrieval"):
        first, second = map(most_frequent, example.tokens)
        assert (first == second) == bool(example.label)
    pictures = examples(tmp_path / "image")
    right = [p.tokens[0].float().mean() // 25.6 == p.label for p in pictures]
    assert np.mean(right) > 0.9
    for name in ("text", "image", "retrieval"):
        assert verify([str(tmp_path / name)]) == 0
        labels = [each.label for each in examples(tmp_path / name)]
        assert np.bincount(labels).min() > 5


def test_the_seed_is_all_that_the_data_depend_on(tmp_path):
    for folder, seed in (("a", "1"), ("b", "1"), ("c", "2")):
        counts = ["--counts", "9", "2", "2", "--longest", "99"]
        assert main(["--dest", str(tmp_path / folder), "--seed", seed, *counts]) == 0
    name = "text/train.tokens.0.bin"
    a, b, c = ((tmp_path / folder / name).read_bytes() for folder in "abc")
    assert a == b != c
