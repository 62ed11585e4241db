"""The user's own text: words as fairseq does it, pieces, splits, and mistakes."""

import json
from collections import Counter

import numpy as np
import pytest
from fairseq import options, tasks
from fairseq.data.encoders.sentencepiece_bpe import (
    SentencepieceBPE,
    SentencepieceConfig,
)
from hypothesis import given, settings
from hypothesis import strategies as st

import fairseq_transnormer.plugin  # noqa: F401 (registers the models)
from fairseq_transnormer.data.subword_files import SENTENCEPIECE_MODEL
from tests.messages import lines_naming

from .binary_reading import (
    differing,
    encoder_of,
    preprocessed,
    read_dictionary,
    read_ids,
    read_text,
)
from .commands import text, verify
from .small_corpora import article_lines

PIECES = ["--tokenizer", "sentencepiece"]
WORDS = ["--tokenizer", "word"]
# once in the train split: below what a coverage of 0.9995 would keep
RARE = "ж"


def prepare(dest, *arguments):
    """Runs the command; returns its exit code."""
    return text(["--dest", str(dest), *(str(part) for part in arguments)])


def of(paths):
    """The options that name the splits' files."""
    return [part for split, path in paths.items() for part in (f"--{split}", path)]


@pytest.mark.parametrize("limits", [(), (3, 30)], ids=["unlimited", "limited"])
def test_words_equal_fairseq_preprocess(tmp_path, text_files, limits):
    ours, mine, fairseqs = tmp_path / "ours", [], []
    if limits:
        mine = ["--min-count", limits[0], "--vocab-size", limits[1]]
        fairseqs = ["--thresholdsrc", str(limits[0]), "--nwordssrc", str(limits[1])]
    assert prepare(ours, *WORDS, *of(text_files), *mine) == 0
    assert not differing(ours, preprocessed(tmp_path / "theirs", text_files, *fairseqs))


@pytest.fixture(scope="module")
def piece_folder(tmp_path_factory):
    """Binary data by pieces."""
    folder = tmp_path_factory.mktemp("pieces")
    paths = {}
    for seed, split in enumerate(("train", "valid", "test")):
        paths[split] = folder / f"{split}.txt"
        # Without <unk>, which sentencepiece takes for its own symbol.
        content = "\n".join(article_lines(seed, 400)).replace("<unk>", "word")
        content += f"\n{RARE}" if split == "train" else ""
        paths[split].write_text(content + "\n", encoding="utf-8")
    paths["test"].write_text("a character that is new: Ω\n")
    assert prepare(folder / "bin", *PIECES, *of(paths), "--vocab-size", 320) == 0
    return folder / "bin"


def test_pieces_have_the_wanted_dictionary(piece_folder):
    dictionary = read_dictionary(piece_folder)
    assert len(dictionary) == 320
    assert "<0x41>" in dictionary and dictionary.symbols.count("<unk>") == 1
    report = json.loads((piece_folder / "report.json").read_text())
    assert report["dictionary_size"] == 320
    assert all(counts["unknown"] == 0 for counts in report["splits"].values())
    assert SENTENCEPIECE_MODEL in report["files"]


def test_every_character_of_the_train_split_is_a_piece(piece_folder):
    """By default the coverage is 1: no character of it is spelt in bytes."""
    characters = Counter((piece_folder.parent / "train.txt").read_text())
    assert characters[RARE] == 1 and characters.total() > 10_000
    pieces = read_dictionary(piece_folder).symbols
    assert set(characters) - {"\n", " "} <= set("".join(pieces))
    bpe = fairseqs_pieces(piece_folder)
    assert "<0x" not in bpe.encode(f"a {RARE} b") and "<0x" in bpe.encode("Ω")


def test_pieces_are_those_of_fairseqs_encoder(piece_folder):
    bpe, dictionary = fairseqs_pieces(piece_folder), read_dictionary(piece_folder)
    lines = (piece_folder.parent / "train.txt").read_text().splitlines()
    expected = [
        dictionary.encode_line(bpe.encode(line), add_if_not_exist=False).tolist()
        for line in lines
    ]
    assert read_ids(piece_folder, "train") == expected
    decoded = [bpe.decode(line) for line in read_text(piece_folder, "train")]
    assert decoded == [bpe.sp.decode(bpe.sp.encode(line)) for line in lines]


