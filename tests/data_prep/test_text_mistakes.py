"""Mistakes in the user's own text and in the options: one message, nothing made."""

import numpy as np
import pytest

from data_prep.own_text import text

from .binary_reading import read_ids

PIECES = ["--tokenizer", "sentencepiece"]
WORDS = ["--tokenizer", "word"]


def of(paths):
    """The options that name the splits' files."""
    return [part for split, path in paths.items() for part in (f"--{split}", path)]


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        (None, ["--valid", "no such file"]),
        (b"", ["valid", "empty"]),
        (b"\n \n", ["valid", "empty"]),
        (b"caf\xe9\n", ["0xe9 at offset 3", "line 1"]),
        (b"x\n" * 600_000 + b"\xe2\x82", ["0xe2 at offset 1200000", "line 600001"]),
    ],
    ids=["missing", "empty", "blank", "latin1", "cut in a character"],
)
def test_bad_files(tmp_path, text_files, fails, content, parts):
    if content is None:
        text_files["valid"].unlink()
    else:
        text_files["valid"].write_bytes(content)
    dest = tmp_path / "bin"
    arguments = ["--dest", dest, *WORDS, *of(text_files)]
    fails(text.main, arguments, text_files["valid"], *parts, dest=dest)
    assert not (tmp_path / "bin.partial").exists()


def test_a_file_given_twice(tmp_path, text_files, fails):
    dest, train = tmp_path / "bin", text_files["train"]
    again = tmp_path / "link.txt"
    again.symlink_to(train)
    arguments = ["--dest", dest, *WORDS, *of(text_files), "--train", again]
    fails(text.main, arguments, f"--train {train}", "once", dest=dest)


def test_characters_at_the_edge_of_reading_are_good(tmp_path, text_files):
    text_files["valid"].write_bytes(b"x" * ((1 << 20) - 1) + "é y\n".encode())
    arguments = ["--dest", str(tmp_path / "bin"), *WORDS, *map(str, of(text_files))]
    assert text.main(arguments) == 0


@pytest.mark.parametrize("word", ["<s>", "<pad>", "</s>", "<mask>"])
@pytest.mark.parametrize("tokenizer", ["word", "plain", "own"])
def test_a_word_that_is_a_control_token_of_fairseqs(
    tmp_path, text_files, fails, model_with_symbols, tokenizer, word
):
    options = {
        "word": WORDS,
        "plain": [*PIECES, "--vocab-size", "320"],
        "own": [*PIECES, "--sentencepiece-model", model_with_symbols],
    }[tokenizer]
    dest, more = tmp_path / "bin", tmp_path / "more.txt"
    more.write_text(f"one <unk>\n[SEP] two\nthree {word} four\n")
    arguments = ["--dest", dest, *options, *of(text_files), "--train", more]
    refused = word if tokenizer == "word" else {"own": "<pad> <mask>"}.get(tokenizer)
    if word in (refused or "").split():
        fails(text.main, arguments, f"{more}, line 3", repr(word), dest=dest)
        return
    assert text.main(list(map(str, arguments))) == 0
    ids = np.concatenate([each[:-1] for each in read_ids(dest, "train")])
    assert ids.min() >= 3


def test_bad_input_folder(tmp_path, fails):
    dest, folder = tmp_path / "bin", tmp_path / "folder"
    folder.mkdir()
    arguments = ["--dest", dest, *WORDS, "--input", folder]
    fails(text.main, arguments, f"--input {folder}", "no *.txt", dest=dest)
    (folder / "a.txt").write_text("one\n")
    (folder / "b.txt").write_text("one\n")
    parts = ["1 different paragraphs", "3 splits", "3 or more"]
    fails(text.main, arguments, *parts, dest=dest)
    arguments += ["--split-by", "document"]
    fails(text.main, arguments, "1 different documents", "--split-by", dest=dest)


@pytest.mark.parametrize(
    ("size", "parts"),
    [(100, ["too small", "261"]), (270, ["required_chars"]), (90000, ["too high"])],
)
def test_bad_vocabulary_size(tmp_path, text_files, fails, size, parts):
    dest = tmp_path / "bin"
    arguments = ["--dest", dest, *PIECES, *of(text_files), "--vocab-size", size]
    fails(text.main, arguments, f"--vocab-size {size}", *parts, dest=dest)


def test_bad_model(tmp_path, text_files, fails):
    dest, model = tmp_path / "bin", tmp_path / "model"
    arguments = [
        "--dest",
        dest,
        *PIECES,
        *of(text_files),
        "--sentencepiece-model",
        model,
    ]
    fails(text.main, arguments, model, "no such file", dest=dest)
    model.write_bytes(b"no model")
    fails(text.main, arguments, model, "not a sentencepiece model", dest=dest)
