"""The tables of associative recall: data of the pairs that a column names."""

import pytest

from data_prep.symbols.recall import main as make_recall
from fairseq_transnormer.reproduce.errors import ReproduceError
from fairseq_transnormer.reproduce.tables.associative_recall import RecallText
from fairseq_transnormer.reproduce.tables.definitions import load_table
from fairseq_transnormer.reproduce.tables.jobs import Conditions, job_of
from fairseq_transnormer.reproduce.tables.presets import load_preset
from tests.messages import assert_names, refuses
from tests.paths import CONFIGS

TABLE = load_table(CONFIGS, "recall")
CAPACITY = load_table(CONFIGS, "recall_capacity")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Folders of 4 and 2 pairs a line."""
    folder = tmp_path_factory.mktemp("recall")
    for pairs in ("4", "2"):
        words = ["--dest", str(folder / pairs), "--pairs", pairs, "--vocabulary", "32"]
        assert make_recall([*words, "--counts", "8", "2", "2"]) == 0
    return folder


def conditions(data, preset="small"):
    return Conditions(
        CONFIGS,
        CONFIGS.parent,
        load_preset(CONFIGS, preset),
        data={"associative_recall": data, "recall_capacity": data},
    )


@pytest.mark.parametrize("column", TABLE.columns)
@pytest.mark.parametrize("row", TABLE.rows)
def test_a_row_composes_and_builds(data, row, column):
    cell = TABLE.cell(row, column)
    made = job_of(cell).plan(cell, conditions(data))
    assert made.data == str(data / "4")
    task, model = made.configuration["task"], made.configuration["model"]
    assert (task["pairs"], task["stacked"]) == (4, column == "stacked")
    assert (str(model["ffn_type"]), model["num_heads"]) == ("none", 1)
    assert model["embed_dim"] == 64


@pytest.mark.parametrize("row", CAPACITY.rows)
def test_capacity_asks_for_equally_many_values_of_equal_models(data, row):
    for column in CAPACITY.columns:
        cell = CAPACITY.cell(row, column)
        found = job_of(cell).data(cell, conditions(data))
        assert (found.folder, found.pairs) == (data / column, int(column))
        assert cell.overrides["dataset.batch_size"] * int(column) == 1024
    made = job_of(cell).plan(CAPACITY.cell(row, "4"), conditions(data))
    task, model = made.configuration["task"], made.configuration["model"]
    assert (task["pairs"], task["stacked"], model["embed_dim"]) == (4, True, 64)
    assert f"heads of {64 // model['num_heads']}" in row
    assert made.configuration["dataset"]["batch_size"] == 256


def test_wrong_data_are_named(data):
    assert RecallText(data / "4", "associative_recall", 4).fault() is None
    fault = RecallText(data / "2", "associative_recall", 4).fault()
    assert_names(fault, "pairs=4", "2")
    fault = RecallText(data / "8", "associative_recall", 8).fault()
    assert_names(fault, data / "8", "dict.txt")
    cell = TABLE.cell("Softmax", "stacked")
    del cell.overrides["task.pairs"]
    with refuses(ReproduceError, "Softmax, stacked", "task.pairs"):
        job_of(cell).plan(cell, conditions(data))


def test_other_pairs_are_other_data(data):
    first, second = (
        RecallText(data / pairs, "associative_recall", int(pairs)).fingerprint()
        for pairs in ("4", "2")
    )
    assert first != second
