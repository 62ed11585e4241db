"""The laws of all ops, with torch and by the reference: laws.py.

Cases are pairwise; the boundaries of blocks, chunks (64) and segments (1024) are all
there.
"""

from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from . import laws
from .laws import BFLOAT16, DTYPES, FLOAT16, OPS, REFERENCE, TORCH
from .splits import part_lengths

places = pytest.mark.parametrize(
    "place", [TORCH, REFERENCE], ids=["torch", "reference"]
)
LINEAR = [
    {"causal": causal, "normalize": normalize}
    for causal in (False, True)
    for normalize in (False, True)
]
BLOCK = [
    {"causal": causal, "activation": activation}
    for causal in (False, True)
    for activation in ("softmax", "relu")
]
LINEAR_FORMS = [("linear", form) for form in LINEAR]
BLOCK_FORMS = [("block", form) for form in BLOCK]
FORMS = LINEAR_FORMS + BLOCK_FORMS
OTHERS = [(name, {}) for name in OPS if name not in ("linear", "block")]
ROWWISE = [each for each in OTHERS if each[0] != "cross_entropy"]
forms = partial(pytest.mark.parametrize, ("name", "form"), ids=str)


def turns(values, forms):
    """Each value with one of the forms, in turn."""
    return [value | forms[i % len(forms)] for i, value in enumerate(values)]


def sizes(name, values):
    return [{name: value} for value in values]


EQUATIONS = {
    "linear": [
        *turns(sizes("length", (1, 2, 63, 64, 65, 127, 128, 129)), LINEAR),
        *({"length": 2100, "batch": 1, "heads": 1} | form for form in LINEAR),
        *turns(sizes("length", (1023, 1024, 1025, 300)), LINEAR),
        *turns(sizes("length", (1025, 1023, 1, 65)), LINEAR),
        *turns(
            [
                {"heads": 3, "width": width, "value_width": value_width}
                for width, value_width in ((1, 1), (3, 5), (7, 2), (48, 80))
            ],
            LINEAR,
        ),
        *({"length": 150, "batch": 3, "pads": True} | form for form in LINEAR),
        *turns(
            [
                {"length": length, "key_length": other, "pads": True, "causal": False}
                for length, other in ((1, 90), (90, 1), (65, 130), (130, 65))
            ],
            [{"normalize": True}, {"normalize": False}],
        ),
        {"after": True, "pads": True, "feature_map": "1+elu"},
        *turns(sizes("feature_map", ("elu", "relu", "1+elu")), LINEAR[::2]),
    ],
    "block": [
        *turns(
            [
                {"length": length, "block_size": block_size}
                for length, block_size in (
                    *((1, 1), (5, 1), (1, 7), (6, 7), (7, 7), (8, 7), (27, 7)),
                    *((28, 7), (63, 64), (64, 64), (65, 64), (200, 64), (40, 1000)),
                )
            ],
            BLOCK,
        ),
        *({"length": 27, "block_size": 7} | form for form in BLOCK),
        *turns(
            [
                {"width": width, "value_width": value_width, "scale": scale}
                for width, value_width, scale in (
                    *((1, 1, None), (3, 5, 1.0), (7, 2, 0.3), (48, 80, -1.0)),
                    *((32, 32, 0.0), (3, 5, 0.3), (48, 80, None)),
                )
            ],
            BLOCK,
        ),
        *(
            {"length": 100, "batch": 3, "block_size": size, "pads": True} | form
            for size, form in zip((1, 7, 64, 200), BLOCK, strict=True)
        ),
        *({"batch": 3, "block_size": 7, "pads": True} | form for form in BLOCK),
    ],
    "lrpe": [
        *({"width": width, "rows": width > 6} for width in (2, 6, 8, 64)),
        *sizes("feature_map", ("elu", "1+elu", "relu", "identity")),
        {"far": 5000, "rows": True},
    ],
    "rms_norm": [
        {"shape": shape, "eps": eps}
        for shape, eps in (
            *(((1,), 0.1), ((7,), 1e-8), ((3, 1), 0.1)),
            *(((2, 3, 5), 1e-8), ((2, 3, 4, 512), 1e-8), ((7,), 0.1)),
        )
    ],
    "residual": [{}],
    "gated_silu": sizes("shape", ((5,), (2, 3, 85))),
    "gated_linear": [*sizes("shape", ((7,), (3, 7), (2, 3, 7))), {"bias": False}],
    "gated_linear_unit": sizes("shape", ((4,), (3, 4), (2, 3, 4))),
    # in small chunks: test_linear_cross_entropy.py
    "cross_entropy": [],
}


@places
@pytest.mark.parametrize(
    ("name", "case"),
    [(name, each) for name in OPS for each in EQUATIONS[name]],
    ids=str,
)
def test_equation_and_gradients(name, case, place):
    laws.equation(place, name, **case)


HALF = [
    *(
        ("linear", {"dtype": dtype, "length": length, "width": 16} | form)
        for i, dtype in enumerate(DTYPES)
        for length, form in zip(
            (5, 200, 1100, 200), LINEAR[i:] + LINEAR[:i], strict=True
        )
    ),
    *(
        ("block", {"dtype": dtype, "width": 16, "pads": pads, "batch": 3} | form)
        for i, dtype in enumerate(DTYPES)
        for pads, form in zip((True, False) * 2, BLOCK[i:] + BLOCK[:i], strict=True)
    ),
    *(("linear", {"dtype": dtype, "after": True}) for dtype in DTYPES),
    *((name, {"dtype": dtype}) for name, _ in ROWWISE for dtype in DTYPES),
]


