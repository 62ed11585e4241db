"""Losses and weights that are not numbers: no run continues with them."""

import pytest

from .trainings import line_with


@pytest.mark.parametrize(
    ("workers", "precision"),
    [
        (2, "fp32"),
        *(
            pytest.param(*each, marks=pytest.mark.slow)
            for each in ((1, "fp32"), (1, "bf16"), (2, "bf16"))
        ),
    ],
)
def test_a_loss_that_is_nan_ends_the_run(training, goes_on, tell, precision, workers):
    """NaN gradients are not applied; the NaN is gone in the next attempt, here."""
    run = training(workers, () if precision == "fp32" else (f"--{precision}",))
    codes = run.run(("loss_is_nan", 13), at_worker=workers - 1)
    assert codes == [1] * workers, run.text()
    said = line_with(run.text(), "FloatingPointError: gradients are Nan/Inf")
    assert "detected in output of" in run.text()  # NanDetector names a module
    assert max(run.losses()) == 12 and run.updates_of() == 8
    assert goes_on(run) == 8
    tell(f"NaN loss of one of {workers} in {precision}", codes, 12, 8, said)


def test_fp16_skips_one_overflow_and_ends_at_many(training, tell):
    run = training(1, ("--fp16",))
    assert run.run(("loss_is_nan", 13, 1)) == [0], run.text()
    said = line_with(run.text(), "overflow", "ignoring")
    assert max(run.losses()) == 24
    tell("NaN loss of one batch in fp16", [0], 24, 24, said)


def test_fp16_ends_when_every_batch_overflows(training, goes_on, tell):
    run = training(1, ("--fp16",))
    codes = run.run(("loss_is_nan", 13, 1000))
    assert codes == [1], run.text()
    said = line_with(run.text(), "FloatingPointError", "Minimum loss scale")
    assert max(run.losses()) == 12 and run.updates_of() == 8
    assert goes_on(run) == 8
    tell("NaN loss of every batch in fp16", codes, 12, 8, said)


@pytest.mark.parametrize(
    ("flags", "what"),
    [((), "validation loss"), (("--disable-validation",), "weights")],
)
def test_weights_that_are_nan_are_not_saved(training, goes_on, tell, flags, what):
    run = training(1, flags)
    codes = run.run(("weights_become_nan", 16))
    assert codes == [1], run.text()
    said = line_with(run.text(), "FloatingPointError", what, "NaN", "update 16")
    assert run.updates_of() == 8
    assert goes_on(run) == 8
    how = "".join(flags) or "with validation"
    tell(f"weights become NaN at a checkpoint's update, {how}", codes, 16, 8, said)
