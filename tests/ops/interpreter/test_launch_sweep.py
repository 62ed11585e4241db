"""The sweep over launches: what it launches in the interpreter, and what it chooses."""

import pytest

from benchmarks import launch_sweep, measure
from benchmarks.launch_sweep import ONE_SEGMENT, Size, chosen_rule, form_of, rows_of
from benchmarks.options import LaunchSweep
from fairseq_transnormer.ops.linear_attention import segment_sums, triton_impl

PROCESSORS, WIDTH = 100, 64


@pytest.fixture
def launched(monkeypatch):
    """(kernel, form, stages) of every launch."""
    seen = set()
    for module in (triton_impl, segment_sums):

        def watched(kernel, grid, *arguments, _launch=module.launch, **keywords):
            seen.add((kernel.fn.__name__, keywords["num_stages"]))
            return _launch(kernel, grid, *arguments, **keywords)

        monkeypatch.setattr(module, "launch", watched)
    return seen


def test_every_launch_is_forced_and_judged(launched, monkeypatch):
    monkeypatch.setattr(launch_sweep, "STAGES", (5,))
    monkeypatch.setattr(launch_sweep, "SEGMENTS", (256,))
    given = LaunchSweep(
        dtype="float32", width=32, least_repeats=1, most_repeats=1, seconds=0.0
    )
    rows = rows_of(Size(1, 300), given, measure.Limits(given))
    assert len(rows) == 2 * 2
    assert all(len(row["seconds"]) == 1 and row["error"] < 1e-5 for row in rows)
    assert {row["form"] for row in rows} == {ONE_SEGMENT, 256}
    stages = {count for _, count in launched}
    kernels = {name for name, _ in launched}
    assert stages == {5} and "segment_sums_kernel" in kernels
    given.time_limit = -1
    assert rows_of(Size(1, 530), given, measure.Limits(given))[0]["skipped"]


def measured(seconds):
    """Rows of two sizes, by a function of size, direction and launch."""
    rows = []
    for size in (Size(8, 1024), Size(200, 1024), Size(8, 8192), Size(200, 8192)):
        for direction in launch_sweep.DIRECTIONS:
            for launch in launch_sweep.launches(size):
                row = {**size._asdict(), "direction": direction, **launch._asdict()}
                time = seconds(size, direction, launch)
                rows.append(row | {"seconds": [9 * time, time, time]})
    return rows


def test_the_fastest_rule_is_chosen():
    """Segments of 1,024 for long ones, of which there are few; else one segment."""

    def seconds(size, direction, launch):
        fastest = 1024 if size == Size(8, 8192) else ONE_SEGMENT
        stages = 4 if direction == "backward" else 2
        return (1 if launch.form == fastest else 3) * (
            1 if launch.stages == stages else 1.5
        )

    rule, stages, ratio = chosen_rule(measured(seconds), PROCESSORS, WIDTH)
    assert ratio == pytest.approx(1)
    for direction in launch_sweep.DIRECTIONS:
        size = Size(8, 1024)
        assert form_of(rule, size, direction, PROCESSORS, WIDTH) == ONE_SEGMENT
        assert form_of(rule, Size(8, 8192), direction, PROCESSORS, WIDTH) == 1024
        for length in (1024, 8192):
            size = Size(200, length)
            assert form_of(rule, size, direction, PROCESSORS, WIDTH) == ONE_SEGMENT
    assert stages == {"segments forward": 2, "segments backward": 4}
