"""Types of options' values: what they take, and what their errors name."""

from argparse import ArgumentTypeError

import pytest

from fairseq_transnormer import argument_types as types
from tests.messages import refuses


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (types.integer_between(1), "7", 7),
        (types.integer_between(-1, 3), "-1", -1),
        (types.number_from_zero, "1e3", 1000.0),
        (types.number_from_zero, "0", 0.0),
        (types.positive_number, "1e-9", 1e-9),
        (types.positive_integer, "1", 1),
    ],
)
def test_allowed(kind, text, value):
    assert kind(text) == value and type(kind(text)) is type(value)


@pytest.mark.parametrize(
    ("kind", "text", "allowed"),
    [
        (types.integer_between(2), "1", ["integers", 2]),
        (types.integer_between(1, 5), "6", ["integers", 1, 5]),
        (types.integer_between(1), "1.5", ["integers"]),
        (types.integer_between(1), "", ["integers"]),
        (types.number_from_zero, "-1e-9", ["numbers", 0]),
        (types.number_from_zero, "nan", ["numbers"]),
        (types.number_from_zero, "inf", ["numbers"]),
        (types.positive_number, "0", ["numbers", 0]),
    ],
)
def test_refused(kind, text, allowed):
    with refuses(ArgumentTypeError, repr(text), *allowed, alone=True):
        kind(text)
