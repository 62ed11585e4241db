"""Options without sense are refused before any work, by name."""

import pytest

from tests.messages import assert_names

from .commands import command, lra, text

TRAIN = "--train x --valid y"
WORDS, PIECES = "--tokenizer word", "--tokenizer sentencepiece"
LABELLED = f"--data x {TRAIN} --text-column t --label-column k"
# command and its words, what the message names
WRONG = [
    ("copy_task --symbols 0", "--symbols"),
    ("copy_task --symbols 2.5", "--symbols"),
    ("copy_task --shortest 9 --longest 8", "--shortest"),
    ("copy_task --counts 0 1 1", "train"),
    ("copy_task --counts 1 1", "--counts"),
    ("recall --vocabulary 7", "--vocabulary"),
    ("recall --vocabulary 6", "--vocabulary"),
    ("recall --length 14", "--length"),
    ("recall --length 17", "--length"),
    ("recall --pairs 0", "--pairs"),
    ("lra listops --max-depth 1", "max-depth"),
    ("lra listops --counts 2 1 1 --seed -1", "non-negative"),
    ("lra listops --from-dir {folder} --seed 7", "--seed --from-dir"),
    ("lra retrieval", "--from-dir"),
    ("synthetic_lra --longest 1", "--longest"),
    ("documentation_topics --paragraphs-per-document 0", "--paragraphs-per-document"),
    ("lra pathfinder --pictures thesis.doc", "--pictures"),
    (f"split_text --input {{folder}} --seed {2**64}", "--seed"),
    ("digits --from-dir x", "--from-dir"),
    ("digits --allow-other-sizes", "--allow-other-sizes mnist"),
    ("debian_docs --allow-other-versions", "--allow-other-versions --from-dir"),
    ("split_text --input {folder} --suffixes txt", "*txt"),
    ("split_text --input {folder} --fractions .5 .1 .1", "--fractions"),
    ("split_text --input {folder} --fractions nan 0 0", "--fractions"),
    ("split_text --input {folder} --seed -1", "--seed"),
    (
        f"text {PIECES} --train {{folder}}/a.txt --valid {{folder}}/b.txt "
        "--character-coverage 0.5",
        "--character-coverage",
    ),
    (f"text {WORDS}", "--input"),
    (f"text {WORDS} --train a", "--valid"),
    (f"text {WORDS} --train a --input a", "--input"),
    (f"text {WORDS} --input a --test b", "--test"),
    (f"text {WORDS} {TRAIN} --seed 2", "--seed"),
    (f"text {WORDS} {TRAIN} --vocab-size 4", "--vocab-size"),
    (f"text {WORDS} --input a --character-coverage 1", "--character-coverage"),
    (f"text {PIECES} --input a --min-count 2", "--min-count"),
    (f"text {PIECES} --input a --sentencepiece-model m --vocab-size 9", "--vocab-size"),
    (f"classification {LABELLED} --labels a b --regression", "--labels"),
    ("glue WNLI --data x", "'WNLI'"),
    ("glue CoLA --data x --max-positions 7", "--max-positions"),
    ("wikitext103 alm --gpt2-bpe-dir x", "--gpt2-bpe-dir"),
]


@pytest.mark.parametrize(("words", "names"), WRONG, ids=[words for words, _ in WRONG])
def test_wrong_options(tmp_path, fails, words, names):
    source, dest = tmp_path / "texts", tmp_path / "d"
    source.mkdir()
    for each in "abcd":
        (source / f"{each}.txt").write_text(f"a line of {each}\n")
    first, *given = words.format(folder=source).split()
    fails(command(first), [*given, "--dest", dest], *names.split())
    assert [path.name for path in tmp_path.iterdir()] == ["texts"]


def test_count_that_no_word_has(tmp_path, text_files, fails):
    given = ["--dest", tmp_path / "d", "--tokenizer", "word", "--min-count", 10**6]
    for split, path in text_files.items():
        given += [f"--{split}", path]
    message = fails(text, given, dest=tmp_path / "d")
    assert_names(message, "--min-count", 10**6, "allowed")


def test_another_picture_is_kept(tmp_path, fails):
    sheet = tmp_path / "holiday.png"
    sheet.write_bytes(b"the sea")
    given = ["pathfinder", "--dest", tmp_path / "d", "--counts", "3", "1", "1"]
    given += ["--workers", "1", "--pictures", sheet]
    assert_names(fails(lra, given), "--pictures", sheet, "--overwrite")
    assert sheet.read_bytes() == b"the sea"
    given[-1] = tmp_path / "new.png"
    for _ in range(2):
        assert lra(given) == 0
