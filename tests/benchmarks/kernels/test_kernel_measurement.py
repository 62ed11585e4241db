"""What is measured, what is left out and why, with contestants made up here."""

from functools import partial

import pytest
import torch

from benchmarks.harness.cases import Deadline
from benchmarks.harness.phases import FORWARD, LAUNCHED, TRAINING
from benchmarks.harness.timing import Repeats
from benchmarks.kernels.contestants import Case, Group, Setup
from benchmarks.kernels.contestants.contestant import Computation, Contestant, random
from benchmarks.kernels.kernel_measurement import Rules, make_call, measure
from tests.messages import assert_names

CPU = torch.device("cpu")
SETUP = Setup(32, 2, 4, 8, "identity", CPU, torch.float32)
CASES = [Case(4, 8), Case(2, 12), Case(1, 16)]


@pytest.fixture(autouse=True)
def small_buffer(monkeypatch):
    monkeypatch.setattr(
        "benchmarks.harness.cold_cache.buffer_bytes", lambda device: 1000
    )


def rules(**changes):
    some = Rules(Repeats(2, 2, 1.0), "wall", [8], 1.0, Deadline(100))
    return some._replace(**changes)


def double(x):
    return 2 * x


def group(*contestants, grad=True, **changes):
    def inputs(case):
        return [random(SETUP, case.batch, case.length, 2, 4, grad=grad)]

    fields = dict(computation=Computation("double", double), inputs=inputs)
    fields |= dict(contestants=list(contestants), cases=CASES, check_case=Case(1, 8))
    return Group("g", "v", **(fields | changes))


def rows_of(*contestants, limits=None, **changes):
    made = group(*contestants, **changes)
    return list(measure(made, made.contestants, SETUP, limits or rules()))


def test_rows():
    rows = rows_of(Contestant("a", double), Contestant("b", lambda x: x + x))
    assert [(r["contestant"], r["length"], r["mode"]) for r in rows] == [
        (name, case.length, mode)
        for case in CASES
        for mode in (FORWARD, TRAINING)
        for name in "ab"
    ]
    for row in rows:
        assert len(row["seconds"]) == 2 and row["timing"] == LAUNCHED
        assert row["batch"] * row["length"] in (32, 24, 16)
        elements = row["batch"] * row["length"] * 8
        # read and written; and again, with the gradient, in the backward pass
        tensors = 2 if row["mode"] == FORWARD else 5
        assert row["least_bytes"] == tensors * 4 * elements
        assert row["same"] and not row["wrong"] and not row["ours"]
        assert row["peak_bytes"] >= 4 * elements


def test_without_gradients_only_the_forward_pass():
    rows = rows_of(Contestant("a", double), grad=False)
    assert {row["mode"] for row in rows} == {FORWARD}
    assert rows[0]["errors"]["gradients"] is None


def test_a_wrong_one_is_listed_and_marked():
    right, wrong = Contestant("r", double), Contestant("w", lambda x: 2.1 * x)
    marks = {row["contestant"]: row["wrong"] for row in rows_of(right, wrong)}
    assert marks == {"r": False, "w": True}


def test_one_that_raises_is_left_out_once():
    def unable(x):
        raise TypeError("no such\n\nargument\nmore")

    rows = rows_of(Contestant("a", unable), Contestant("b", double))
    assert rows[0] == {
        "group": "g",
        "variant": "v",
        "contestant": "a",
        "skipped": "TypeError: no such argument",
    }
    assert {row["contestant"] for row in rows[1:]} == {"b"}


def test_one_that_raises_at_one_size_is_left_out_there():
    def unable(x):
        if x.shape[1] == 12:
            raise torch.OutOfMemoryError("too much")
        return 2 * x

    skipped = [row for row in rows_of(Contestant("a", unable)) if "skipped" in row]
    assert [(row["length"], row["mode"]) for row in skipped] == [
        (12, FORWARD),
        (12, TRAINING),
    ]
    assert_names(skipped[0]["skipped"], "out of memory", "too much")


@pytest.mark.parametrize(
    ("field", "lengths", "reason"),
    [
        ("compiled", [12, 16], ["torch.compile", "--compiled-lengths 8"]),
        ("blocks", [12], ["multiples", "block size 8"]),
        # 2 heads x 16 x 16 float32 are 2 KiB, as are 4 x 2 x 8 x 8; the limit lies
        # between them and 2 x 2 x 12 x 12, 2.25 KiB
        ("quadratic", [12], ["matrix", "2.15e-06 GiB", "--quadratic-limit-gib"]),
    ],
)
def test_left_out_at_a_size(field, lengths, reason):
    contestant = Contestant("a", double, **{field: True})
    limited = rules(quadratic_limit_gib=2.1 * 2**10 / 2**30)
    rows = rows_of(contestant, limits=limited)
    skipped = {row["length"]: row["skipped"] for row in rows if "skipped" in row}
    assert sorted(skipped) == lengths
    for told in skipped.values():
        assert_names(told, *reason)
    assert {row["length"] for row in rows} == {8, 12, 16}


def test_one_that_runs_at_no_size_is_not_even_checked():
    def never(x):
        raise AssertionError

    (row,) = rows_of(
        Contestant("a", never, compiled=True), limits=rules(compiled_lengths=[7])
    )
    assert_names(row["skipped"], "torch.compile", "--compiled-lengths 7")


def test_compiled_ones_run_at_every_size_that_is_no_length():
    rows = rows_of(Contestant("a", double, compiled=True), axis="batch")
    assert {row["length"] for row in rows if "seconds" in row} == {8, 12, 16}


def test_after_the_time_limit_everything_has_a_row():
    over = rules(deadline=Deadline(-1))
    rows = rows_of(Contestant("a", double), Contestant("b", double), limits=over)
    assert [row["contestant"] for row in rows] == ["a", "b"]
    assert all("--time-limit -1 was over" in row["skipped"] for row in rows)


def test_the_time_limit_between_sizes(monkeypatch):
    """What runs while the time ends is the last that has seconds."""
    ended = []
    monkeypatch.setattr(Deadline, "over", lambda self: "over" if ended else None)

    def slow(x):
        if x.shape[1] == 12:
            ended.append(True)
        return 2 * x

    rows = rows_of(Contestant("a", slow), grad=False)
    by_length = {row["length"]: row.get("skipped") for row in rows}
    assert by_length == {8: None, 12: None, 16: "over"}


def test_calls_take_the_given_layout():
    x = torch.randn(2, 8, 2, 4, requires_grad=True)
    seen = []

    def attend(x):
        seen.append(x.shape)
        return 2 * x

    call, _ = make_call(Contestant("a", attend, heads_first=True), [x], TRAINING)
    (gradient,) = call()
    assert set(seen) == {(2, 2, 8, 4)} and gradient.shape == (2, 2, 8, 4)
    forward, _ = make_call(Contestant("a", partial(double)), [x], FORWARD)
    assert not forward().requires_grad
