"""Data that contradict themselves or their dictionary are refused at the start."""

import contextlib
import json
import shutil
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from fairseq.data import FairseqDataset, NestedDictionaryDataset
from fairseq.data.fasta_dataset import FastaDataset
from fairseq.tasks import FairseqTask, setup_task
from fairseq.tasks.sentence_prediction import SentencePredictionConfig
from omegaconf import OmegaConf

from fairseq_transnormer.data.binary_data import HEADER
from fairseq_transnormer.plugin.data_checks import check_labels, check_training_data
from tests.binary_data import numbered_words, write_binary_data, write_labelled_data
from tests.messages import assert_names, refuses

WORDS = 8
LINES = {"train": ["w0 w1", "w2", "w3 w4 w5"], "valid": ["w6", "w7 w0"]}
TEXTS = {"train": ["w1 w2", "w3", "w4 w5 w6"], "valid": ["w1", "w2"]}


@pytest.fixture
def folder(tmp_path) -> Path:
    return write_binary_data(tmp_path / "data", numbered_words(WORDS), LINES)


def check(*folders: Path, subset="train", dictionary=None) -> None:
    """As a training does at its start."""
    task = SimpleNamespace(source_dictionary=dictionary or numbered_words(WORDS))
    data = ":".join(map(str, folders))
    check_training_data(task, data, subset, subset == "train")


def change(path: Path, dtype, place: int, value: int, offset: int = 0) -> None:
    """Put another number there; the file keeps its size."""
    content = np.memmap(path, np.uint8, "r+", offset)
    item = np.dtype(dtype).itemsize
    content[place * item : (place + 1) * item] = np.array([value], dtype).view(np.uint8)
    content.flush()


def test_folders_of_several_dictionaries_are_refused(folder, tmp_path):
    check(folder, folder)
    other = tmp_path / "other"
    shutil.copytree(folder, other)
    lines = (other / "dict.txt").read_text().splitlines()
    (other / "dict.txt").write_text("\n".join([*lines[1:], lines[0]]) + "\n")
    with refuses(ValueError, other / "dict.txt", "one dictionary"):
        check(folder, other)


def test_a_folder_without_the_split_is_refused(folder, tmp_path):
    """Its epoch would fail, after those of the others."""
    other = tmp_path / "other"
    shutil.copytree(folder, other)
    (other / "train.idx").unlink()
    with refuses(ValueError, other, "train.idx"):
        check(folder, other)
    check(folder, other, subset="valid")


@pytest.mark.parametrize(("place", "line"), [(0, 1), (3, 2), (8, 3)])
def test_an_id_beyond_the_dictionary_is_named(folder, place, line):
    check(folder)
    change(folder / "train.bin", np.uint16, place, 4 + WORDS)
    says = f"token {place}", f"line {line}", "id 12", "0 to 11", folder / "dict.txt"
    with refuses(ValueError, folder / "train.bin", *says):
        check(folder)
    check(folder, subset="valid")


@pytest.mark.parametrize("symbol", ["<s>", "<pad>", "</s>", "<mask>"])
@pytest.mark.parametrize("place", [0, 1, 2, 3, 4])
def test_a_control_token_within_a_line_is_named(folder, place, symbol):
    """Lines "w0 w1 </s>" and "w2 </s>", one token of which is another."""
    dictionary = numbered_words(WORDS)
    dictionary.add_symbol("<mask>")  # as masked_lm does
    check(folder, dictionary=dictionary)
    token = dictionary.index(symbol)
    change(folder / "train.bin", np.uint16, place, token)
    says = f"token {place}", f"line {1 if place < 3 else 2}", token
    # it ends both lines
    ends = symbol == "</s>" and place in (2, 4)
    refused = refuses(ValueError, folder / "train.bin", *says)
    with contextlib.nullcontext() if ends else refused:
        check(folder, dictionary=dictionary)


def test_a_shard_of_a_later_epoch_is_looked_at(folder, tmp_path):
    words = numbered_words(WORDS)
    other = write_binary_data(tmp_path / "b", words, LINES | {"train1": ["w0"]})
    (other / "dict.txt").unlink()  # fairseq reads the first one's
    change(other / "train1.bin", np.uint16, 0, 500)
    with refuses(ValueError, other / "train1.bin", 500, folder / "dict.txt"):
        check(folder, other)


