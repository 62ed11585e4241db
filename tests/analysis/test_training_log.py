"""What fairseq's logs say, read back; and the summary made of it."""

import json
import logging
import math

import pytest
from fairseq.logging import progress_bar

from fairseq_transnormer.analysis import summary
from fairseq_transnormer.analysis.training_log import (
    read_evaluation_log,
    read_training_log,
)
from fairseq_transnormer.data.training_records import LOG, append_record
from tests.messages import command_refuses, refuses

from .logs import line, training_log


def test_records_in_order_with_the_later_of_two(tmp_path):
    log = tmp_path / "train.log"
    # a resumed run writes some updates again
    first = training_log([(10, 5.0), (20, 4.0), (30, 3.5)], done=False)
    log.write_text(first + training_log([(20, 4.1), (30, 3.4)], [(30, 17.5)]))
    records = read_training_log(log)
    assert [(r["num_updates"], r["loss"]) for r in records["train_inner"]] == [
        ("10", "5.0"),
        ("20", "4.1"),
        ("30", "3.4"),
    ]
    assert [r["valid_ppl"] for r in records["valid"]] == ["17.5"]


# what stands in front of what is logged: fairseq-train's, Hydra's, --log-file's
STARTS = {
    "fairseq": "2026-01-01 00:00:00 | INFO | {name} | ",
    "hydra": "[2026-01-01 00:00:00,000][{name}][INFO] - ",
    "log_file": "",
}
EXPECTED = {
    "train_inner": [("2", "7.125", "0.25"), ("4", "6.5", "0.5")],
    "valid": [("4", "6.75", None)],
}


@pytest.fixture
def logged(caplog):
    """logged(format, start): an epoch of 4 updates as a class of fairseq logs it."""

    def log(log_format: str, start: str) -> str:
        caplog.clear()
        caplog.set_level(logging.INFO, "fairseq.logging.progress_bar")
        bar = progress_bar.progress_bar(range(4), log_format, 2, epoch=3)
        rows = iter(EXPECTED["train_inner"])
        for i, _ in enumerate(bar, 1):
            if i % 2 == 0:
                number, loss, norm = map(float, next(rows))
                stats = {"loss": loss, "num_updates": number, "gnorm": norm}
                bar.log(stats, tag="train_inner", step=i)
        stats = {"loss": 6.75, "num_updates": 4, "best_loss": 6.7}
        prefix = "valid on 'valid' subset"
        subset = progress_bar.progress_bar(range(2), log_format, epoch=3, prefix=prefix)
        subset.print(stats, tag="valid", step=4)
        bar.print({"loss": 6.8, "num_updates": 4}, tag="train", step=4)
        return "\n".join(
            STARTS[start].format(name=each.name) + each.getMessage()
            for each in caplog.records
        )

    return log


def read(log: str, tmp_path) -> dict[str, list[tuple]]:
    (tmp_path / "log").write_text(log)
    records = read_training_log(tmp_path / "log")
    return {
        kind: [
            tuple(each.get(prefix + name) for name in ("num_updates", "loss", "gnorm"))
            for each in records[kind]
        ]
        for kind, prefix in (("train_inner", ""), ("valid", "valid_"))
    }


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("log_format", ["json", "simple"])
def test_formats_of_fairseq(logged, tmp_path, log_format, start):
    assert read(logged(log_format, start), tmp_path) == EXPECTED


def test_a_log_of_epochs_alone(logged, tmp_path):
    """--log-format tqdm in a file: what was logged within an epoch was on the bar."""
    lines = logged("simple", "fairseq").splitlines()
    kept = "\n".join(each for each in lines if "train_inner" not in each)
    assert read(kept, tmp_path) == {
        "train_inner": [("4", "6.8", None)],
        "valid": EXPECTED["valid"],
    }


def test_fairseqs_bar(tmp_path, capsys, caplog):
    # shown to those who see its other lines
    caplog.set_level(logging.INFO, "fairseq")
    bar = progress_bar.TqdmProgressBar(range(4), epoch=3)
    bar.tqdm.mininterval, bar.tqdm.miniters = 0, 1
    rows = iter(EXPECTED["train_inner"])
    for i, _ in enumerate(bar, 1):
        if i % 2 == 0:
            number, loss, norm = map(float, next(rows))
            bar.log({"loss": loss, "num_updates": int(number), "gnorm": norm})
            bar.tqdm.refresh()
    shown = capsys.readouterr().err
    assert "|" in shown and "\r" in shown
    assert read(shown, tmp_path)["train_inner"] == EXPECTED["train_inner"]


