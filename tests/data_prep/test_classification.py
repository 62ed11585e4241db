"""The user's own labelled files, what is cut of them, and their mistakes."""

import json
import random
import shutil
from collections import Counter

import numpy as np
import pytest

from data_prep.folders.sentencepiece_model import model_dictionary
from data_prep.labelled_texts.labelled_folder import fitting
from fairseq_transnormer.data.subword_files import EOS
from tests.messages import lines_naming

from .binary_reading import encoder_of, read_ids
from .commands import classification, verify
from .glue_copies import report_of, table_of

ROWS = [
    {"id": 7, "title": 'A "quoted" title', "body": "and, a body", "kind": "news"},
    {"id": 8, "title": "Another one", "body": "of some words", "kind": "a tale"},
    {"id": 9, "title": "A third", "body": "here", "kind": "news"},
]


def write(path, rows):
    header = list(rows[0])
    if path.suffix == ".jsonl":
        lines = [json.dumps(row) for row in rows]
    elif path.suffix == ".tsv":
        lines = ["\t".join(header)]
        lines += ["\t".join(map(str, row.values())) for row in rows]
    else:
        quoted = [[str(v).replace('"', '""') for v in r.values()] for r in rows]
        lines = [",".join(header)] + ['"' + '","'.join(r) + '"' for r in quoted]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def command(tmp_path, pretraining_data):
    """Arguments for ROWS as files of one format."""

    def build(suffix=".tsv", train=ROWS, valid=ROWS[:2], test=None):
        arguments = ["--dest", tmp_path / f"data{suffix}", "--data", pretraining_data]
        for split, rows in (("train", train), ("valid", valid), ("test", test)):
            if rows:
                path = write(tmp_path / f"{split}{suffix}", rows)
                arguments += [f"--{split}", path]
        arguments += ["--text-column", "title", "--label-column", "kind"]
        return [str(each) for each in [*arguments, "--workers", 1]]

    return build


@pytest.mark.parametrize("suffix", [".tsv", ".csv", ".jsonl"])
def test_pairs_from_each_format(command, tmp_path, suffix, pretraining_data):
    unlabelled = [{key: row[key] for key in ("title", "body")} for row in ROWS]
    arguments = [*command(suffix, test=unlabelled), "--pair-column", "body"]
    assert classification(arguments) == 0
    dest = tmp_path / f"data{suffix}"
    assert table_of(dest, "train")[0] == ["0", ROWS[0]["title"], "and, a body", "news"]
    report = report_of(dest)
    assert report["labels"] == ["a tale", "news"] and not report["regression"]
    assert report["splits"] == {"train": 3, "valid": 2, "test": 3}
    assert [ids for ids in read_ids(dest / "label", "train")] == [
        [5, 2],
        [4, 2],
        [5, 2],
    ]
    encode = encoder_of(pretraining_data)
    expected = encode([row["body"] for row in ROWS])
    assert read_ids(dest / "input1", "test") == [ids.tolist() for ids in expected]
    assert not (dest / "label/test.bin").exists()
    assert verify([str(dest)]) == 0


def test_numbers_of_classes_do_not_follow_frequencies(command, tmp_path):
    chance = random.Random(0)
    train = [
        {"title": f"text {i}", "kind": chance.choice(["10", "9", "9", "9", "2"])}
        for i in range(40)
    ]
    assert Counter(row["kind"] for row in train).most_common(1)[0][0] == "9"
    assert classification(command(train=train, valid=train)) == 0
    assert report_of(tmp_path / "data.tsv")["labels"] == ["2", "9", "10"]
    order = ["--labels", "9", "10", "2", "1", "--overwrite"]
    assert classification([*command(train=train, valid=train), *order]) == 0
    report = report_of(tmp_path / "data.tsv")
    assert report["labels"] == ["9", "10", "2", "1"]


def test_regression(command, tmp_path):
    rows = [{"title": "one", "kind": 0.5}, {"title": "two", "kind": -3}]
    assert classification([*command(train=rows, valid=rows), "--regression"]) == 0
    dest = tmp_path / "data.tsv"
    assert (dest / "label/valid.label").read_text() == "0.5\n-3.0\n"
    assert report_of(dest)["regression"]


def test_truncation_is_counted(command, tmp_path, pretraining_data):
    texts = [("was " * count).strip() for count in (1, 3, 20)]
    rows = [{**row, "title": text} for text, row in zip(texts, ROWS, strict=True)]
    lengths = [len(ids) for ids in encoder_of(pretraining_data)(texts)]
    assert lengths[0] <= 7 < lengths[2]
    assert classification([*command(train=rows), "--max-positions", "8"]) == 0
    dest = tmp_path / "data.tsv"
    # <s> takes one of the eight
    found = [len(ids) for ids in read_ids(dest / "input0", "train")]
    assert found == [min(length, 7) for length in lengths]
    truncated = report_of(dest)["counts"]["train"]["truncated"]
    assert truncated == sum(length > 7 for length in lengths)


