"""Figures of made logs, each worked out by hand."""

import json
import math

import numpy
import pytest

from fairseq_transnormer.reproduce.errors import ReproduceError
from fairseq_transnormer.reproduce.metrics import (
    METRICS,
    NotAskedFor,
    NotMeasured,
    RunResults,
)
from fairseq_transnormer.reproduce.runs import RunFolder
from tests.messages import refuses

from .made import record, saved, validations, write_run


@pytest.fixture
def results(tmp_path):
    """results(lines of a log, ...): of a run in a folder of its own."""

    def make(*log, **given):
        return RunResults(RunFolder(write_run(tmp_path / "a/b/seed1", log, **given)))

    return make


ACCURACY = {
    "checkpoint": {
        "best_checkpoint_metric": "accuracy",
        "maximize_best_checkpoint_metric": True,
    }
}


def test_the_best_validation_and_test_at_its_update(results):
    found = results(*validations([9.0, 5.0, 6.0]))
    assert found.selected_by == ("loss", False)
    assert found.figure("valid_ppl") == found.figure("selection") == 5.0
    assert found.figure("test_ppl") == 6.0
    # of equal ones the last, which replaced the others' checkpoint
    lines = [*validations([9.0, 5.0, 6.0, 5.0]), record("test", 4, ppl=77.0)]
    assert results(*lines).figure("test_ppl") == 77.0


def test_more_may_be_better(results):
    lines = [record("valid", n, accuracy=a, mcc=n) for n, a in ((1, 60), (2, 80))]
    lines += [record("valid1", n, accuracy=a) for n, a in ((1, 99), (2, 50))]
    lines += [record("valid", 3, accuracy=70, mcc=3)]
    found = results(*lines, configuration=ACCURACY)
    assert found.selected_by == ("accuracy", True)
    assert found.figure("valid_accuracy") == 80 and found.figure("valid_mcc") == 2
    assert found.figure("valid1_accuracy") == 50
    # nothing there, or nothing at that update
    assert found.figure("test_accuracy") is None and found.figure("valid_f1") is None


def test_a_validation_that_saved_nothing_is_no_best(results):
    """fairseq validates at updates at which it saves nothing, too."""
    lines = [*validations([9.0, 5.0, 6.0]), saved(1), saved(3)]
    assert results(*lines).figure("valid_ppl") == 6.0
    assert results(*lines, saved(2)).figure("valid_ppl") == 5.0


def test_a_validation_that_is_not_a_number(results):
    nan = math.nan
    assert results(*validations([nan, 8.0, nan])).figure("valid_ppl") == 8.0
    with refuses(NotMeasured, "valid_loss", "nan"):
        results(*validations([nan, nan])).figure("valid_ppl")
    assert results("no record").figure("valid_ppl") is None


def test_a_resumed_run_has_its_later_record(results):
    lines = [*validations([9.0, 5.0]), record("valid", 2, ppl=7.0, loss=7.0)]
    assert results(*lines).figure("valid_ppl") == 7.0
    half = record("valid", 3, ppl=1.0, loss=1.0)[:-20]
    assert results(*lines, half).figure("valid_ppl") == 7.0


def test_updates_to_99(results):
    lines = [
        record("valid", n, accuracy=a)
        for n, a in ((10, 50), (20, 98.5), (30, 99), (40, 98), (50, 99.5))
    ]
    assert results(*lines).figure("updates_to_99") == 30
    with refuses(NotMeasured, "99"):
        results(*lines[:2]).figure("updates_to_99")
    assert results().figure("updates_to_99") is None


def test_speed_is_the_median_without_the_first_interval(results):
    speeds = [5, 300, 100, 0, 200]
    lines = [record("train_inner", n, wps=s) for n, s in enumerate(speeds, 1)]
    assert results(*lines).figure("tokens_per_second") == 200
    assert results(*lines[:1]).figure("tokens_per_second") is None
    assert results(*lines).figure("updates") == 5
    assert results(*lines, *validations([1.0] * 7)).figure("updates") == 7
    assert results().figure("updates") is None