@places
@pytest.mark.parametrize(("name", "case"), HALF, ids=str)
def test_dtypes(name, case, place):
    laws.equation(place, name, **case)


@forms(FORMS)
def test_every_length(name, form):
    """Of the output alone, where a GPU would need a program each."""
    for length in range(1, 301 if name == "linear" else 61):
        case = {"length": length, "batch": 1, "heads": 1, "width": 3} | form
        tensors, options = TORCH.draw(OPS[name], torch.float64, **case)
        (output,) = OPS[name].call(*tensors, backend="torch", **options)
        (expected,) = OPS[name].equation(*tensors, **options)
        assert laws.error(output, expected) < 1e-12


@forms(FORMS + ROWWISE)
def test_layouts(name, form):
    case = form if name not in ("linear", "block") else {"length": 20} | form
    laws.layouts(TORCH, name, torch.float64, **case)


@places
@forms(FORMS)
def test_pads_do_not_leak(name, form, place):
    laws.pads_do_not_leak(place, name, batch=3, **form)


@places
@forms(FORMS)
def test_finite_differences(name, form, place):
    small = {"length": 6, "batch": 3, "width": 2, "value_width": 3, "pads": True}
    block = {
        "block_size": 1 + 3 * form["causal"] + 5 * (form.get("activation") == "relu")
    }
    laws.finite_differences(
        place, name, **small, **form, **(block if name == "block" else {})
    )


@places
def test_finite_differences_of_the_others(place):
    laws.finite_differences(place, "lrpe", length=3, width=4, rows=True)
    laws.finite_differences(place, "rms_norm", shape=(3, 5), eps=0.5)
    laws.finite_differences(place, "gated_silu", shape=(7,))
    for bias in (True, False):
        laws.finite_differences(place, "gated_linear", shape=(3, 4), bias=bias)


@pytest.mark.parametrize("dtype", [BFLOAT16, FLOAT16])
@forms(
    FORMS
    + [
        each
        for each in ROWWISE
        if each[0] in ("lrpe", "rms_norm", "gated_silu", "residual")
    ]
)
def test_autocast_changes_nothing(name, form, dtype):
    laws.autocast_changes_nothing(TORCH, name, dtype, **form)


@forms(FORMS[::3] + FORMS[5:6] + [each for each in ROWWISE if "_" not in each[0][5:]])
def test_one_graph(name, form):
    case = {"length": 150} | form if name in ("linear", "block") else form
    laws.compiles(TORCH, name, **case)


@places
@forms(FORMS + ROWWISE)
def test_no_rows(name, form, place):
    laws.no_rows(place, name, **form)


@forms(FORMS[::3] + OTHERS)
def test_one_gradient_alone(name, form):
    laws.one_gradient_alone(TORCH, name, **form)


@pytest.mark.parametrize("normalize", [False, True])
@places
@settings(max_examples=15)
@given(lengths=part_lengths)
def test_any_split_of_linear_attention(place, normalize, lengths):
    case = {"width": 3, "value_width": 5, "normalize": normalize}
    laws.parts(place, "linear", lengths, torch.float64, **case)


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("lengths", [(1024, 1, 1), (1, 1024, 70), (1000, 100, 1025)])
def test_splits_around_a_segment(lengths, normalize):
    case = {"batch": 1, "heads": 1, "normalize": normalize}
    laws.parts(TORCH, "linear", lengths, torch.float64, **case)


@pytest.mark.parametrize("activation", ["softmax", "relu"])
@settings(max_examples=20)
@given(lengths=part_lengths, block_size=st.sampled_from((1, 2, 7, 16, 300)))
def test_any_split_of_block_attention(activation, lengths, block_size):
    case = {"width": 3, "value_width": 5, "activation": activation}
    case["block_size"] = block_size
    laws.parts(TORCH, "block", lengths, torch.float64, **case)


@pytest.mark.parametrize("dtype", DTYPES)
@forms([(n, f) for n, f in FORMS if f["causal"]])
def test_parts_in_half_precision(name, form, dtype):
    laws.parts(TORCH, name, (30, *[1] * 30), dtype, gradients=False, width=16, **form)


ragged = st.lists(
    st.one_of(st.just((1, 1, 1)), st.tuples(*[st.integers(0, 12)] * 3)),
    min_size=1,
    max_size=8,
)


@forms([(n, f) for n, f in FORMS if f["causal"]])
@settings(max_examples=25)
@given(counts=ragged, block_size=st.sampled_from((1, 3, 8)))
def test_ragged_parts(name, form, counts, block_size):
    block = {"block_size": block_size} if name == "block" else {}
    laws.ragged_parts(TORCH, name, counts, **block, **form)


@places
@pytest.mark.parametrize("causal", [False, True])
def test_beyond_float16(causal, place):
    laws.sums_beyond_float16(place, causal)
    laws.blocks_beyond_float16(place, causal)


@places
def test_the_future_is_hidden(place):
    laws.the_future_is_hidden(place, "linear", (0, 63, 64, 100, 139), length=140)


@places
def test_rows_of_any_size(place):
    laws.norms_of_any_size(place)
    laws.gates_open_and_close(place)
