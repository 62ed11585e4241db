"""The laws of all ops with their kernels on a GPU: tests/ops/laws.py.

Right is what is as good as torch's op on the same inputs, in the same dtype and with
the same use of TF32; errors are against its result in float64, as in a trial. A dtype,
a pair of widths, a form and a feature map make a kernel that has to be compiled, a
second or so each: the cases are chosen to share them.
"""

from dataclasses import replace

import pytest
import torch

from fairseq_transnormer import ops

from ..ops import laws
from ..ops.interpreter.poison import poisoned_memory  # noqa: F401
from ..ops.laws import GPU, OPS
from .criterion import DTYPES, tf32  # noqa: F401

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("poisoned_memory")]
BFLOAT16 = torch.bfloat16
ATTENTIONS = ("linear", "block")
FORMS = [
    ("linear", {"causal": True, "feature_map": "1+elu"}),
    ("linear", {"causal": False, "feature_map": "1+elu"}),
    *(
        ("block", {"block_size": 64, "causal": causal, "activation": activation})
        for causal in (False, True)
        for activation in ("softmax", "relu")
    ),
]


def blocks(length, block_size, width, causal, activation, **others):
    sizes = {"length": length, "block_size": block_size, "width": width}
    return sizes | {"causal": causal, "activation": activation} | others


EQUATIONS = [
    *(
        ("linear", {"length": length, "pads": True} | form)
        for length in (1, 17, 512, 1024, 1025, 5000)
        for _, form in FORMS[:2]
    ),
    *(
        ("linear", {"length": length, "width": width, "value_width": value_width})
        for length in (200, 1500)
        for width, value_width in ((32, 32), (128, 128), (128, 32))
    ),
    *(
        ("linear", {"width": width, "value_width": value_width, "causal": False})
        for width, value_width in ((32, 32), (128, 128), (128, 32))
    ),
    ("linear", {"length": 100, "after": True}),
    ("linear", {"length": 1500, "after": True}),
    *(
        ("block", {"length": 300, "pads": pads, "batch": 3} | form)
        for pads in (False, True)
        for _, form in FORMS[2:]
    ),
    ("block", blocks(1, 64, 64, True, "softmax")),
    ("block", blocks(300, 32, 32, True, "softmax")),
    ("block", blocks(300, 32, 32, False, "relu", pads=True)),
    ("block", blocks(50, 16, 128, False, "softmax", pads=True)),
    ("block", blocks(50, 16, 128, True, "relu")),
    ("block", blocks(200, 128, 32, True, "relu", pads=True)),
    ("block", blocks(200, 128, 64, False, "softmax")),
    ("block", blocks(130, 64, 128, True, "softmax", pads=True)),
    *(
        ("lrpe", {"feature_map": phi, "width": width, "length": length})
        for phi, width, length in [
            *(("identity", 64, 512), ("elu", 32, 130), ("1+elu", 64, 513)),
            *(("1+elu", 128, 64), ("relu", 64, 1)),
        ]
    ),
    ("lrpe", {"feature_map": "1+elu", "length": 70, "rows": True}),
    *(("rms_norm", {"shape": x}) for x in ((3, 171, 512), (77, 1000), (5, 8192))),
    *(("gated_silu", {"shape": shape}) for shape in ((3, 171, 1365), (1,))),
    ("residual", {"shape": (3, 171, 512)}),
    ("gated_linear_unit", {"shape": (3, 171, 128), "inside": 365}),
]
ONES = [(name, {}) for name in OPS if name not in (*ATTENTIONS, "cross_entropy")]
MANY = {"heads": 4}


@pytest.fixture(autouse=True)
def _products(request):
    """The attentions' are in TF32, as they are taken; all others in float32."""
    if request.node.callspec.params.get("name") in ATTENTIONS:
        request.getfixturevalue("tf32")


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("name", "case"), EQUATIONS, ids=str)
def test_as_good_as_torch(name, case, dtype):
    # TF32 may be too wrong for float32, where torch is exact: then "auto" takes torch
    automatic = name == "block" and dtype == torch.float32
    place = replace(GPU, backend="auto") if automatic else GPU
    laws.equation(place, name, dtype, **(MANY | case if name in ATTENTIONS else case))


