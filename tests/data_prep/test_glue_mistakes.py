"""Mistakes in GLUE's copies: one message that names file, line, field and value."""

import pytest

from data_prep.labelled_texts import glue
from data_prep.labelled_texts.glue_tasks import TASKS

from .glue_copies import hub_dataset, write_hub_layout, write_originals


@pytest.fixture
def mistake(tmp_path, pretraining_data, fails):
    source = write_originals(tmp_path / "originals")

    def run(task, *parts, options=("--allow-other-sizes",), source=source):
        dest = tmp_path / "glue"
        command = [task, "--dest", dest, "--from-dir", source, *options]
        command += ["--data", pretraining_data, "--workers", 1]
        fails(glue.main, command, *parts, dest=dest / task)
        assert not (dest / f"{task}.partial").exists()

    run.source = source
    return run


@pytest.mark.parametrize(
    ("name", "old", "new", "parts"),
    [
        (
            "RTE/dev.tsv",
            b"not_entailment",
            b"no",
            ["line 3", "column 'label'", "label 'no'", "entailment, not_entailment"],
        ),
        *(
            ("STS-B/train.tsv", b"1.250", score, ["line 2", "'score'", score.decode()])
            for score in (b"5.5", b"high", b"nan")
        ),
        ("QNLI/test.tsv", b"sentence", b"answer", ["no column 'sentence'", "question"]),
        ("SST-2/dev.tsv", b"\n", b"\ncaf\xe9\t1\n", ["not UTF-8"]),
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
    mistake("CoLA", "no copy of CoLA", "save_to_disk", "dev.tsv", source=empty)
    mistake("CoLA", "no such folder", source=tmp_path / "none")


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
    parts = ["duplicate, not_duplicate", "in this order, not_duplicate, duplicate"]
    mistake("QQP", *parts, source=tmp_path / "hub")


def test_saved_dataset_without_a_split_or_a_column(mistake, tmp_path):
    dataset = hub_dataset("QQP", qqp([["A?", "B?", 1]]))
    dataset["train"] = dataset["train"].rename_column("question2", "other")
    dataset.save_to_disk(str(tmp_path / "one" / "QQP"))
    mistake("QQP", "no column 'question2'", "other", source=tmp_path / "one")
    del dataset["validation"]
    dataset.save_to_disk(str(tmp_path / "two" / "QQP"))
    mistake("QQP", "no split validation", source=tmp_path / "two")


def test_truncated_parquet(mistake, tmp_path):
    dataset = hub_dataset("QQP", qqp([["A?", "B?", 1]]))
    folder = tmp_path / "hub" / "qqp"
    write_hub_layout(folder, dataset)
    path = folder / "test-00000-of-00001.parquet"
    path.write_bytes(path.read_bytes()[:-9])
    mistake("QQP", path.name, "truncated", source=tmp_path / "hub")


def test_unreachable_hub_names_the_way_out(
    tmp_path,
    pretraining_data,
    fails,
    monkeypatch,
    waits,
):
    import datasets

    def load(name, config, revision):
        raise ConnectionError(f"cannot reach {name}")

    monkeypatch.setattr(datasets, "load_dataset", load)
    dest = tmp_path / "glue"
    command = ["cola", "--dest", dest, "--data", pretraining_data]
    parts = ["nyu-mll/glue (cola)", "ConnectionError", "--from-dir"]
    fails(glue.main, command, *parts, dest=dest)


def test_the_hub_is_read(tmp_path, pretraining_data, monkeypatch):
    import datasets

    rows = qqp([["A?", "B?", 1], ["C?", "D?", 0]])
    content = hub_dataset("QQP", rows)

    def load(name, config, revision):
        assert (name, config) == ("nyu-mll/glue", TASKS["QQP"].config)
        assert revision == "bcdcba79d07bc864c1c254ccfcedcce55bcc9a8c"
        return content

    monkeypatch.setattr(datasets, "load_dataset", load)
    command = ["qqp", "--dest", tmp_path / "glue", "--data", pretraining_data]
    command += ["--allow-other-sizes", "--workers", 1]
    assert glue.main([str(each) for each in command]) == 0
    text = (tmp_path / "glue/QQP/train.tsv").read_text()
    assert text.splitlines()[1:] == ["0\tA?\tB?\t1", "1\tC?\tD?\t0"]