def test_a_train_log_and_its_folder(tmp_path):
    folder = tmp_path / "run" / "checkpoints"
    folder.mkdir(parents=True)
    for number, loss in ((2, 7.125), (1_234_567, math.inf), (2, 7.0)):
        values = {"epoch": 1, "loss": loss, "num_updates": number}
        append_record(folder, "train_inner", values)
    append_record(folder, "valid", {"valid_loss": 6.5, "valid_num_updates": 2})
    with (folder / LOG).open("a") as file:
        file.write('{"kind": "train_inner", "num_upd')
    for place in (folder / LOG, folder, folder.parent):
        records = read_training_log(place)
        (one, two), (valid,) = records["train_inner"], records["valid"]
        assert (one["loss"], two["num_updates"]) == (7.0, 1_234_567)
        assert math.isnan(two["loss"]) and valid["valid_loss"] == 6.5


def test_more_than_a_million_updates_in_fairseqs_json(tmp_path):
    log = training_log([("1e+06", 5.0), ("1.2e+06", 4.0)], [("1.2e+06", 17.5)])
    assert [each[0] for each in read(log, tmp_path)["train_inner"]] == [
        "1000000",
        "1200000",
    ]


def test_logs_without_records_are_refused(tmp_path):
    log = tmp_path / "other.log"
    log.write_text("nothing of the kind\n")
    with refuses(ValueError, log, "training records", "fairseq-train"):
        read_training_log(log)
    with refuses(ValueError, log, "perplexity", "fairseq-eval-lm"):
        read_evaluation_log(log)


def test_summary(tmp_path, capsys):
    log, before = tmp_path / "train.log", tmp_path / "before.log"
    log.write_text(training_log([(10, 5.0), (20, 4.0)], [(20, 17.5)]))
    before.write_text("... | Loss (base 2): 9.97, Perplexity: 1000.25\n")
    plot = tmp_path / "loss.png"
    arguments = ["--log", str(log), "--evaluations", str(before), "--plot", str(plot)]
    arguments += ["--json", str(tmp_path / "summary.json")]
    assert summary.main(arguments) == 0
    read = json.loads((tmp_path / "summary.json").read_text())
    assert read["perplexities"] == {"before": 1000.25}
    assert [r["loss"] for r in read["train_inner"]] == ["5.0", "4.0"]
    table = capsys.readouterr().out
    for value in ("20", "5.0", "4.0", "100.5", "17.5", "1000.25"):
        assert f" {value} |" in table
    assert plot.read_bytes().startswith(b"\x89PNG")


def test_a_summary_of_a_log_that_lacks_some_values(tmp_path, capsys):
    log, plot = tmp_path / "train.log", tmp_path / "loss.png"
    records = [{"num_updates": 10, "loss": 5.0}, {"num_updates": 20, "gnorm": 1.0}]
    log.write_text("".join(line("train_inner", each) for each in records))
    assert summary.main(["--log", str(log), "--plot", str(plot)]) == 0
    cells = [row.split("|")[2].strip() for row in capsys.readouterr().out.splitlines()]
    assert cells == ["20", "5.0", "-", "-"] and plot.exists()


def test_evaluations_of_one_name_are_told_apart(tmp_path, capsys):
    log = tmp_path / "train.log"
    log.write_text(training_log([(10, 5.0), (20, 4.0)], [(20, 17.5)]))
    paths = []
    for folder, ppl in (("a", 77.12), ("b", 88.0)):
        paths.append(tmp_path / folder / "eval.log")
        paths[-1].parent.mkdir()
        paths[-1].write_text(f"... | Loss (base 2): 6.1, Perplexity: {ppl}\n")
    target = tmp_path / "summary.json"
    words = ["--log", log, "--json", target, "--evaluations", *paths]
    assert summary.main([str(word) for word in words]) == 0
    found = json.loads(target.read_text())["perplexities"]
    assert found == {str(paths[0]): 77.12, str(paths[1]): 88.0}


def test_summary_of_a_missing_log(tmp_path, capsys):
    log = tmp_path / "none.log"
    command_refuses(summary.main, ["--log", log], capsys, log)


def test_summary_of_a_classifier(tmp_path, capsys):
    log = tmp_path / "train.log"
    text = training_log([(10, 5.0)], [(10, 17.5)])
    log.write_text(text.replace("valid_ppl", "valid_accuracy"))
    assert summary.main(["--log", str(log)]) == 0
    table = capsys.readouterr().out
    assert " 17.5 |" in table and "accuracy" in table and "perplexity" not in table
