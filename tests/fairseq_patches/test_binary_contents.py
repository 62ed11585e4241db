"""Data that contradict themselves or their dictionary are refused at the start."""

import contextlib
import json
import shutil
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
import torch
from fairseq.data import Dictionary, data_utils, indexed_dataset
from fairseq.data.fasta_dataset import FastaDataset
from fairseq.tasks import setup_task
from fairseq_cli import train
from omegaconf import OmegaConf

from fairseq_transnormer.data import binary_data
from fairseq_transnormer.data.binary_data import HEADER, BinaryData
from fairseq_transnormer.fairseq_patches.binary_data import (
    check_prefix,
    check_shards,
    check_token_ids,
)
from tests.binary_data import numbered_words, write_binary_data, write_labelled_data
from tests.messages import assert_names, refuses

WORDS = 8


def words(count=WORDS) -> Dictionary:
    return numbered_words(count)


def write(folder: Path, lines=(3, 1, 4, 1, 5), dtype=np.int32, split="train") -> str:
    """A split of so many tokens a line, all within the dictionary; its prefix."""
    folder.mkdir(parents=True, exist_ok=True)
    prefix = str(folder / split)
    builder = indexed_dataset.MMapIndexedDatasetBuilder(f"{prefix}.bin", dtype)
    for i, count in enumerate(lines):
        builder.add_item(4 + torch.arange(i, i + count) % WORDS)
    builder.finalize(f"{prefix}.idx")
    return prefix


def change(path: Path, dtype, place: int, value: int, offset: int = 0) -> None:
    """Put another number there; the file keeps its size, but is a later one."""
    content = np.memmap(path, np.uint8, "r+", offset)
    item = np.dtype(dtype).itemsize
    content[place * item : (place + 1) * item] = np.array([value], dtype).view(np.uint8)
    content.flush()
    del content
    # within one tick of the file system's clock
    path.touch()


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.int32, np.int64])
@pytest.mark.parametrize(("place", "line"), [(0, 1), (3, 2), (8, 4), (13, 5)])
def test_an_id_beyond_the_dictionary_is_named(tmp_path, dtype, place, line):
    prefix, dictionary = write(tmp_path, dtype=dtype), words()
    check_token_ids(prefix, dictionary)
    dictionary.save(str(tmp_path / "dict.txt"))
    dictionary = Dictionary.load(str(tmp_path / "dict.txt"))
    change(Path(f"{prefix}.bin"), dtype, place, 4 + WORDS)
    with refuses(ValueError, Path(f"{prefix}.bin"), tmp_path / "dict.txt") as caught:
        check_token_ids(prefix, dictionary)
    assert_names(caught, f"token {place}", f"line {line}", "id 12", "0 to 11")


@pytest.mark.parametrize("symbol", ["<s>", "<pad>", "</s>", "<mask>"])
@pytest.mark.parametrize("place", [0, 1, 2, 3, 4])
def test_a_control_token_within_a_line_is_named(tmp_path, place, symbol):
    """Lines "w0 w1 </s>" and "w2 </s>", one token of which is another."""
    dictionary = words()
    lines = {"train": ["w0 w1", "w2"]}
    prefix = str(write_binary_data(tmp_path, dictionary, lines) / "train")
    check_token_ids(prefix, dictionary)
    dictionary.add_symbol("<mask>")  # as masked_lm does
    check_token_ids(prefix, dictionary)
    token = dictionary.index(symbol)
    change(Path(f"{prefix}.bin"), np.uint16, place, token)
    line = 1 if place < 3 else 2
    says = f"{prefix}.bin", f"token {place}", f"line {line}", token
    # it ends both lines
    ends = symbol == "</s>" and place in (2, 4)
    with contextlib.nullcontext() if ends else refuses(ValueError, *says):
        check_token_ids(prefix, dictionary)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_a_negative_id_is_named(tmp_path, dtype):
    prefix = write(tmp_path, dtype=dtype)
    change(Path(f"{prefix}.bin"), dtype, 8, -7)
    with refuses(ValueError, Path(f"{prefix}.bin"), "token 8", -7, "0 to 11"):
        check_token_ids(prefix, words())


