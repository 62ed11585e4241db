"""Options without sense are refused before any work, by name, value and range."""

import pytest

from data_prep.documentation import documentation_topics, stdlib_corpus
from data_prep.labelled_texts import classification, glue
from data_prep.long_range_arena import lra, lra_stand_ins
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
    (lra_stand_ins, "", "longest seed"),
    (digits, "", "seed"),
    (documentation_topics, "", "paragraphs-per-document"),
    (text, f"--tokenizer word {TRAIN}", "vocab-size min-count workers"),
    (text, "--tokenizer word --input x", "seed"),
    (text, f"--tokenizer sentencepiece {TRAIN}", "vocab-size"),
    (classification, f"--data x {TRAIN}", "max-positions workers"),
    (glue, "--data x", "max-positions workers"),
    (wikitext103, "alm", "workers"),
]
SENSELESS = ["-1", "1" + "0" * 30, "nan", "inf", "1e3", "2.5", "", "1" + "0" * 5000]
COUNTS = [(copy_task, ""), (lra, "listops"), (lra, "pathfinder"), (lra_stand_ins, "")]
WORDS, PIECES = "--tokenizer word", "--tokenizer sentencepiece"
LABELLED = f"--data x {TRAIN} --text-column t --label-column k"
WRONG = [
    (copy_task, "--longest 0", ["--longest", 0]),
    (recall, "--length 0", ["--length", 0]),
    (lra_stand_ins, "--longest 0", ["--longest", 0]),
    # what no disk and no memory holds
    (copy_task, f"--longest {10**9} --counts 1 1 1", ["--longest", 10**9, 10**6]),
    (copy_task, f"--longest {10**6} --counts {10**7} 1 1", ["--counts", 10**7]),
    (copy_task, f"--symbols {10**9}", ["--symbols", 10**9]),
    (copy_task, "--shortest 9 --longest 8", ["--shortest 9", "--longest 8"]),
    (recall, "--vocabulary 7", ["--vocabulary 7", "even", "--pairs 4"]),
    (recall, "--vocabulary 6", ["--vocabulary 6", "from 8"]),
    (recall, "--length 14", ["--length 14", "from 16"]),
    (recall, "--length 17", ["--length 17", "even"]),
    (recall, "--power 1000", ["--power", "up to"]),
    (recall, "--power 1e308", ["--power", "up to"]),
    (lra, "listops --max-args 1", ["--max-args", 1, "from 2"]),
    (lra, "listops --max-depth 1", ["--max-depth", 1, "from 2"]),
    (lra, "listops --max-depth 60", ["--max-depth", 60]),
    (lra, "listops --max-depth 30 --max-args 90", ["--max-args", 90]),
    (lra, "listops --shortest 1999", ["--longest", 2000, 2001]),
    (lra, "listops --longest 400", ["--longest 400", "from 502"]),
    (lra, "retrieval", ["--from-dir"]),
    *(
        (command, f"{given} --pictures {{folder}}/{name}", ["--pictures", ".png"])
        for command, given in ((digits, ""), (lra, "pathfinder"))
        for name in ("thesis.doc", "sheet", "x.png/y.jpg")
    ),
    (digits, "--source mnist --seed 1", ["--seed 1", "--source sklearn"]),
    (digits, "--allow-other-sizes", ["--allow-other-sizes", "--source mnist"]),
    (split_text, "--input x --dest y --suffixes txt", ["--suffixes", "'txt'", ".txt"]),
    (split_text, "--input x --dest y --split-by word", ["--split-by", "paragraph"]),
    (split_text, "--input x", ["--dest"]),
    *(
        (text, f"{PIECES} --input x --{option} {value}{more}", [f"--{option}"])
        for option, more in (("fractions", " 0 0"), ("character-coverage", ""))
        for value in ("nan", "inf", "-0.5", "2", "x")
    ),
    (text, f"{WORDS} --input x --fractions .5 .1 .1", ["--fractions", "sum 1", 0.5]),
    (text, f"{WORDS} --input x --fractions 1 0 0", ["--fractions", 1.0, 0.0]),
    (text, "--tokenizer characters", ["--tokenizer", "word", "sentencepiece"]),
    (text, WORDS, ["--train", "--input"]),
    (text, f"{WORDS} --train a", ["--valid"]),
    (text, f"{WORDS} --train a --input a", ["--train", "--input"]),
    (text, f"{WORDS} --input a --test b", ["--test", "--train"]),
    (text, f"{WORDS} {TRAIN} --seed 2", ["--seed", "--input"]),
    (text, f"{WORDS} --input a --character-coverage 1", ["--character-coverage"]),
    (text, f"{WORDS} --input a --vocab_size 8", ["--vocab_size"]),
    (text, f"{PIECES} --input a --min-count 2", ["--min-count", "word"]),
    (
        text,
        f"{PIECES} --input a --character-coverage 0.5",
        ["--character-coverage", "'0.5'", "0.98 to 1"],
    ),
    (
        text,
        f"{PIECES} --input a --sentencepiece-model m --vocab-size 9",
        ["--vocab-size", "--sentencepiece-model"],
    ),
    (classification, f"{LABELLED} --labels a", ["--labels", "two"]),
    (classification, f"{LABELLED} --labels a b --regression", ["--regression"]),
    (glue, "WNLI --data x", ["'WNLI'", "MNLI", "STS-B"]),
    (wikitext103, "both", ["'both'", "alm", "blm"]),
    (wikitext103, "alm --gpt2-bpe-dir x", ["--gpt2-bpe-dir", "blm"]),
]


@pytest.fixture
def refused(tmp_path, fails):
    """Runs a command that must be refused; the message."""

    def run(command, given, *parts, more=()):
        words = [*given.format(folder=tmp_path).split(), *more]
        if "--count " not in f"{given} " and given != "--input x":
            words += ["--dest", tmp_path / "d"]
        told = fails(command.main, words, *parts, alone=False)
        assert not list(tmp_path.iterdir())
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
    "case", COUNTS, ids=lambda case: f"{case[0].__name__} {case[1]}"
)
def test_counts(refused, case):
    for counts in ("0 1 1", "1 -1 1", f"1 1 {10**30}", "1 1 x"):
        refused(
            *case, "--counts", "integers from 1", more=["--counts", *counts.split()]
        )


@pytest.mark.parametrize(
    ("command", "given", "parts"),
    WRONG,
    ids=[f"{command.__name__} {given}" for command, given, _ in WRONG],
)
def test_wrong_options(refused, command, given, parts):
    refused(command, given, *parts)


@pytest.mark.parametrize("name", ["", "\udcff"], ids=["empty", "undecodable"])
def test_destination_without_a_name(fails, name):
    parts = "--dest", "allowed"
    fails(stdlib_corpus.main, ["--dest", name], *parts, alone=False)


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
