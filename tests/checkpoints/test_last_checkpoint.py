"""What a run resumes from: repaired where it can be, refused where it must be."""

import os

import torch

from fairseq_transnormer.checkpoints.files import (
    check_last_checkpoint,
    repair_last_checkpoint,
)
from tests.messages import refuses


def test_a_checkpoint_of_another_architecture_is_refused(tmp_path):
    check_last_checkpoint("transnormer_t1", tmp_path)
    cfg = {"model": {"_name": "transnormer_t2"}}
    torch.save({"model": {}, "cfg": cfg}, tmp_path / "checkpoint_last.pt")
    check_last_checkpoint("transnormer_t2", tmp_path)
    last = tmp_path / "checkpoint_last.pt"
    with refuses(ValueError, last, "transnormer_t2", "transnormer_t1", "--save-dir"):
        check_last_checkpoint("transnormer_t1", tmp_path)


def test_a_damaged_last_checkpoint_gives_way_to_the_newest(tmp_path):
    last = tmp_path / "checkpoint_last.pt"
    assert repair_last_checkpoint(tmp_path) is None
    for age, name in enumerate(
        ["checkpoint_best", "checkpoint_1_20", "checkpoint_1_10"]
    ):
        path = tmp_path / f"{name}.pt"
        torch.save({"model": {}, "name": name}, path)
        os.utime(path, (1000 - age, 1000 - age))
    torch.save({"model": {}, "name": "last"}, last)
    assert repair_last_checkpoint(tmp_path) is None
    for name in ("checkpoint_last.pt", "checkpoint_best.pt"):
        path = tmp_path / name
        path.write_bytes(path.read_bytes()[:-50])
    assert repair_last_checkpoint(tmp_path).name == "checkpoint_1_20.pt"
    assert torch.load(last)["name"] == "checkpoint_1_20"
    assert (tmp_path / "checkpoint_last.pt.damaged").exists()


def test_a_damaged_checkpoint_without_another_is_an_error(tmp_path):
    (tmp_path / "checkpoint_last.pt").write_bytes(b"PK\x03\x04 half a file")
    with refuses(ValueError, tmp_path, "no complete checkpoint"):
        repair_last_checkpoint(tmp_path)