@pytest.mark.parametrize("backend", ["torch", "triton", "auto"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    ("tokens", "vocabulary", "width"), [(700, 50_265, 64), (513, 4_097, 512)]
)
def test_as_the_loss_of_all_logits(tokens, vocabulary, width, dtype, backend):
    place = replace(GPU, backend=backend)
    sizes = {"tokens": tokens, "vocabulary": vocabulary, "width": width, "bias": False}
    laws.equation(place, "cross_entropy", dtype, **sizes)
    laws.same_bits(place, "cross_entropy", dtype, **sizes)


@pytest.mark.parametrize(("name", "case"), FORMS[:1] + FORMS[2:4], ids=str)
def test_float32_without_tf32(name, case):
    """Asked for by name, since "auto" takes torch there."""
    torch.set_float32_matmul_precision("highest")
    place = replace(GPU, products=False)
    laws.equation(place, name, torch.float32, length=130, **MANY, **case)


@pytest.mark.parametrize("name", ["linear"])
def test_many_sequences_in_one_segment(name):
    laws.equation(GPU, name, BFLOAT16, length=1500, batch=128, heads=4)


@pytest.mark.parametrize(("name", "case"), FORMS[::3] + ONES, ids=str)
def test_layouts(name, case):
    laws.layouts(GPU, name, BFLOAT16, **case)
    if name in ("lrpe", "rms_norm", "gated_silu", *ATTENTIONS):
        laws.layout_is_kept(GPU, name, **case)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("name", "case"), FORMS, ids=str)
def test_pads_do_not_leak(name, case, dtype):
    laws.pads_do_not_leak(GPU, name, dtype, length=150, batch=3, **case)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    ("name", "case"),
    [
        *((name, {"length": 300} | case) for name, case in FORMS),
        *((name, {"length": 3000} | case) for name, case in FORMS[:2]),
        *ONES,
    ],
    ids=str,
)
def test_a_second_run_gives_the_same_bits(name, case, dtype):
    laws.same_bits(GPU, name, dtype, **case)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    ("name", "lengths", "case"),
    [
        ("linear", (1090, *[1] * 10), {}),
        ("block", (50, 20, *[1] * 80), {"block_size": 64}),
        ("block", (50, 20, *[1] * 80), {"block_size": 64, "activation": "relu"}),
    ],
    ids=str,
)
def test_prefill_and_steps_equal_one_call(name, lengths, case, dtype):
    laws.parts(GPU, name, lengths, dtype, gradients=False, **MANY, **case)


@pytest.mark.parametrize(("name", "case"), FORMS[::3] + ONES, ids=str)
def test_gradients_that_do_not_arrive_and_no_rows(name, case):
    laws.no_gradient_arrives(GPU, name, **case)
    laws.no_rows(GPU, name, **case)


@pytest.mark.parametrize(("name", "case"), FORMS[::3] + ONES, ids=str)
def test_one_graph(name, case):
    laws.compiles(GPU, name, **case)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", ATTENTIONS)
def test_beyond_float16(name, causal):
    law = {"linear": laws.sums_beyond_float16, "block": laws.blocks_beyond_float16}
    law[name](GPU, causal)


@pytest.mark.parametrize(("name", "case"), FORMS + ONES, ids=str)
def test_auto_takes_the_kernels(name, case, monkeypatch):
    monkeypatch.delenv(ops.ENVIRONMENT_VARIABLE, raising=False)
    tensors, options = GPU.draw(OPS[name], BFLOAT16, **case)
    auto, triton = (
        OPS[name].call(*tensors, backend=backend, **options)
        for backend in ("auto", "triton")
    )
    assert all(torch.equal(*pair) for pair in zip(auto, triton, strict=True))