def fairseqs_pieces(folder):
    """What fairseq builds of --bpe sentencepiece."""
    return SentencepieceBPE(
        SentencepieceConfig(sentencepiece_model=str(folder / SENTENCEPIECE_MODEL))
    )


@given(line=st.text(st.characters(codec="utf-8", exclude_characters="\n\r")))
@settings(max_examples=60, deadline=None)
def test_any_line_is_encoded_as_fairseq_does(piece_folder, line):
    bpe, dictionary = fairseqs_pieces(piece_folder), read_dictionary(piece_folder)
    encoder = encoder_of(piece_folder)
    fairseqs = dictionary.encode_line(bpe.encode(line), add_if_not_exist=False)
    (ids,) = encoder([f"{line}\n"])
    assert ids.tolist() == fairseqs.tolist()


def test_model_is_trained_on_train_alone(tmp_path, text_files):
    one, other = tmp_path / "one", tmp_path / "other"
    arguments = [*PIECES, *of(text_files), "--vocab-size", 320]
    assert prepare(one, *arguments) == 0
    text_files["valid"].write_text("quite another text\n")
    text_files["test"].write_text("and one more\n")
    assert prepare(other, *arguments) == 0
    models = [(folder / SENTENCEPIECE_MODEL).read_bytes() for folder in (one, other)]
    assert models[0] == models[1]


@pytest.mark.parametrize("space", [" ", ""], ids=["with spaces", "without"])
def test_pieces_are_learnt_of_a_line_of_any_length(tmp_path, text_files, space):
    """sentencepiece leaves out what is longer than its limit, here all of the text."""
    train = tmp_path / "train.txt"
    train.write_text(space.join(["Fjord", "Gletscher"] * 80_000))
    dest = tmp_path / "data"
    size = ["--vocab-size", 400, "--vocab-at-most", "--workers", 1]
    files = of({**text_files, "train": train})
    assert prepare(dest, *PIECES, *size, *files) == 0
    tokens = json.loads((dest / "report.json").read_text())["splits"]["train"]["tokens"]
    assert tokens < 400_000  # a token for each of the 1.1 million letters without them


def test_given_model_is_used(tmp_path, text_files, piece_folder):
    dest, model = tmp_path / "bin", piece_folder / SENTENCEPIECE_MODEL
    assert prepare(dest, *PIECES, *of(text_files), "--sentencepiece-model", model) == 0
    for name in (SENTENCEPIECE_MODEL, "dict.txt"):
        assert (dest / name).read_bytes() == (piece_folder / name).read_bytes()


def test_an_end_of_a_line_is_no_piece(tmp_path, text_files, model_with_symbols):
    dest = tmp_path / "bin"
    files = of(text_files | {"valid": tmp_path / "lines.txt"})
    (tmp_path / "lines.txt").write_text(" the  time \n\nsaid\n")
    given = [*PIECES, "--sentencepiece-model", model_with_symbols]
    assert prepare(dest, *files, *given) == 0
    bpe = fairseqs_pieces(dest)
    expected = [bpe.encode(line) for line in (" the  time ", "", "said")]
    assert read_text(dest, "valid") == expected


def test_blank_line_between_files_and_none_elsewhere(tmp_path):
    contents = ["one\n\ntwo\n", "", "three\n\n", "four"]
    names = [tmp_path / f"{number}.txt" for number in range(len(contents))]
    for path, content in zip(names, contents, strict=True):
        path.write_text(content)
    dest = tmp_path / "bin"
    assert prepare(dest, *WORDS, "--train", *names, "--valid", names[0]) == 0
    assert read_text(dest, "train") == ["one", "", "two", "", "three", "", "four"]


def test_no_test_split_if_none_is_wanted(tmp_path):
    dest, documents = tmp_path / "bin", tmp_path / "documents"
    documents.mkdir()
    (documents / "a.txt").write_text("\n\n".join(article_lines(1, 90)))
    fractions = ["--fractions", 0.5, 0.5, 0]
    assert prepare(dest, *WORDS, "--input", documents, *fractions) == 0
    assert not (dest / "test.bin").exists()
    assert verify([str(dest)]) == 0