def test_parameters_memory_and_time(results):
    lines = ["num. shared model params: 155,988,540 (num. trained: 1)"]
    lines += [record("train_inner", n, gb_peak=g, wps=1) for n, g in ((1, 2.5), (2, 2))]
    found = results(*lines, attempts=[{}, {}])
    assert found.figure("params_m") == 155.98854
    assert found.figure("peak_memory_gib") == 2.5
    # the first was interrupted after 5 seconds
    assert found.figure("wall_seconds") == 5 + 90
    assert found.figure("wall_minutes") == pytest.approx(95 / 60)
    with refuses(NotMeasured, "killed"):
        results(exit_code=None).figure("wall_seconds")
    nothing = results("x", attempts=[])
    for name in ("params_m", "peak_memory_gib", "wall_seconds", "wall_minutes"):
        assert nothing.figure(name) is None


# of two lengths, of which the longer was too much for one system
SPEEDS = [
    ("Transformer", "inference", 1024, {"seconds": [0.2, 0.4, 9.0], "peak_bytes": 1}),
    ("TransNormer T2", "inference", 1024, {"seconds": [0.1], "peak_bytes": 2**31}),
    ("Transformer", "inference", 2048, {"skipped": "out of memory: 9 GiB"}),
    ("TransNormer T2", "inference", 2048, {"seconds": [0.5], "peak_bytes": 1}),
]


def test_the_figures_of_table_7(results):
    found = results()
    assert found.figure("infer_1K", "Transformer") is None
    measurements = [
        {"contestant": name, "phase": phase, "length": length} | more
        for name, phase, length, more in SPEEDS
    ]
    path = found.folder.path / "lra_speed.json"
    path.write_text(json.dumps({"measurements": measurements}))
    t2 = "TransNormer T2"
    assert found.figure("infer_1K", "Transformer") == 1 / 0.4
    assert found.figure("infer_1K", t2) == 1 / 0.1
    assert found.figure("infer_1K_over_vanilla", t2) == pytest.approx(4)
    assert found.figure("infer_1K_memory", t2) == 2
    assert found.figure("infer_2K", t2) == 2
    for metric, row in (("infer_2K", "Transformer"), ("infer_2K_over_vanilla", t2)):
        with refuses(NotMeasured, "out of memory: 9 GiB"):
            found.figure(metric, row)
    for metric in ("train_1K", "infer_3K"):
        with pytest.raises(NotAskedFor):
            found.figure(metric, t2)
    assert found.figure("infer_1K", "nobody") is None
    assert found.figure("infer_1K_over_sdpa", t2) is None


def test_the_gradients_deviation(results):
    found = results(*validations([9.0, 5.0, 6.0]))
    assert found.figure("gradient_rsd") is None
    path = found.folder.path / "gradient_statistics.jsonl"
    norms = [5.0, 13.0, 10.0]  # of both tensors together

    def write(updates):
        parts = [[3.0, 4.0], [5.0, 12.0], [6.0, 8.0]]
        lines = [{"parameters": {"a": 2, "b": 1}}]
        lines += [{"update": n, "norm": parts[n - 1], "mean": [0, 0]} for n in updates]
        path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))

    write([1, 2, 3])
    expected = numpy.std(norms) / numpy.mean(norms)
    assert found.figure("gradient_rsd") == pytest.approx(expected)
    write([2, 3])
    with refuses(NotMeasured, path.name, 2, 3):
        found.figure("gradient_rsd")
    write([1, 2])  # the log has one more
    with refuses(NotMeasured, path.name, 2, 3):
        found.figure("gradient_rsd")
    path.write_text("{")
    with pytest.raises(NotMeasured):
        found.figure("gradient_rsd")


def own_metric(results):
    return len(results.records["valid"]) * 1.5


def test_a_metric_may_be_a_function(results):
    found = results(*validations([9.0, 5.0]))
    assert found.figure(f"{__name__}:own_metric") == 3.0
    for metric, *parts in (
        ("no.such:thing", "no.such:thing"),
        (f"{__name__}:nothing", "nothing"),
        ("ppl", "'ppl'", "valid_NAME", *METRICS),
        ("train_loss", "'train_loss'"),
        ("valid_", "'valid_'"),
    ):
        with refuses(ReproduceError, *parts, alone=True):
            found.figure(metric)
