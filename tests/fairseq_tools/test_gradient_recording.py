"""Recorded gradients of real runs against the norm that fairseq logs."""

import json

import pytest

from fairseq_transnormer.analysis.gradient_statistics import (
    norm_of,
    read_gradient_series,
)

from .conftest import logged, training_arguments

ARCH = "transnormer_t1_tiny"


def logged_norms(text: str) -> list[float]:
    return [float(record["gnorm"]) for record in logged(text, "train_inner")]


@pytest.fixture
def logged_by(fairseq_tool, caplog):
    """Train in this process; returns the norms that fairseq logs."""

    def run(data, arch, save_dir, *flags, **options):
        caplog.clear()
        caplog.set_level("INFO")
        options = {"gradient_statistics": save_dir / "gradients.jsonl"} | options
        arguments = training_arguments(arch, save_dir, **options)
        fairseq_tool("train", data, *arguments, "--disable-validation", *flags)
        lines = (f"| INFO | {each.name} | {each.message}" for each in caplog.records)
        return logged_norms("\n".join(lines))

    return run


@pytest.mark.parametrize(
    ("arch", "flags"),
    [
        (ARCH, ()),
        (ARCH, ("--bf16", "--update-freq", 2)),
        (ARCH, ("--fp16", "--fp16-no-flatten-grads", "--fp16-init-scale", 4)),
        ("roberta_transnormer_t2_tiny", ()),
    ],
    ids=["float32", "bf16", "fp16", "encoder"],
)
def test_norms_are_those_that_fairseq_logs(arch, flags, data_bin, tmp_path, logged_by):
    norms = logged_by(data_bin, arch, tmp_path, *flags, max_update=3)
    path = tmp_path / "gradients.jsonl"
    series = read_gradient_series(path)
    assert [*series.index] == [1, 2, 3]
    _, *lines = map(json.loads, path.read_text().splitlines())
    assert {line["sequences"] for line in lines} == {16 if "--bf16" in flags else 8}
    # fairseq logs three decimals
    assert norm_of(series).tolist() == pytest.approx(norms, abs=6e-4, rel=1e-5)


def test_a_resumed_run_appends_to_its_file(data_bin, tmp_path, logged_by):
    folder, path = tmp_path / "run", tmp_path / "run" / "gradients.jsonl"
    whole = logged_by(data_bin, ARCH, tmp_path / "whole", max_update=6)
    logged_by(data_bin, ARCH, folder, max_update=4)
    # of updates behind the checkpoint, which a killed run would have left
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines) + lines[-1].replace('"update":4', '"update":5'))
    logged_by(data_bin, ARCH, folder, max_update=6)
    series = read_gradient_series(path)
    assert [*series.index] == [1, 2, 3, 4, 5, 6]
    assert norm_of(series).tolist() == pytest.approx(whole, abs=6e-4)
    # another run, that begins at update 7, has lines of its own
    options = {"gradient_statistics": path, "max_update": 8}
    options["restore_file"] = folder / "checkpoint_last.pt"
    logged_by(data_bin, ARCH, tmp_path / "other", **options)
    assert [*read_gradient_series(path).index] == [7, 8]
    assert read_gradient_series(f"{path}.earlier-1").equals(series)
