"""train.log: a JSON object a line, whatever happened to the writer before."""

import json
import math

import pytest

from fairseq_transnormer.data.training_records import LOG, append_record


def lines(folder):
    return (folder / LOG).read_text().splitlines()


def test_records_are_appended_as_strict_json(tmp_path):
    append_record(tmp_path, "train_inner", {"num_updates": 1_234_567, "loss": 7.25})
    append_record(tmp_path, "valid", {"valid_loss": math.nan, "valid_ppl": math.inf})

    def refuse(name):
        raise AssertionError(f"{name} is no JSON")

    assert [json.loads(each, parse_constant=refuse) for each in lines(tmp_path)] == [
        {"kind": "train_inner", "num_updates": 1_234_567, "loss": 7.25},
        {"kind": "valid", "valid_loss": None, "valid_ppl": None},
    ]


def test_a_line_that_was_cut_off_stays_alone(tmp_path):
    append_record(tmp_path, "train_inner", {"num_updates": 1})
    with (tmp_path / LOG).open("a") as file:
        file.write('{"kind": "train_in')
    append_record(tmp_path, "train_inner", {"num_updates": 2})
    first, broken, second = lines(tmp_path)
    assert broken == '{"kind": "train_in'
    assert [json.loads(each)["num_updates"] for each in (first, second)] == [1, 2]


def test_a_part_of_a_line_is_an_error(tmp_path, full_disk):
    """The system takes it without one."""
    append_record(tmp_path, "train_inner", {"num_updates": 1})
    with full_disk(60), pytest.raises(OSError):
        append_record(tmp_path, "train_inner", {"num_updates": 2})
    assert len((tmp_path / LOG).read_bytes()) == 60
