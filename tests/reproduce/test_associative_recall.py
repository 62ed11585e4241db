"""The tables of associative recall: data of the pairs that a column names."""

import itertools

import pytest

from data_prep.symbols.recall import main as make_recall
from fairseq_transnormer.reproduce.errors import ReproduceError
from fairseq_transnormer.reproduce.tables.associative_recall import (
    RecallMixture,
    RecallText,
)
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


@pytest.fixture(scope="module")
def mixture(tmp_path_factory):
    """Folders of the table's numbers of pairs."""
    folder = tmp_path_factory.mktemp("mixture")
    for pairs in CAPACITY.columns:
        words = ["--dest", str(folder / pairs), "--pairs", pairs, "--length"]
        words += [str(4 * int(pairs)), "--vocabulary", "512", "--counts", "2", "1", "1"]
        assert make_recall(words) == 0
    return folder


def conditions(data, preset="small"):
    return Conditions(
        CONFIGS,
        CONFIGS.parent,
        load_preset(CONFIGS, preset),
        data={"associative_recall": data, "recall_capacity": data},
    )


# each row with one of the columns
@pytest.mark.parametrize(
    ("row", "column"), zip(TABLE.rows, itertools.cycle(TABLE.columns), strict=False)
)
def test_a_row_composes_and_builds(data, row, column):
    cell = TABLE.cell(row, column)
    made = job_of(cell).plan(cell, conditions(data))
    assert made.data == str(data / "4")
    task, model = made.configuration["task"], made.configuration["model"]
    assert (task["pairs"], task["stacked"]) == (4, column == "stacked")
    assert (str(model["ffn_type"]), model["num_heads"]) == ("none", 1)
    assert model["embed_dim"] == 64


@pytest.mark.parametrize("row", CAPACITY.rows)
def test_capacity_is_of_equal_models_and_one_training(mixture, row):
    cells = [CAPACITY.cell(row, column) for column in CAPACITY.columns]
    made = job_of(cells[0]).plan(cells[0], conditions(mixture))
    names = {job_of(cell).name(cell, conditions(mixture)) for cell in cells}
    assert names == {made.name} and made.data == str(mixture)
    task, model = (made.configuration[key] for key in ("task", "model"))
    assert (task["pairs"], task["stacked"], model["embed_dim"]) == (0, True, 64)
    assert [*CAPACITY.columns] == task["mixture"].split(",")
    assert f"heads of {64 // model['num_heads']}" in row


@pytest.mark.parametrize("preset", ["smoke", "small", "paper"])
def test_each_number_of_pairs_of_a_mixture_has_as_many_values(mixture, preset):
    """Of training's lines; a batch has 1,024, or 64 lines."""
    settings = load_preset(CONFIGS, preset).task("recall_capacity")
    cell = CAPACITY.cell("Softmax, heads of 64", "4")
    made = job_of(cell).plan(cell, conditions(mixture, preset)).configuration["dataset"]
    values, batches = set(), {}
    for command in settings.prepare:
        options = dict(zip(command[4:-4:2], command[5:-4:2], strict=True))
        pairs, length = int(options["--pairs"]), int(options["--length"])
        assert options["--dest"] == f"{settings.data}/{pairs}"
        lines = min(made["max_tokens"] // (length - pairs), made["batch_size"])
        batches[pairs] = lines * pairs
        values.add(int(command[-3]) * pairs)
    assert len(values) == 1
    assert batches == {4: 256, 16: 1024, 64: 1024, 256: 1024}


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


def test_wrong_data_of_a_mixture_are_named(data):
    assert RecallMixture(data, "recall_capacity", "4,2").fault() is None
    for mixture, *named in (("4,8", data / "8"), ("4,x", "4,x")):
        assert_names(RecallMixture(data, "recall_capacity", mixture).fault(), *named)
    (data / "2" / "valid.bin").rename(data / "valid.bin")
    try:
        fault = RecallMixture(data, "recall_capacity", "4,2").fault()
    finally:
        (data / "valid.bin").rename(data / "2" / "valid.bin")
    assert_names(fault, data / "2", "valid.bin")


def test_each_part_of_a_mixture_counts(data):
    both, one, other = (
        RecallMixture(data, "recall_capacity", mixture).fingerprint()
        for mixture in ("4,2", "4", "2")
    )
    assert len({both, one, other}) == 3


def test_other_pairs_are_other_data(data):
    first, second = (
        RecallText(data / pairs, "associative_recall", int(pairs)).fingerprint()
        for pairs in ("4", "2")
    )
    assert first != second