def test_fairseq_tasks_load_the_folder(piece_folder):
    arguments = [str(piece_folder), "--arch", "transformer_lm", "--task"]
    by_document = ["--sample-break-mode", "complete_doc"]
    for more in (["language_modeling"], ["masked_lm", *by_document]):
        parser = options.get_training_parser()
        parsed = options.parse_args_and_arch(parser, [*arguments, *more])
        task = tasks.setup_task(parsed)
        for split in ("train", "valid", "test"):
            task.load_dataset(split)
            assert len(task.dataset(split)) > 0


def test_same_settings_again_do_nothing(word_folder, text_files, capsys):
    before = (word_folder / "train.bin").stat().st_mtime_ns
    assert prepare(word_folder, *WORDS, *of(text_files)) == 0
    assert "already complete" in capsys.readouterr().out
    assert (word_folder / "train.bin").stat().st_mtime_ns == before


def test_other_settings_are_named_and_overwritten_on_demand(
    word_folder, text_files, fails
):
    arguments = ["--dest", word_folder, *WORDS, *of(text_files), "--min-count", 3]
    fails(text, arguments, "min_count", 0, 3, "--overwrite")
    text_files["valid"].write_text("changed\n")
    fails(text, arguments[:-2], "valid", "valid.txt")
    assert prepare(word_folder, *arguments[2:], "--overwrite") == 0
    assert read_text(word_folder, "valid") == ["<unk>"]


def test_the_same_text_in_two_splits_is_told(tmp_path, text_files, capsys):
    text_files["valid"] = text_files["train"]
    assert prepare(tmp_path / "bin", *WORDS, *of(text_files)) == 0
    told = capsys.readouterr().err
    assert lines_naming(told, "warning", "same text", "train", "valid")


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        (None, ["no such file"]),
        (b"", ["valid", "empty"]),
        (b"\n \n", ["valid", "empty"]),
        (b"caf\xe9\n", ["0xe9", "line 1"]),
        (b"x\n" * 600_000 + b"\xe2\x82", ["0xe2", "line 600001"]),
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
    fails(text, arguments, text_files["valid"], *parts, dest=dest)
    assert not [*tmp_path.glob("bin*")]


def test_characters_at_the_edge_of_reading_are_good(tmp_path, text_files):
    text_files["valid"].write_bytes(b"x" * ((1 << 20) - 1) + "é y\n".encode())
    arguments = ["--dest", str(tmp_path / "bin"), *WORDS, *map(str, of(text_files))]
    assert text(arguments) == 0


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
        fails(text, arguments, "train", f"three {word} four", dest=dest)
        return
    assert text(list(map(str, arguments))) == 0
    ids = np.concatenate([each[:-1] for each in read_ids(dest, "train")])
    assert ids.min() >= 3


def test_bad_input_folder(tmp_path, fails):
    dest, folder = tmp_path / "bin", tmp_path / "folder"
    folder.mkdir()
    arguments = ["--dest", dest, *WORDS, "--input", folder]
    fails(text, arguments, f"--input {folder}", "no *.txt", dest=dest)
    (folder / "a.txt").write_text("one\n")
    (folder / "b.txt").write_text("one\n")
    fails(text, arguments, "1 different paragraphs", "3 splits", dest=dest)
    arguments += ["--split-by", "document"]
    fails(text, arguments, "1 different documents", "--split-by", dest=dest)


@pytest.mark.parametrize(
    ("size", "parts"), [(270, ["required_chars"]), (90000, ["too high"])]
)
def test_bad_vocabulary_size(tmp_path, text_files, fails, size, parts):
    dest = tmp_path / "bin"
    arguments = ["--dest", dest, *PIECES, *of(text_files), "--vocab-size", size]
    fails(text, arguments, f"--vocab-size {size}", *parts, dest=dest)


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
    model.write_bytes(b"no model")
    fails(text, arguments, model, "not a sentencepiece model", dest=dest)
