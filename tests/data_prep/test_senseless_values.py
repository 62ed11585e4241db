"""Sizes without sense are refused before any work, by field, value and range."""

import pytest

from data_prep.documentation import documentation_topics, stdlib_corpus
from data_prep.labelled_texts import classification, glue
from data_prep.long_range_arena import lra, lra_stand_ins
from data_prep.own_text import text
from data_prep.symbols import copy_task, digits, recall
from data_prep.wikitext import wikitext103
from tests.messages import assert_names

DATA = ["--data", "x"]
TRAIN = ["--train", "x", "--valid", "y"]
# command, its other arguments, options of one integer, the highest where asked for
INTEGERS = [
    (copy_task, [], ["symbols", "shortest", "longest"]),
    (copy_task, [], ["seed"]),
    (recall, [], ["vocabulary", "length", "pairs", "seed"]),
    (lra, ["listops"], ["max-depth", "max-args", "shortest", "longest", "seed"]),
    (lra, ["pathfinder"], ["seed", "workers"]),
    (lra_stand_ins, [], ["longest", "seed"]),
    (digits, [], ["seed"]),
    (documentation_topics, [], ["paragraphs-per-document"]),
    (text, ["--tokenizer", "word", *TRAIN], ["vocab-size", "min-count", "workers"]),
    (text, ["--tokenizer", "word", "--input", "x"], ["seed"]),
    (text, ["--tokenizer", "sentencepiece", *TRAIN], ["vocab-size"]),
    (classification, [*DATA, *TRAIN], ["max-positions", "workers"]),
    (glue, DATA, ["max-positions", "workers"]),
    (wikitext103, ["alm"], ["workers"]),
]
SENSELESS = ["-1", "1" + "0" * 30, "nan", "inf", "1e3", "2.5", "", "1" + "0" * 5000]


def ids(case):
    command, arguments, options = case
    return f"{command.__name__.split('.')[1]} {options[0]}"


def refused(capsys, command, arguments) -> str:
    """The message of a command that is refused, with exit code 2 either way."""
    capsys.readouterr()
    try:
        code = command.main([str(argument) for argument in arguments])
    except SystemExit as exit_:
        code = exit_.code
    message = capsys.readouterr().err.splitlines()[-1]
    assert code == 2, message
    return message


@pytest.mark.parametrize("case", INTEGERS, ids=ids)
def test_integers(tmp_path, capsys, case):
    command, arguments, options = case
    dest = ["--dest", tmp_path / "d"]
    for option in options:
        for value in SENSELESS:
            given = [*arguments, *dest, f"--{option}={value}"]
            message = refused(capsys, command, given)
            assert_names(message, f"--{option}", "allowed", "integers from")
            assert value[:20] in message and len(message) < 400, message
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", [copy_task, recall, lra_stand_ins])
def test_zero_is_no_length(tmp_path, capsys, command):
    message = refused(capsys, command, ["--dest", tmp_path / "d", "--longest", 0])
    assert_names(message, "--longest", 0)


@pytest.mark.parametrize("counts", [[0, 1, 1], [1, -1, 1], [1, 1, 10**30], [1, 1, "x"]])
@pytest.mark.parametrize(
    "start", [[copy_task], [lra, "listops"], [lra, "pathfinder"], [lra_stand_ins]]
)
def test_counts(tmp_path, capsys, start, counts):
    command, *arguments = start
    given = [*arguments, "--dest", tmp_path / "d", "--counts", *counts]
    assert_names(refused(capsys, command, given), "--counts", "integers from 1")


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (["--longest", 10**9, "--counts", 1, 1, 1], ["--longest", 10**9, 10**6]),
        (["--longest", 10**6, "--counts", 10**7, 1, 1], ["--counts", 10**7]),
        (["--symbols", 10**9], ["--symbols", 10**9]),
        (["--shortest", 9, "--longest", 8], ["--shortest", 9, 8]),
    ],
)
def test_copy_task_that_no_disk_holds(tmp_path, capsys, options, parts):
    message = refused(capsys, copy_task, ["--dest", tmp_path / "d", *options])
    assert_names(message, "allowed", *parts)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (["--max-args", 1], ["--max-args", 1, "from 2"]),
        (["--max-depth", 1], ["--max-depth", 1, "from 2"]),
        (["--max-depth", 60], ["--max-depth", 60]),
        (["--max-depth", 30, "--max-args", 90], ["--max-args", 90]),
        (["--shortest", 1999], ["--longest", 2000, 2001]),
    ],
)
def test_listops_trees_that_no_memory_holds(tmp_path, capsys, options, parts):
    message = refused(capsys, lra, ["listops", "--dest", tmp_path / "d", *options])
    assert_names(message, "allowed", *parts)


@pytest.mark.parametrize("value", ["nan", "inf", "-0.5", "2", "x"])
@pytest.mark.parametrize("option", ["fractions", "character-coverage"])
def test_shares(tmp_path, capsys, option, value):
    given = ["--dest", tmp_path / "d", "--tokenizer", "sentencepiece", "--input", "x"]
    values = [value, 0, 0] if option == "fractions" else [value]
    message = refused(capsys, text, [*given, f"--{option}", *values])
    assert_names(message, f"--{option}", "allowed")


def test_count_that_no_word_has(tmp_path, text_files, fails):
    given = ["--dest", tmp_path / "d", "--tokenizer", "word", "--min-count", 10**6]
    for split, path in text_files.items():
        given += [f"--{split}", path]
    message = fails(text.main, given, dest=tmp_path / "d")
    assert_names(message, "--min-count", 10**6, "allowed")


@pytest.mark.parametrize("name", ["thesis.doc", "sheet", "x.png/y.jpg"])
def test_pictures_of_another_kind_are_refused_first(tmp_path, capsys, name):
    given = ["--dest", tmp_path / "d", "--pictures", tmp_path / name]
    for command, arguments in ((digits, []), (lra, ["pathfinder"])):
        message = refused(capsys, command, [*arguments, *given])
        assert_names(message, "--pictures", ".png")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["", "\udcff"], ids=["empty", "undecodable"])
def test_destination_without_a_name(capsys, name):
    assert_names(refused(capsys, stdlib_corpus, ["--dest", name]), "--dest", "allowed")


def test_another_picture_is_kept(tmp_path, fails):
    sheet = tmp_path / "holiday.png"
    sheet.write_bytes(b"the sea")
    given = ["--dest", tmp_path / "d", "--pictures", sheet]
    assert_names(fails(digits.main, given), "--pictures", sheet, "--overwrite")
    assert sheet.read_bytes() == b"the sea"
    given[-1] = tmp_path / "new.png"
    for _ in range(2):
        assert digits.main([str(argument) for argument in given]) == 0
