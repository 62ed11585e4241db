"""What fairseq's logs say, read back; and the summary made of it."""

import json

from fairseq_transnormer.analysis import summary
from fairseq_transnormer.analysis.training_log import (
    read_evaluation_log,
    read_training_log,
)
from tests.messages import command_refuses, refuses

from .logs import training_log


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


def test_summary_of_a_missing_log(tmp_path, capsys):
    log = tmp_path / "none.log"
    command_refuses(summary.main, ["--log", log], capsys, log)
