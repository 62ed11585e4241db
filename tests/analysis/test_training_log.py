"""What fairseq's logs say, read back."""

import logging
import math

import pytest
from fairseq.logging import progress_bar

from fairseq_transnormer.analysis.training_log import read_training_log
from fairseq_transnormer.data.training_records import LOG, append_record
from tests.messages import refuses

from .logs import training_log

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
    """logged(start): an epoch of 4 updates as fairseq's --log-format json has it."""

    def log(start: str) -> str:
        caplog.clear()
        caplog.set_level(logging.INFO, "fairseq.logging.progress_bar")
        bar = progress_bar.progress_bar(range(4), "json", 2, epoch=3)
        rows = iter(EXPECTED["train_inner"])
        for i, _ in enumerate(bar, 1):
            if i % 2 == 0:
                number, loss, norm = map(float, next(rows))
                stats = {"loss": loss, "num_updates": number, "gnorm": norm}
                bar.log(stats, tag="train_inner", step=i)
        stats = {"loss": 6.75, "num_updates": 4, "best_loss": 6.7}
        prefix = "valid on 'valid' subset"
        subset = progress_bar.progress_bar(range(2), "json", epoch=3, prefix=prefix)
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
def test_what_fairseq_prints(logged, tmp_path, start):
    assert read(logged(start), tmp_path) == EXPECTED


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