def test_ids_are_looked_at_in_parts(tmp_path, monkeypatch):
    monkeypatch.setattr(binary_data, "IDS_AT_ONCE", 3)
    prefix = write(tmp_path)
    check_prefix(prefix)
    check_token_ids(prefix, words())
    change(Path(f"{prefix}.bin"), np.int32, 13, 99)
    with refuses(ValueError, "token 13", "line 5", 99):
        check_token_ids(prefix, words())
    prefix = write(tmp_path / "index")
    change(Path(f"{prefix}.idx"), "<i8", 4, 8, HEADER.size + 4 * 5)
    with refuses(ValueError, Path(f"{prefix}.idx"), "line 5"):
        check_prefix(prefix)


@pytest.mark.parametrize("lines", range(5))
@pytest.mark.parametrize("bit", [0, 4, 31])
def test_a_flipped_bit_in_the_sizes_is_found(tmp_path, lines, bit):
    prefix = write(tmp_path)
    check_prefix(prefix)
    index = Path(f"{prefix}.idx")
    sizes = np.array([3, 1, 4, 1, 5], "<u4")
    sizes[lines] ^= np.uint32(1 << bit)
    change(index, "<u4", lines, sizes[lines], HEADER.size)
    # the last line's end is the end of the .bin
    with refuses(ValueError, "train.bin" if lines == 4 and bit < 31 else "train.idx"):
        check_prefix(prefix)


def test_swapped_pointers_are_found(tmp_path):
    prefix = write(tmp_path)
    index = Path(f"{prefix}.idx")
    at = HEADER.size + 4 * 5
    first, second = 3 * 4, (3 + 1) * 4
    change(index, "<i8", 1, second, at)
    change(index, "<i8", 2, first, at)
    with refuses(ValueError, index, "line 2", second, first):
        check_prefix(prefix)
    # as fairseq opens it
    with refuses(ValueError, index):
        indexed_dataset.MMapIndexedDataset(prefix)


def test_lines_without_tokens_are_let_through(tmp_path):
    check_prefix(write(tmp_path, lines=(2, 0, 3)))


def test_a_file_that_is_written_again_is_looked_at_again(tmp_path):
    prefix = write(tmp_path)
    check_token_ids(prefix, words())
    with refuses(ValueError, Path(f"{prefix}.bin")):
        check_token_ids(prefix, words(2))
    write(tmp_path, lines=(1, 1))
    check_token_ids(prefix, words(2))


def test_files_of_other_formats_are_left_to_fairseq(tmp_path):
    for name in ("train.idx", "train.bin"):
        (tmp_path / name).write_bytes(
            b"TNTIDX\x00\x00 of long ago, longer than a header"
        )
    check_prefix(str(tmp_path / "train"))
    check_token_ids(str(tmp_path / "train"), words())


@pytest.fixture(scope="module")
def configuration(trained):
    """The configuration of a run of one update more."""
    cfg = OmegaConf.create(torch.load(trained, weights_only=True)["cfg"])
    cfg.optimization.max_update, cfg.dataset.disable_validation = 1, False
    return cfg


def start(configuration, folder, **settings) -> None:
    cfg = configuration.copy()
    cfg.task.data, cfg.checkpoint.save_dir = str(folder), f"{folder}-checkpoints"
    for name, value in settings.items():
        OmegaConf.update(cfg, name, value)
    train.main(cfg)


@pytest.mark.parametrize("split", ["train", "valid"])
def test_training_does_not_begin_with_such_an_id(configuration, data, tmp_path, split):
    folder = tmp_path / "data"
    shutil.copytree(data, folder)
    path = folder / f"{split}.bin"
    last = path.stat().st_size // 2 - 1
    change(path, np.uint16, last, 64)
    with refuses(ValueError, path, f"token {last}", 64, "0 to 63", folder / "dict.txt"):
        start(configuration, folder)
    assert not list(tmp_path.glob("data-checkpoints/*.pt"))


def test_nor_with_one_in_a_shard_of_a_later_epoch(configuration, data, tmp_path):
    folders = [tmp_path / name for name in ("a", "b", "c")]
    for folder in folders:
        shutil.copytree(data, folder)
    (folders[2] / "dict.txt").unlink()  # fairseq reads the first one's
    change(folders[2] / "train.bin", np.uint16, 5, 500)
    with refuses(ValueError, folders[2] / "train.bin", 500, folders[0] / "dict.txt"):
        start(configuration, ":".join(map(str, folders)))


@pytest.mark.parametrize("kept", [0, 3, 59])
def test_nor_with_a_dictionary_that_was_cut(configuration, data, tmp_path, kept):
    folder = tmp_path / "data"
    shutil.copytree(data, folder)
    lines = (data / "dict.txt").read_text().splitlines(keepends=True)
    (folder / "dict.txt").write_text("".join(lines[:kept]))
    with refuses(ValueError, folder / "dict.txt", f"{4 + kept} symbols"):
        start(configuration, folder)


