"""Figures of made logs, each worked out by hand."""

import json
import math

import numpy
import pytest

from fairseq_transnormer.reproduce.metrics import (
    METRICS,
    NotAskedFor,
    NotMeasured,
    RunResults,
    reader_of,
)
from fairseq_transnormer.reproduce.runs import RunFolder
from tests.messages import refuses

from .made import record, refused, validations, write_run

NAN = math.nan
SAVED = "Saved checkpoint checkpoints/x.pt (epoch 1 @ {} updates, score 1.0)"


class Results(RunResults):
    def figure(self, metric, row=""):
        return reader_of(metric)(self, row)


@pytest.fixture
def results(tmp_path):
    """results(lines of a log, ...): of a run in a folder of its own."""

    def make(*log, **given):
        return Results(RunFolder(write_run(tmp_path / "a/b/seed1", log, **given)))

    return make


def test_the_best_validation_and_test_at_its_update(results):
    lines = validations([9.0, 5.0, 6.0])
    found = results(*lines)
    assert found.selected_by == ("loss", False)
    assert found.figure("valid_ppl") == found.figure("selection") == 5.0
    assert found.figure("test_ppl") == 6.0
    # of equal ones the last, which replaced the others' checkpoint
    more = [*validations([9.0, 5.0, 6.0, 5.0]), record("test", 4, ppl=77.0)]
    assert results(*more).figure("test_ppl") == 77.0
    # of those alone that saved
    some = [*lines, SAVED.format(1), SAVED.format(3)]
    assert results(*some).figure("valid_ppl") == 6.0
    assert results(*some, SAVED.format(2)).figure("valid_ppl") == 5.0
    late = record("valid", "1.00123e+06", ppl=3.0, loss=3.0)  # as fairseq rounds it
    found = results(*some, SAVED.format(1_001_234), late)
    assert (found.figure("valid_ppl"), found.folder.updates_done) == (3.0, 1_001_230)
    # of a run that was resumed the later record of an update
    later = [*lines, record("valid", 2, ppl=7.0, loss=7.0)]
    half = record("valid", 3, ppl=1.0, loss=1.0)[:-20]
    assert results(*later, half).figure("valid_ppl") == 6.0
    assert results(*validations([NAN, 8.0, NAN])).figure("valid_ppl") == 8.0
    with refuses(NotMeasured, "valid_loss", "nan"):
        results(*validations([NAN, NAN])).figure("valid_ppl")
    assert results("no record").figure("valid_ppl") is None


def test_more_may_be_better(results):
    lines = [record("valid", n, accuracy=a, mcc=n) for n, a in ((1, 60), (2, 80))]
    lines += [record("valid1", n, accuracy=a) for n, a in ((1, 99), (2, 50))]
    lines += [record("valid", 3, accuracy=70, mcc=3)]
    by = {"best_checkpoint_metric": "accuracy", "maximize_best_checkpoint_metric": True}
    found = results(*lines, configuration={"checkpoint": by})
    assert found.selected_by == ("accuracy", True)
    assert found.figure("valid_accuracy") == 80 and found.figure("valid_mcc") == 2
    assert found.figure("valid1_accuracy") == 50
    assert found.figure("test_accuracy") is None and found.figure("valid_f1") is None


def test_updates_speed_parameters_memory_and_time(results):
    shares = {10: 50, 20: 98.5, 30: 99, 40: 98, 50: 99.5}
    lines = [record("valid", n, accuracy=a) for n, a in shares.items()]
    assert results(*lines).figure("updates_to_99") == 30
    with refuses(NotMeasured, "99"):
        results(*lines[:2]).figure("updates_to_99")
    # the first interval has the start in it
    inner = [
        record("train_inner", n, wps=s) for n, s in enumerate((5, 300, 100, 0, 200))
    ]
    assert results(*inner).figure("tokens_per_second") == 200
    assert results(*inner[:1]).figure("tokens_per_second") is None
    assert results(*inner).figure("updates") == 4
    assert results(*inner, *lines).figure("updates") == 50
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
    assert [name for name in METRICS if nothing.figure(name) is not None] == []


def test_the_figures_of_table_7(results):
    found, t2 = results(), "TransNormer T2"
    assert found.figure("infer_1K", t2) is None
    measurements = [
        {"provider": name, "phase": "inference", "length": length} | more
        for name, length, more in (
            ("Transformer", 1024, {"seconds": [0.2, 0.4, 9.0], "peak_bytes": 1}),
            (t2, 1024, {"seconds": [0.1], "peak_bytes": 2**31}),
            ("Transformer", 2048, {"skipped": "out of memory: 9 GiB"}),
            (t2, 2048, {"seconds": [0.5], "peak_bytes": 1}),
        )
    ]
    path = found.folder.path / "lra_speed.json"
    path.write_text(json.dumps({"measurements": measurements}))
    assert found.figure("infer_1K", "Transformer") == 1 / 0.4
    figures = {"infer_1K": 10, "infer_1K_over_vanilla": 4, "infer_1K_memory": 2}
    for metric, expected in (figures | {"infer_2K": 2}).items():
        assert found.figure(metric, t2) == pytest.approx(expected)
    for metric, row in (("infer_2K", "Transformer"), ("infer_2K_over_vanilla", t2)):
        with refuses(NotMeasured, "out of memory: 9 GiB"):
            found.figure(metric, row)
    for metric in ("train_1K", "infer_3K"):
        with pytest.raises(NotAskedFor):
            found.figure(metric, t2)
    assert found.figure("infer_1K_over_sdpa", t2) is None


def test_the_gradients_deviation(results):
    found = results(*validations([9.0, 5.0, 6.0]))
    path = found.folder.path / "gradient_statistics.jsonl"

    def figure(updates):
        parts = [[3.0, 4.0], [5.0, 12.0], [6.0, 8.0]]
        lines = [{"parameters": {"a": 2, "b": 1}}]
        lines += [{"update": n, "norm": parts[n - 1], "mean": [0, 0]} for n in updates]
        path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        return found.figure("gradient_rsd")

    norms = [5.0, 13.0, 10.0]  # of both tensors together
    assert figure([1, 2, 3]) == pytest.approx(numpy.std(norms) / numpy.mean(norms))
    for some in ([2, 3], [1, 3], [1, 2]):  # the log has three
        with refuses(NotMeasured, path.name, 2, 3):
            figure(some)


def own_metric(results):
    return len(results.records["valid"]) * 1.5


def no_metric(results):
    return {}["missing"]


def a_text(results):
    return "high"


def test_a_metric_may_be_a_function(results):
    found = results(*validations([9.0, 5.0]))
    assert found.figure(f"{__name__}:own_metric") == 3.0
    for function, part in ((no_metric, "missing"), (a_text, "high")):
        with refuses(NotMeasured, function.__name__, part):
            found.figure(f"{__name__}:{function.__name__}")
    for metric in ("no.such:thing", f"{__name__}:nothing", "'ppl'", "valid_"):
        with refused(metric):
            found.figure(metric.strip("'"))