@pytest.mark.parametrize("lines", range(3))
@pytest.mark.parametrize("bit", [0, 4, 31])
def test_a_flipped_bit_in_the_sizes_is_found(folder, lines, bit):
    sizes = np.array([3, 2, 4], "<u4")
    sizes[lines] ^= np.uint32(1 << bit)
    change(folder / "train.idx", "<u4", lines, sizes[lines], HEADER.size)
    # the last line's end is the end of the .bin
    with refuses(ValueError, "train.bin" if lines == 2 and bit < 31 else "train.idx"):
        check(folder)


def test_a_dictionary_that_was_changed_after_its_report_is_refused(folder):
    path = folder / "dict.txt"
    digest = sha256(path.read_bytes()).hexdigest()
    content = {"files": {"dict.txt": {"bytes": 1, "sha256": digest}}}
    (folder / "report.json").write_text(json.dumps(content))
    check(folder)
    path.write_text(path.read_text().replace("w0", "w9"))
    with refuses(ValueError, path, digest):
        check(folder)


def task_of(folder, **settings):
    """sentence_prediction, as a training sets it up."""
    given = {"data": str(folder), "num_classes": 2, "max_positions": 64}
    given |= {"_name": "sentence_prediction", "regression_target": False}
    config = OmegaConf.structured(SentencePredictionConfig)
    OmegaConf.set_struct(config, False)
    return setup_task(OmegaConf.merge(config, given, {"seed": 1}, settings))


def labelled(folder: Path, labels=("no", "yes"), **classes) -> Path:
    rows = {split: ["yes"] * len(texts) for split, texts in TEXTS.items()} | classes
    return write_labelled_data(folder, numbered_words(WORDS), TEXTS, labels, rows)


@pytest.mark.parametrize(("column", "beyond"), [("input0", 13), ("label", 7)])
def test_labelled_texts_have_a_dictionary_for_each_column(tmp_path, column, beyond):
    """Their sizes, with <mask>: 13 and 7."""
    folder = labelled(tmp_path)
    task = task_of(folder)
    check_training_data(task, str(folder), "train")
    path = folder / column / "train.bin"
    change(path, np.uint16, 0, beyond)
    with refuses(ValueError, path, beyond, folder / column / "dict.txt"):
        check_training_data(task, str(folder), "train")


def test_classes_beyond_their_number_are_named(tmp_path):
    folder = labelled(tmp_path, "abc", train=["a", "b", "a"], valid=["a", "c"])
    check_labels(task_of(folder, num_classes=3), ("train", "valid"))
    task = task_of(folder)
    check_labels(task, ["train"])
    file = folder / "label" / "valid.bin"
    with refuses(ValueError, file, "line 2", "'c'", "task.num_classes=2"):
        check_labels(task, ["train", "valid"])


@pytest.mark.parametrize("name", ["en;touch made;#", "$(touch made)", "a b", "`x`"])
def test_names_of_files_are_no_commands(name, tmp_path, monkeypatch):
    """fairseq looks for a FASTA file's sequences by commands of a shell."""
    monkeypatch.chdir(tmp_path)
    Path(f"valid.{name}.fasta").write_text(">one\nAC\n>two\nACG\n")
    with refuses(ValueError, name, "shell"):
        FastaDataset(f"valid.{name}")
    assert not Path("made").exists()


class Lines(FairseqDataset):
    """Of so many tokens each."""

    def __init__(self, *sizes):
        self.sizes = np.array(sizes)

    def __len__(self):
        return len(self.sizes)

    def num_tokens(self, index):
        return self.sizes[index]

    size = num_tokens

    def filter_indices_by_size(self, indices, most):
        kept = indices[self.sizes[indices] <= most]
        return kept, indices[self.sizes[indices] > most].tolist()


@pytest.mark.parametrize("columns", [False, True], ids=["one", "as masked models'"])
def test_the_share_of_tokens_that_no_batch_has_is_told(caplog, columns):
    """Of samples it is a tenth, of tokens more than half or a fifth."""
    lines, indices = Lines(*[10] * 9, 100), np.arange(10)
    if columns:
        sizes = [lines.sizes]
        lines = NestedDictionaryDataset({"tokens": lines}, sizes=sizes)
    filtered = FairseqTask(None).filter_indices_by_size
    with refuses(ValueError, "1 of 10 samples", "52.6%", "50%", "sample_break_mode"):
        filtered(indices, lines, 64, ignore_invalid_inputs=True)
    kept = filtered(indices, Lines(*[10] * 9, 20), 15, ignore_invalid_inputs=True)
    assert kept.tolist() == [*range(9)]
    assert_names(caplog.text, "1 of 10 samples", "18.2% of the tokens")
