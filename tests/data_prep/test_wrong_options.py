"""Options without sense are refused before any work, by name, value and range."""

import pytest

from data_prep.documentation import debian_docs, documentation_topics
from data_prep.labelled_texts import classification, glue
from data_prep.long_range_arena import lra, synthetic_lra
from data_prep.own_text import split_text, text
from data_prep.symbols import copy_task, digits, recall
from data_prep.wikitext import wikitext103
from tests.messages import assert_names

TRAIN = "--train x --valid y"
# command, its other arguments, options of one integer
INTEGERS = [
    (copy_task, "", "symbols shortest longest seed"),
    (recall, "", "vocabulary length pairs seed"),
    (lra, "listops", "max-depth max-args shortest longest seed"),
    (lra, "pathfinder", "seed workers"),
    (synthetic_lra, "", "longest seed"),
    (documentation_topics, "", "paragraphs-per-document"),
    (text, f"--tokenizer word {TRAIN}", "vocab-size min-count workers seed"),
    (classification, f"--data x {TRAIN}", "max-positions workers"),
    (glue, "--data x", "max-positions workers"),
]
SENSELESS = ["-1", "1" + "0" * 30, "nan", "1e3", "2.5", ""]
WORDS, PIECES = "--tokenizer word", "--tokenizer sentencepiece"
LABELLED = f"--data x {TRAIN} --text-column t --label-column k"
WRONG = [
    (copy_task, "--shortest 9 --longest 8", "--shortest"),
    (copy_task, "--counts 0 1 1", "--counts"),
    (recall, "--vocabulary 7", "--vocabulary"),
    (recall, "--vocabulary 6", "--vocabulary"),
    (recall, "--length 14", "--length"),
    (recall, "--length 17", "--length"),
    (lra, "retrieval", "--from-dir"),
    (digits, "--pictures thesis.doc", "--pictures"),
    (digits, "--source mnist --seed 1", "--seed"),
    (digits, "--from-dir x", "--from-dir"),
    (split_text, "--input {folder} --suffixes txt", "*txt"),
    (split_text, "--input {folder} --fractions .5 .1 .1", "--fractions"),
    (text, f"{PIECES} --input x --fractions nan 0 0", "--fractions"),
    (text, f"{PIECES} --input x --character-coverage 0.5", "--character-coverage"),
    (text, WORDS, "--input"),
    (text, f"{WORDS} --train a", "--valid"),
    (text, f"{WORDS} --train a --input a", "--input"),
    (text, f"{WORDS} --input a --test b", "--test"),
    (text, f"{WORDS} {TRAIN} --seed 2", "--seed"),
    (text, f"{WORDS} --input a --character-coverage 1", "--character-coverage"),
    (text, f"{WORDS} --input a --vocab_size 8", "--vocab_size"),
    (text, f"{PIECES} --input a --min-count 2", "--min-count"),
    (
        text,
        f"{PIECES} --input a --sentencepiece-model m --vocab-size 9",
        "--vocab-size",
    ),
    (classification, f"{LABELLED} --labels a", "--labels"),
    (classification, f"{LABELLED} --labels a b --regression", "--regression"),
    (glue, "WNLI --data x", "'WNLI'"),
    (wikitext103, "alm --gpt2-bpe-dir x", "--gpt2-bpe-dir"),
    (debian_docs, "--archive x --from-dir y", "--archive"),
    (debian_docs, "--allow-other-versions", "--allow-other-versions"),
]


@pytest.fixture
def refused(tmp_path, fails):
    """Runs a command that must be refused; the message."""

    def run(command, given, *parts, more=()):
        source = tmp_path / "texts"
        source.mkdir(exist_ok=True)
        for name in "abcd":
            (source / f"{name}.txt").write_text(f"a line of {name}\n")
        words = [*given.format(folder=source).split(), *more]
        words += ["--dest", tmp_path / "d"]
        told = fails(command.main, words, *parts, alone=False)
        assert [path.name for path in tmp_path.iterdir()] == ["texts"]
        return told

    return run


@pytest.mark.parametrize(
    "case", INTEGERS, ids=lambda case: f"{case[0].__name__} {case[2]}"
)
def test_integers(refused, case):
    command, given, options = case
    for option in options.split():
        for value in SENSELESS:
            parts = f"--{option}", "allowed", "integers from"
            message = refused(command, given, *parts, more=[f"--{option}={value}"])
            assert value[:20] in message and len(message) < 400, message


@pytest.mark.parametrize(
    ("command", "given", "name"),
    WRONG,
    ids=[f"{command.__name__} {given}" for command, given, _ in WRONG],
)
def test_wrong_options(refused, command, given, name):
    refused(command, given, name)


def test_count_that_no_word_has(tmp_path, text_files, fails):
    given = ["--dest", tmp_path / "d", "--tokenizer", "word", "--min-count", 10**6]
    for split, path in text_files.items():
        given += [f"--{split}", path]
    message = fails(text.main, given, dest=tmp_path / "d")
    assert_names(message, "--min-count", 10**6, "allowed")


def test_another_picture_is_kept(tmp_path, fails):
    sheet = tmp_path / "holiday.png"
    sheet.write_bytes(b"the sea")
    given = ["--dest", tmp_path / "d", "--pictures", sheet]
    assert_names(fails(digits.main, given), "--pictures", sheet, "--overwrite")
    assert sheet.read_bytes() == b"the sea"
    given[-1] = tmp_path / "new.png"
    for _ in range(2):
        assert digits.main([str(argument) for argument in given]) == 0
