"""GLUE from each accepted form to sentence_prediction, and mistakes in its copies."""

import pytest

from data_prep.labelled_texts.glue import TASKS
from tests.messages import lines_naming

from .binary_reading import encoder_of, read_dictionary, read_ids
from .commands import glue
from .glue_copies import (
    QUOTED,
    hub_dataset,
    report_of,
    table_of,
    write_hub_layout,
    write_originals,
    write_tsv,
)


@pytest.fixture
def prepare(tmp_path, pretraining_data):
    def run(source, *options):
        dest = tmp_path / "glue"
        command = [*options, "--dest", dest, "--from-dir", source]
        command += ["--data", pretraining_data, "--allow-other-sizes"]
        assert glue([str(each) for each in [*command, "--workers", 1]]) == 0
        return dest

    return run


@pytest.fixture
def originals(tmp_path):
    return write_originals(tmp_path / "originals")


def classes(folder, split):
    return [ids[0] - 4 for ids in read_ids(folder / "label", split)]


def test_the_original_files_of_every_task(originals, prepare, pretraining_data, capsys):
    dest = prepare(originals, *TASKS)
    encode = encoder_of(pretraining_data)

    mnli = report_of(dest / "MNLI")
    assert mnli["splits"] == {
        **{"train": 4, "valid": 4, "valid1": 4, "test": 2, "test1": 2}
    }
    assert mnli["labels"] == ["entailment", "neutral", "contradiction"]
    assert classes(dest / "MNLI", "train") == [1, 0, 2, 1]
    assert not (dest / "MNLI/label/test.idx").exists()
    assert mnli["malformed"]["valid1"] == {"skipped": 1, "reasons": {"no label": [6]}}
    premise = encode(["premise 1 mismatched", "then 1 so"])
    assert read_ids(dest / "MNLI/input0", "valid1")[1] == premise[0].tolist()
    assert read_ids(dest / "MNLI/input1", "valid1")[1] == premise[1].tolist()

    assert table_of(dest / "QNLI", "train")[0][1] == QUOTED
    assert classes(dest / "QNLI", "valid") == [1, 0]

    qqp = report_of(dest / "QQP")["malformed"]["train"]
    assert qqp["skipped"] == 4 and qqp["reasons"] == {
        "4 columns instead of 6": [3],
        "3 columns instead of 6": [4],
        "7 columns instead of 6": [5],
        "an empty text": [6],
    }
    assert lines_naming(capsys.readouterr().out, "left out 1", "4 columns", 6, "line 3")
    # a submission needs an answer to every test question
    assert table_of(dest / "QQP", "test") == [
        ["0", "First?", "Second?", ""],
        ["1", "Only this?", "", ""],
    ]
    assert [row[0] for row in table_of(dest / "QQP", "train")] == ["10", "14"]

    assert classes(dest / "CoLA", "train") == [1, 0, 1]
    assert table_of(dest / "CoLA", "train")[1] == ["1", "They ate it it.", "", "0"]
    assert not (dest / "CoLA/input1").exists()
    assert read_dictionary(dest / "CoLA/label").symbols[4:] == ["0", "1"]

    assert [row[1] for row in table_of(dest / "MRPC", "train")] == [
        "One text.",
        '"Three" it was.',
    ]
    assert classes(dest / "MRPC", "valid") == [0]

    stsb = report_of(dest / "STS-B")
    assert stsb["regression"] and stsb["labels"] == [] and stsb["target_scale"] == 5
    assert (dest / "STS-B/label/train.label").read_text() == "0.25\n1.0\n"
    assert not (dest / "STS-B/label/dict.txt").exists()


def test_mrpc_by_train_and_dev_files(originals, prepare):
    folder = originals / "MRPC"
    header = ["Quality", "#1 ID", "#2 ID", "#1 String", "#2 String"]
    write_tsv(folder / "train.tsv", header, [0, 1, 2, "A.", "B."], [1, 3, 4, "C", "D"])
    write_tsv(folder / "dev.tsv", header, [1, 5, 6, "E.", "F."])
    write_tsv(folder / "test.tsv", ["index", *header[1:]], [0, 7, 8, "G.", "H."])
    dest = prepare(originals, "MRPC")
    assert table_of(dest / "MRPC", "train")[1] == ["1", "C", "D", "1"]
    assert report_of(dest / "MRPC")["splits"] == {"train": 2, "valid": 1, "test": 1}


def test_datasets_give_what_the_original_files_give(originals, prepare, tmp_path):
    rows = [["How is it?", "How is that?", 1], ["Why?", "Who?", 0]]
    test = [["First?", "Second?", -1], ["Only this?", "", -1]]
    splits = {"train": [*rows, ["Why?", "", 0]], "validation": rows, "test": test}
    scores = [["A cat.", "A dog.", 1.25], ["A.", "A.", 5.0]]
    stsb = {"train": scores, "validation": scores, "test": [["A cat.", "A dog.", -1.0]]}
    for task, content in (("QQP", splits), ("STS-B", stsb)):
        folder = tmp_path / "parquet" / TASKS[task].config
        write_hub_layout(folder, hub_dataset(task, content))
    dest = prepare(tmp_path / "parquet", "QQP", "STS-B").rename(
        tmp_path / "of-datasets"
    )
    original = prepare(originals, "QQP", "STS-B")
    for name in ("QQP", "STS-B"):
        files = [path.relative_to(dest) for path in (dest / name).rglob("*.*")]
        same = [path for path in files if path.suffix in (".bin", ".idx", ".label")]
        assert len(same) >= 12
        for path in same:
            assert (dest / path).read_bytes() == (original / path).read_bytes(), path
    # the hub's own index
    assert [row[0] for row in table_of(dest / "QQP", "test")] == ["0", "1"]
    reasons = report_of(dest / "QQP")["malformed"]["train"]["reasons"]
    assert reasons == {"an empty text": [3]}


