"""The laws of all ops, with their kernels in Triton's interpreter: tests/ops/laws.py.

Each form of a kernel with one dtype and length; a program of the interpreter takes
milliseconds.
"""

import pytest

from fairseq_transnormer.ops.block_attention import triton_impl as blocks
from fairseq_transnormer.ops.kernels import lrpe
from fairseq_transnormer.ops.kernels.gated_silu import BLOCK
from fairseq_transnormer.ops.linear_attention import launch_table
from fairseq_transnormer.ops.linear_attention.launch_table import Rule

from .. import laws
from ..laws import BFLOAT16, DTYPES, FLOAT16, FLOAT32, INTERPRETER, OPS

pytestmark = pytest.mark.usefixtures("poisoned_memory")
NEVER = float("inf")
# launches that lengths, batches and heads of these tests would not reach
RULES = {
    "segments": Rule(NEVER, enough=NEVER, smallest_segment=64),
    "one segment": Rule(one_segment=0),
}
ACTIVATIONS = ("softmax", "relu")
ONE = {"batch": 1, "heads": 1}


@pytest.fixture(params=RULES)
def form(request, monkeypatch):
    monkeypatch.setattr(launch_table, "RULE", RULES[request.param])


def bidirectional(**sizes):
    return {"causal": False} | sizes


def block(length, block_size, activation="softmax", causal=True, **others):
    sizes = {"length": length, "block_size": block_size, "activation": activation}
    return sizes | {"causal": causal} | others


@pytest.mark.usefixtures("form")
@pytest.mark.parametrize(
    "case",
    [
        {"length": 1},
        {"length": 64, **ONE},
        {"length": 200, **ONE},
        {"length": 66, "width": 32, "value_width": 128, "after": True, **ONE},
        *(
            dict(length=130, dtype=dtype, after=True, pads=True, feature_map="1+elu")
            | {"heads": heads}
            for dtype, heads in ((FLOAT32, 2), (BFLOAT16, 1), (FLOAT16, 1))
        ),
        bidirectional(length=130, pads=True, heads=1),
    ],
    ids=str,
)
def test_linear_attention_in_each_form(case):
    laws.equation(INTERPRETER, "linear", **{"dtype": FLOAT32} | case)


EQUATIONS = {
    "linear": [
        {"feature_map": "elu"},
        {"feature_map": "relu", "width": 64, "value_width": 128, **ONE},
        {"width": 128, "value_width": 32, **ONE},
        bidirectional(width=128, value_width=32, feature_map="elu", **ONE),
        bidirectional(width=64, value_width=128, feature_map="relu", **ONE),
        *(
            bidirectional(
                length=17, key_length=130, feature_map="1+elu", pads=True, dtype=dtype
            )
            for dtype in DTYPES
        ),
        bidirectional(length=130, key_length=1, pads=True, feature_map="1+elu"),
    ],
    "block": [
        block(130, 64, dtype=BFLOAT16),
        block(130, 64, "relu", dtype=FLOAT16),
        block(70, 64, "relu", False, dtype=BFLOAT16),
        block(70, 64, "softmax", False, dtype=FLOAT16),
        block(1, 16, "relu"),
        block(17, 16, "softmax", False),
        block(17, 64, "relu", False),
        block(64, 64, "softmax"),
        block(300, 128, "relu", **ONE),
        block(300, 128, "softmax", False, **ONE),
        block(40, 32, width=64, value_width=32, scale=1),
        block(40, 32, width=32, value_width=128, scale=-0.3),
        block(40, 32, "relu", width=128, value_width=64),
    ],
    "lrpe": [
        *(
            {"feature_map": phi, "dtype": dtype, "width": 64}
            for phi, dtype in (
                *(("identity", FLOAT32), ("elu", BFLOAT16), ("1+elu", FLOAT16)),
                *(("relu", FLOAT32), ("1+elu", BFLOAT16)),
            )
        ),
        {"length": 1, "width": 32, "far": 3},
        {"length": 64, "width": 128, "heads": 3},
        {"length": 130, "width": 32, "heads": 3},
        {"length": 1, "width": 64, "batch": 3, "rows": True},
        {"only": 0},
        {"only": 1},
    ],
    "rms_norm": [
        {"shape": (7,)},
        {"shape": (1, 1, 64), "dtype": FLOAT16},
        {"shape": (3, 17, 96), "dtype": BFLOAT16},
        {"shape": (2, 3, 4, 512), "dtype": FLOAT16},
        # for width 1 the gradient is 0 but for eps
        *({"shape": (3, width), "eps": 0.3} for width in (1, 2, 1000, 4097, 8192)),
    ],
    "residual": [{"shape": (3, 17, 96), "dtype": dtype} for dtype in DTYPES],
    "gated_silu": [
        {"shape": (1,)},
        {"shape": (3, 1, 85), "dtype": BFLOAT16},
        {"shape": (2, 17, 341), "dtype": FLOAT16},
        {"shape": (BLOCK,), "dtype": BFLOAT16},
        {"shape": (BLOCK + 7,)},
    ],
    "gated_linear": [{"shape": (2, 17, 85)}],
    "gated_linear_unit": [
        {"shape": (5,), "inside": 9, "dtype": BFLOAT16},
        {"shape": (3, 8), "inside": 8, "dtype": FLOAT16},
        {"shape": (2, 7, 5), "inside": 13},
        {"shape": (2, 70, 16), "inside": 45, "dtype": BFLOAT16},
    ],
    "cross_entropy": [{"tokens": 40}],
}