@pytest.mark.parametrize("command", ["eval_lm", "validate"])
def test_evaluation_refuses_such_an_id(fairseq_tool, data, trained, tmp_path, command):
    folder = tmp_path / "data"
    shutil.copytree(data, folder)
    change(folder / "valid.bin", np.uint16, 40, 64)
    # fmt: off
    arguments = [folder, "--path", trained, "--batch-size", 4, "--cpu",
                 "--num-workers", 0, "--task", "language_modeling"]
    # fmt: on
    if command == "eval_lm":
        arguments += ["--gen-subset", "valid"]
    with refuses(ValueError, folder / "valid.bin", "token 40", 64, "0 to 63"):
        fairseq_tool(command, *arguments)


def labelled(folder: Path) -> Path:
    lines = {"train": ["w0 w1", "w2"], "valid": ["w3", "w1"]}
    classes = {"train": ["no", "yes"], "valid": ["yes", "no"]}
    return write_labelled_data(folder, words(), lines, ("no", "yes"), classes)


@pytest.mark.parametrize(("column", "beyond"), [("input0", 13), ("label", 7)])
def test_labelled_texts_have_a_dictionary_for_each_column(tmp_path, column, beyond):
    """Their sizes, with <mask>: 13 and 7."""
    folder = labelled(tmp_path / "data")
    settings = {"_name": "sentence_prediction", "data": str(folder), "num_classes": 2}
    settings |= {"regression_target": False, "classification_head_name": "head"}
    task = setup_task(OmegaConf.create(settings | {"seed": 1}))
    task.load_dataset("train")
    check_shards(task, str(folder), "train")
    path = folder / column / "train.bin"
    change(path, np.uint16, 0, beyond)
    with refuses(ValueError, path, beyond, folder / column / "dict.txt"):
        task.load_dataset("train")
    with refuses(ValueError, path, beyond, folder / column / "dict.txt"):
        check_shards(task, str(folder), "train")


def test_a_dictionary_that_was_changed_after_its_report_is_refused(tmp_path):
    folder = labelled(tmp_path / "data")
    plain = tmp_path / "plain"
    write(plain)
    words().save(str(plain / "dict.txt"))

    def load(path):
        dictionary = Dictionary.load(str(path))
        prefix = str(path.with_name("train"))
        return data_utils.load_indexed_dataset(prefix, dictionary, "mmap")

    for report, name in ((plain, "dict.txt"), (folder, "input0/dict.txt")):
        path = report / name
        digest = sha256(path.read_bytes()).hexdigest()
        content = {"files": {name: {"bytes": 1, "sha256": digest}}}
        (report / "report.json").write_text(json.dumps(content))
        assert len(load(path))
        path.write_text(path.read_text().replace("w0", "w9"))
        with refuses(ValueError, path, digest):
            load(path)


def test_a_second_look_costs_nothing(tmp_path, monkeypatch):
    """A split that is opened again, as in each epoch, is not read again."""
    write(tmp_path, lines=[20] * 50)
    dictionary, looks, ids = words(), [], BinaryData.ids
    monkeypatch.setattr(BinaryData, "ids", lambda data: looks.append(0) or ids(data))
    for _ in range(3):
        data_utils.load_indexed_dataset(str(tmp_path / "train"), dictionary, "mmap")
    assert len(looks) == 1


@pytest.mark.parametrize("kind", ["bin", "idx"])
def test_a_truncated_split_is_refused_when_it_is_opened(tmp_path, kind):
    """Splits other than train's are looked at then alone."""
    prefix = write(tmp_path, split="valid")
    path = Path(f"{prefix}.{kind}")
    size = path.stat().st_size
    path.write_bytes(path.read_bytes()[:-4])
    with refuses(ValueError, path, size - 4, size):
        data_utils.load_indexed_dataset(prefix, None, "mmap")


@pytest.mark.parametrize("name", ["en;touch made;#", "$(touch made)", "a b", "`x`"])
def test_names_of_files_are_no_commands(name, tmp_path, monkeypatch):
    """fairseq looks for a FASTA file's sequences by commands of a shell."""
    monkeypatch.chdir(tmp_path)
    Path(f"valid.{name}.fasta").write_text(">one\nAC\n>two\nACG\n")
    with refuses(ValueError, name, "shell"):
        FastaDataset(f"valid.{name}")
    assert not Path("made").exists()
