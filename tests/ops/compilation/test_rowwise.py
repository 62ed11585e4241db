"""What the kernels that work by rows need of each kind of GPU."""

import os

import pytest

if os.environ.get("TRITON_INTERPRET") == "1":
    pytest.skip("the interpreter compiles nothing", allow_module_level=True)
pytest.importorskip("triton")

from fairseq_transnormer.ops.triton_ops import gated_silu, lrpe, rms_norm  # noqa: E402

from .compilation import SHARED_MEMORY, STRIDES, compile_kernel  # noqa: E402

INTEGERS = {
    **dict.fromkeys(["tokens", "length", "heads", "heads_a_program"], "i32"),
    **dict.fromkeys(["positions_stride_b", "positions_stride_n"], "i32"),
    **dict.fromkeys(["count", "inner"], "i32"),
}
FLOATS = {"eps": "fp32", **dict.fromkeys(["theta", "reflection"], "*fp32")}
POINTERS = {"positions": "*i64", "scale": "*fp32", "partial_grad_theta": "*fp32"}


def compiled(kernel, constants, dtype, capability, num_warps=4, strides=()):
    """Pointers are of ``dtype`` but for those whose type is always the same."""
    known = INTEGERS | FLOATS | POINTERS
    known["strides"] = strides
    types = {
        name: known.get(name, f"*{dtype}")
        for name in kernel.arg_names
        if name not in constants
    }
    return compile_kernel(
        kernel,
        types,
        constants,
        capability=capability,
        num_warps=num_warps,
        num_stages=3,
    )


def check(result, capability, registers, stack=0):
    assert result.stack <= stack
    assert result.registers <= registers
    assert result.shared <= SHARED_MEMORY[capability]


def others_are_slow(launches):
    """Of a list of launches the first is compiled by every run of the tests."""
    first, *others = launches
    return [first, *(pytest.param(*each, marks=pytest.mark.slow) for each in others)]


# the exact reduction of large angles keeps 32 bytes of digits; nothing is spilled
@pytest.mark.parametrize(
    ("width", "capability"),
    others_are_slow([(64, 90), (32, 80), (64, 80), (64, 86), (128, 90)]),
)
@pytest.mark.parametrize("kernel", [lrpe.encode_kernel, lrpe.encode_backward_kernel])
def test_lrpe(kernel, width, capability):
    constants = {"PHI": "1+elu", "WIDTH": width, "BLOCK": lrpe.TILE // width}
    count = 4 if kernel is lrpe.encode_kernel else 6
    result = compiled(kernel, constants, "bf16", capability, strides=(STRIDES,) * count)
    check(result, capability, registers=136, stack=32)


@pytest.mark.parametrize("kernel", ["norm_kernel", "norm_backward_kernel"])
@pytest.mark.parametrize(
    ("width", "rows", "columns", "num_warps", "capability"),
    others_are_slow(
        [(512, 8, 512, 4, 80), (1000, 4, 1024, 4, 86), (8192, 1, 8192, 8, 90)]
    ),
)
def test_rms_norm(width, rows, columns, num_warps, capability, kernel):
    constants = {"WIDTH": width, "ROWS": rows, "COLUMNS": columns}
    kernel = getattr(rms_norm, kernel)
    count = 2 if kernel is rms_norm.norm_kernel else 3
    strides = (STRIDES[:2],) * count
    result = compiled(kernel, constants, "fp16", capability, num_warps, strides)
    check(result, capability, registers=104)


@pytest.mark.parametrize(("capability",), others_are_slow([(90,), (80,)]))
@pytest.mark.parametrize("kernel", ["gate_kernel", "gate_backward_kernel"])
def test_gated_silu(kernel, capability):
    constants = {"BLOCK": gated_silu.BLOCK}
    kernel = getattr(gated_silu, kernel)
    result = compiled(kernel, constants, "bf16", capability)
    check(result, capability, registers=104)