@pytest.mark.parametrize("form", ["originals", "parquet"])
def test_mnlis_matched_and_mismatched_sets_stay_apart(
    originals, prepare, tmp_path, form
):
    """Each split of every form of a copy has its own rows: columns of Table 5."""
    source = originals
    if form != "originals":
        source = tmp_path / form
        content = {
            f"{split}_{kind}": [[f"premise {n} {kind}", "so", label] for n in range(2)]
            for split, label in (("validation", 1), ("test", -1))
            for kind in ("matched", "mismatched")
        }
        content["train"] = [["premise 0 train", "so", 0]]
        write_hub_layout(source / "mnli", hub_dataset("MNLI", content))
    dest = prepare(source, "MNLI") / "MNLI"
    kinds = {
        split: {row[1].split()[-1] for row in table_of(dest, split)}
        for split in ("train", "valid", "valid1", "test", "test1")
    }
    assert kinds == {
        "train": {"train"},
        "valid": {"matched"},
        "valid1": {"mismatched"},
        "test": {"matched"},
        "test1": {"mismatched"},
    }


def test_again_nothing_to_do_and_other_settings_are_named(
    originals, prepare, capsys, fails, pretraining_data
):
    dest = prepare(originals, "CoLA")
    before = (dest / "CoLA/report.json").stat().st_mtime_ns
    prepare(originals, "CoLA")
    assert "already complete" in capsys.readouterr().out
    assert (dest / "CoLA/report.json").stat().st_mtime_ns == before
    command = ["CoLA", "--dest", dest, "--from-dir", originals, "--max-positions", 16]
    command += ["--data", pretraining_data, "--allow-other-sizes"]
    fails(glue, command, dest / "CoLA", "max_positions", 512, 16, "--overwrite")


@pytest.fixture
def mistake(tmp_path, pretraining_data, fails):
    source = write_originals(tmp_path / "originals")

    def run(task, *parts, options=("--allow-other-sizes",), source=source):
        dest = tmp_path / "glue"
        command = [task, "--dest", dest, "--from-dir", source, *options]
        command += ["--data", pretraining_data, "--workers", 1]
        fails(glue, command, *parts, dest=dest / task)

    run.source = source
    return run


@pytest.mark.parametrize(
    ("name", "old", "new", "parts"),
    [
        (
            "RTE/dev.tsv",
            b"not_entailment",
            b"no",
            ["line 3", "'no'", "entailment, not_entailment"],
        ),
        *(
            ("STS-B/train.tsv", b"1.250", score, ["line 2", score.decode()])
            for score in (b"high", b"nan", b"5.5")
        ),
        ("QNLI/test.tsv", b"sentence", b"answer", ["no column 'sentence'", "question"]),
        # each needs an answer, in its place
        ("STS-B/test.tsv", b"A dog.", b"A dog.\textra", ["line 2", "columns"]),
        (
            "QQP/train.tsv",
            b"cuts",
            b"1\t2\tcut\n" * 20 + b"cuts",
            ["24 of", "1 in 100"],
        ),
        *(
            (name, None, None, ["no such file"])
            for name in ("CoLA/test.tsv", "MNLI/dev_mismatched.tsv", "MRPC/dev_ids.tsv")
        ),
    ],
)
def test_a_file_with_a_fault(mistake, name, old, new, parts):
    path = mistake.source / name
    content = path.read_bytes()
    path.unlink()
    if old:
        assert old in content
        path.write_bytes(content.replace(old, new))
    mistake(name.split("/")[0], name, *parts)


def test_no_copy_of_the_task(mistake, tmp_path):
    empty = tmp_path / "empty"
    empty.mkdir()
    mistake("CoLA", "no copy of CoLA", "dev.tsv", source=empty)
    mistake("CoLA", "no copy of CoLA", source=tmp_path / "none")


def test_sizes_are_those_of_the_benchmark(mistake):
    parts = ["CoLA train", "3 examples", "expected 8,551", "--allow-other-sizes"]
    mistake("CoLA", *parts, options=())


def qqp(rows):
    return {"train": rows, "validation": rows, "test": [["A?", "B?", -1]]}


def test_classes_in_another_order(mistake, tmp_path):
    import datasets

    dataset = hub_dataset("QQP", qqp([["A?", "B?", 1]]))
    names = datasets.ClassLabel(names=["duplicate", "not_duplicate"])
    dataset["train"] = dataset["train"].cast_column("label", names)
    write_hub_layout(tmp_path / "hub" / "qqp", dataset)
    parts = ["got duplicate, not_duplicate", "in this order, not_duplicate, duplicate"]
    mistake("QQP", *parts, source=tmp_path / "hub")


def test_the_hub_is_read(tmp_path, pretraining_data, monkeypatch):
    import datasets

    rows = qqp([["A?", "B?", 1], ["C?", "D?", 0]])
    content = hub_dataset("QQP", rows)

    def load(name, config, revision):
        assert (name, config) == ("nyu-mll/glue", TASKS["QQP"].config)
        assert revision == "bcdcba79d07bc864c1c254ccfcedcce55bcc9a8c"
        return content

    monkeypatch.setattr(datasets, "load_dataset", load)
    command = ["QQP", "--dest", tmp_path / "glue", "--data", pretraining_data]
    command += ["--allow-other-sizes", "--workers", 1]
    assert glue([str(each) for each in command]) == 0
    text = (tmp_path / "glue/QQP/train.tsv").read_text()
    assert text.splitlines()[1:] == ["0\tA?\tB?\t1", "1\tC?\tD?\t0"]