@pytest.mark.parametrize(
    ("name", "case"),
    [(name, case) for name in OPS for case in EQUATIONS[name]],
    ids=str,
)
def test_equation_and_gradients(name, case):
    laws.equation(INTERPRETER, name, **{"dtype": FLOAT32} | case)


@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("causal", [False, True])
def test_block_attention_of_pads(causal, activation, transpose, monkeypatch):
    """With both ways in which the backward gets the transposed weights."""
    monkeypatch.setattr(blocks, "transposes_products", lambda _: transpose)
    case = block(40, 16, activation, causal, pads=True, batch=3, heads=1)
    laws.equation(INTERPRETER, "block", FLOAT32, **case)


def test_many_programs_loop_over_the_heads(monkeypatch):
    monkeypatch.setattr(lrpe, "FEW_PROGRAMS", 2)
    laws.equation(INTERPRETER, "lrpe", FLOAT32, length=70, heads=3, feature_map="1+elu")


ATTENTIONS = [
    ("linear", {"length": 20}),
    ("linear", {"length": 20, "causal": False}),
    ("block", block(20, 16, "softmax", False)),
    ("block", block(20, 16, "relu")),
]
FEW = dict.fromkeys(("rms_norm", "residual", "gated_silu"), {"shape": (2, 5, 32)})
FEW["lrpe"] = {"length": 5}
FEW |= {"gated_linear": {"shape": (2, 3, 17)}, "gated_linear_unit": {}}
OTHERS = [*FEW.items()]
# products of matrices are torch's, which lays them out by itself
KEEPING = [each for each in OTHERS if each[0] in ("lrpe", "rms_norm", "gated_silu")]
attentions = pytest.mark.parametrize(("name", "case"), ATTENTIONS, ids=str)
everything = pytest.mark.parametrize(("name", "case"), ATTENTIONS + OTHERS, ids=str)


@everything
def test_layouts(name, case):
    laws.layouts(INTERPRETER, name, **case)


@pytest.mark.parametrize(("name", "case"), ATTENTIONS + KEEPING, ids=str)
def test_the_layout_is_kept(name, case):
    laws.layout_is_kept(INTERPRETER, name, **case)


@attentions
def test_pads_do_not_leak(name, case):
    laws.pads_do_not_leak(INTERPRETER, name, batch=3, heads=1, **case)


@everything
def test_gradients_that_do_not_arrive_and_no_rows(name, case):
    laws.no_gradient_arrives(INTERPRETER, name, **case)
    laws.no_rows(INTERPRETER, name, **case)


@pytest.mark.parametrize(("name", "case"), OTHERS, ids=str)
def test_one_gradient_alone(name, case):
    laws.one_gradient_alone(INTERPRETER, name, **case)


@attentions
def test_autocast_changes_nothing(name, case):
    laws.autocast_changes_nothing(INTERPRETER, name, **case)


@pytest.mark.parametrize(("name", "case"), ATTENTIONS[1::2] + OTHERS, ids=str)
def test_one_graph(name, case):
    laws.compiles(INTERPRETER, name, **case)


def test_one_graph_of_what_has_states(monkeypatch):
    rule = Rule(one_segment=1.0, smallest_segment=64)
    monkeypatch.setattr(launch_table, "RULE", rule)
    laws.compiles(INTERPRETER, "linear", length=100, after=True)


@pytest.mark.usefixtures("form")
def test_the_future_is_hidden():
    laws.the_future_is_hidden(INTERPRETER, "linear", (64, 100), length=130)


@pytest.mark.usefixtures("form")
@pytest.mark.parametrize("causal", [False, True])
def test_linear_sums_beyond_float16(causal):
    laws.sums_beyond_float16(INTERPRETER, causal)


@pytest.mark.parametrize("causal", [False, True])
def test_blocks_beyond_float16(causal):
    laws.blocks_beyond_float16(INTERPRETER, causal)


def test_rows_of_any_size():
    laws.norms_of_any_size(INTERPRETER)
    laws.gates_open_and_close(INTERPRETER)


@pytest.mark.usefixtures("form")
def test_the_same_inputs_give_the_same_bits():
    laws.same_bits(INTERPRETER, "linear", length=70, **ONE)


@pytest.mark.parametrize(
    ("lengths", "dtype", "activation"),
    [
        ((17, *[1] * 17), BFLOAT16, "softmax"),
        ((1, 31, 1, 20, 1), FLOAT16, "relu"),
        ((5, 1, 20), FLOAT32, "relu"),
        ((16, 1, 3), FLOAT32, "softmax"),
    ],
)
def test_parts_of_block_attention(lengths, dtype, activation):
    case = {"activation": activation, "value_width": 64, "heads": 1}
    laws.parts(INTERPRETER, "block", lengths, dtype, dtype == FLOAT32, **case)


def test_parts_of_linear_attention():
    laws.parts(INTERPRETER, "linear", (67, 1, 1), heads=1)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_ragged_parts(activation):
    counts = [(20, 3, 0), (1, 1, 1), (7, 0, 16), (1, 1, 1)]
    laws.ragged_parts(INTERPRETER, "block", counts, activation=activation)