def test_wrong_values_name_file_line_field_and_what_is_allowed(
    command, tmp_path, fails
):
    dest = tmp_path / "data.tsv"

    def refused(*parts, options=(), **splits):
        arguments = [*command(**splits), *options]
        fails(classification, arguments, *parts, dest=dest)

    wrong = [ROWS[0], {**ROWS[1], "kind": "essay"}]
    refused("valid.tsv", "line 3", "'essay'", "a tale", "news", valid=wrong)
    refused("line 2", "'news'", "numbers", options=["--regression"])
    empty = [ROWS[0], {**ROWS[1], "title": " "}]
    refused("train.tsv", "line 3", "empty", train=empty)
    columns = ("train.tsv", "id", "title", "kind")
    refused("column 'kinds'", *columns, options=["--label-column", "kinds"])
    refused("column 'b'", *columns, options=["--pair-column", "b"])
    refused("two or more", "'news'", train=ROWS[:1], valid=ROWS[:1])
    broken = [ROWS[0], {**ROWS[1], "body": "a\ttab"}]
    refused("train.tsv", "line 3", "5 columns", 4, train=broken)
    reserved = [{**ROWS[0], "kind": "<unk>"}, ROWS[1]]
    refused("'<unk>'", "symbol", train=reserved, valid=reserved)
    arguments = command()
    (tmp_path / "valid.tsv").unlink()
    missing = (tmp_path / "valid.tsv", "no such")
    fails(classification, arguments, *missing, dest=dest)


def test_a_word_that_is_a_control_token(command, tmp_path, fails, model_with_symbols):
    data = tmp_path / "units"
    data.mkdir()
    shutil.copy(model_with_symbols, data / "sentencepiece.bpe.model")
    model_dictionary(model_with_symbols).save(str(data / "dict.txt"))
    wrong = [ROWS[0], {**ROWS[1], "title": "a <pad> more"}]
    parts = "train.tsv", "line 3", "'<pad>'"
    arguments = [*command(train=wrong), "--data", data]
    fails(classification, arguments, *parts, dest=tmp_path / "data.tsv")


def test_malformed_lines_can_be_left_out_and_are_counted(command, tmp_path, capsys):
    rows = [*ROWS, {**ROWS[0], "title": ""}, {**ROWS[1], "body": "a\ttab"}]
    assert classification([*command(train=rows), "--skip-malformed"]) == 0
    record = report_of(tmp_path / "data.tsv")["malformed"]["train"]
    reasons = {"an empty text": [5], "5 columns instead of 4": [6]}
    assert record == {"skipped": 2, "reasons": reasons}
    assert lines_naming(capsys.readouterr().out, "left out 1", "empty", "line 5")


def test_csv_and_jsonl_mistakes(command, tmp_path, fails):
    arguments = command(".csv")
    with open(tmp_path / "train.csv", "a") as file:
        file.write('"1","never closed')
    fails(classification, arguments, "train.csv", "line 5", "end of data")
    arguments = command(".jsonl")
    with open(tmp_path / "train.jsonl", "a") as file:
        file.write("[1]\n")
    fails(classification, arguments, "train.jsonl", "line 4", "JSON object")
    partly = [ROWS[0], {"title": "No label here"}]
    arguments = command(".jsonl", test=partly)
    fails(classification, arguments, "test.jsonl", "line 2", "label")
    arguments[arguments.index("--train") + 1] = str(tmp_path / "a.txt")
    (tmp_path / "a.txt").touch()
    fails(classification, arguments, "a.txt", "*.tsv", "*.jsonl")


@pytest.mark.parametrize("kinds", [(0, 1, 0.0), (1, 0, True), ("1", "0", 1)])
def test_labels_of_several_json_types(command, tmp_path, fails, kinds):
    rows = [{**row, "kind": kind} for row, kind in zip(ROWS, kinds, strict=True)]
    arguments = command(".jsonl", train=rows, valid=rows[:2])
    parts = "train.jsonl", "line 3", json.dumps(kinds[2]), "type"
    fails(classification, arguments, *parts, dest=tmp_path / "data.jsonl")


@pytest.mark.parametrize("kinds", [(0, 1), (False, True)])
def test_a_label_without_a_value_sets_no_type(command, tmp_path, kinds):
    rows = [{**ROWS[0], "kind": kind} for kind in (None, *kinds, kinds[0])]
    rows.append({"title": "No label here"})
    arguments = command(".jsonl", train=rows, valid=rows[1:])
    assert classification([*arguments, "--skip-malformed"]) == 0
    report = report_of(tmp_path / "data.jsonl")
    reasons = {"no label": [1], "no column 'kind'": [5]}
    assert report["malformed"]["train"]["reasons"] == reasons
    expected = [json.dumps(kind) for kind in kinds]
    assert (report["splits"]["train"], report["labels"]) == (3, expected)


def test_numbers_of_several_json_types(command, tmp_path):
    rows = [{**row, "kind": n} for row, n in zip(ROWS, (1, 0.5, 2), strict=True)]
    arguments = command(".jsonl", train=rows, valid=rows[:2])
    assert classification([*arguments, "--regression"]) == 0
    labels = (tmp_path / "data.jsonl/label/train.label").read_text().split()
    assert list(map(float, labels)) == [1, 0.5, 2]


def numbers(lines):
    return [np.array([int(n) for n in s.split()] + [EOS]) for s in lines]


def test_a_single_text_fits_with_its_two_special_symbols():
    (texts,), truncated = fitting([numbers(["7 8 9 10", "7 8 9 10 11", ""])], 6)
    assert [ids.tolist() for ids in texts] == [[7, 8, 9, 10, 2], [7, 8, 9, 10, 2], [2]]
    assert truncated == 1


def test_a_pair_fits_with_its_four_special_symbols():
    columns = ["7 8 9", "7 8 9", "7"], ["10 11", "10 11 12 13", "10 11 12 13 14 15"]
    (texts, pairs), truncated = fitting([*map(numbers, columns)], 9)
    assert [ids.tolist() for ids in texts] == [[7, 8, 9, 2], [7, 8, 9, 2], [7, 2]]
    assert [ids.tolist() for ids in pairs] == [
        [10, 11, 2],
        [10, 11, 2],
        [10, 11, 12, 13, 2],
    ]
    assert truncated == 2
