"""What the kernels that work by rows need of each kind of GPU."""

import os

import pytest

if os.environ.get("TRITON_INTERPRET") == "1":
    pytest.skip("the interpreter compiles nothing", allow_module_level=True)
pytest.importorskip("triton")

from fairseq_transnormer.ops.kernels import (  # noqa: E402
    cross_entropy,
    gated_silu,
    lrpe,
    partial_sums,
    residual,
    rms_norm,
)

from .compilation import SHARED_MEMORY, STRIDES, compile_kernel  # noqa: E402

INTEGERS = {
    **dict.fromkeys(["tokens", "length", "heads", "heads_a_program"], "i32"),
    **dict.fromkeys(["positions_stride_b", "positions_stride_n"], "i32"),
    **dict.fromkeys(["count", "inner", "threshold"], "i32"),
    **dict.fromkeys(["rows", "other_rows", "stride", "other_stride"], "i32"),
    "seed": "i64",
}
FLOATS = {
    "eps": "fp32",
    "growth": "fp32",
    **dict.fromkeys(["theta", "reflection"], "*fp32"),
}
POINTERS = {
    "positions": "*i64",
    **dict.fromkeys(["scale", "partial", "other", "other_total"], "*fp32"),
    **dict.fromkeys(["partial_sums", "partial_grad_theta"], "*fp32"),
}


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


# the exact reduction of large angles keeps 32 bytes of digits; at width 32 one number
# more is spilled
@pytest.mark.parametrize(
    ("width", "capability"),
    others_are_slow([(64, 90), (32, 80), (64, 80), (64, 86), (128, 90)]),
)
@pytest.mark.parametrize("kernel", [lrpe.encode_kernel, lrpe.encode_backward_kernel])
def test_lrpe(kernel, width, capability):
    constants = {"PHI": "1+elu", "WIDTH": width, "BLOCK": lrpe.TILE // width}
    count = 4 if kernel is lrpe.encode_kernel else 6
    result = compiled(kernel, constants, "bf16", capability, strides=(STRIDES,) * count)
    check(result, capability, registers=136, stack=32 if width > 32 else 40)
    if kernel is lrpe.encode_kernel:
        # a load behind a store waits for it: they might be of the same memory
        ttgir = result.ttgir
        assert ttgir.rindex("tt.load") < ttgir.index("tt.store")


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


@pytest.mark.parametrize("kernel", ["residual_kernel", "residual_backward_kernel"])
@pytest.mark.parametrize(
    ("width", "rows", "columns", "num_warps", "capability"),
    others_are_slow(
        [(512, 8, 512, 4, 90), (1024, 4, 1024, 4, 80), (8192, 1, 8192, 8, 90)]
    ),
)
def test_residual(width, rows, columns, num_warps, capability, kernel):
    """With dropout, sum and norm; loads and stores of 16 bytes."""
    constants = {"WIDTH": width, "ROWS": rows, "COLUMNS": columns, "DROPS": True}
    kernel = getattr(residual, kernel)
    loads, stores = (2, 2) if kernel is residual.residual_kernel else (3, 2)
    strides = (STRIDES[:2],) * (loads + stores)
    result = compiled(kernel, constants, "bf16", capability, num_warps, strides)
    # Triton 3.6 takes 135
    check(result, capability, registers=136)
    wide = rows * columns // (32 * num_warps) // 8
    assert result.instructions["wide loads"] == loads * wide
    assert result.instructions["wide stores"] == stores * wide


@pytest.mark.parametrize(
    ("kernel", "capability", "width", "stride"),
    others_are_slow(
        [
            ("gate_kernel", 90, 1368, 2736),
            ("gate_kernel", 90, None, None),
            ("gate_kernel", 80, None, None),
            ("gate_backward_kernel", 90, None, None),
            ("gate_backward_kernel", 80, None, None),
        ]
    ),
)
def test_gated_silu(kernel, capability, width, stride):
    """A program is compiled twice: full, 16 bytes at a time, and masked."""
    constants = {"BLOCK": gated_silu.BLOCK}
    loads, stores = 3, 3
    if kernel == "gate_kernel":
        constants |= {"WIDTH": width, "STRIDE": stride}
        loads, stores = 2, 1
    result = compiled(getattr(gated_silu, kernel), constants, "bf16", capability)
    check(result, capability, registers=104)
    elements = gated_silu.BLOCK // (32 * gated_silu.NUM_WARPS)
    assert result.instructions["wide loads"] == loads * elements // 8
    assert result.instructions["wide stores"] == stores * elements // 8
    # those of the masked one
    assert result.instructions["narrow loads"] == loads * elements
    assert result.instructions["narrow stores"] == stores * elements


@pytest.mark.parametrize("capability", [90, pytest.param(80, marks=pytest.mark.slow)])
def test_gradient_of_halves(capability):
    """The last columns are masked by whole pieces of 16 bytes."""
    result = compiled(gated_silu.halves_backward_kernel, HALVES, "bf16", capability)
    check(result, capability, registers=128)
    elements = gated_silu.ROWS * gated_silu.COLUMNS // (32 * gated_silu.NUM_WARPS)
    assert result.instructions["wide loads"] == 3 * elements // 8
    assert result.instructions["wide stores"] == 3 * elements // 8
    assert result.instructions["narrow loads"] == 0


ROWS = {"WIDTH": 512, "ROWS": 8, "COLUMNS": 512}
LRPE = {"PHI": "1+elu", "WIDTH": 64, "BLOCK": lrpe.TILE // 64}
GATE = {"WIDTH": 1368, "STRIDE": 2736, "BLOCK": gated_silu.BLOCK}
HALVES = {
    "WIDTH": 1368,
    "ROWS": gated_silu.ROWS,
    "COLUMNS": gated_silu.COLUMNS,
    "ROWS_A_PROGRAM": gated_silu.ROWS_A_PROGRAM,
}
TOTAL = {"ROWS": partial_sums.ROWS, "COLUMNS": partial_sums.COLUMNS}
# kernel, constants, and how many tensors have strides, of how many dimensions
ALL = {
    "gate": (gated_silu.gate_kernel, GATE, 0, 0),
    "gate backward": (
        gated_silu.gate_backward_kernel,
        {"BLOCK": gated_silu.BLOCK},
        0,
        0,
    ),
    "gate of halves backward": (gated_silu.halves_backward_kernel, HALVES, 0, 0),
    "total": (partial_sums.total_kernel, TOTAL, 0, 0),
    "norm": (rms_norm.norm_kernel, ROWS, 2, 2),
    "norm backward": (rms_norm.norm_backward_kernel, ROWS, 3, 2),
    "residual": (residual.residual_kernel, ROWS | {"DROPS": True}, 4, 2),
    "residual backward": (
        residual.residual_backward_kernel,
        ROWS | {"DROPS": True},
        5,
        2,
    ),
    "lrpe": (lrpe.encode_kernel, LRPE, 4, 3),
    "lrpe backward": (lrpe.encode_backward_kernel, LRPE, 6, 3),
}


@pytest.mark.parametrize(
    ("name", "dtype", "capability"),
    others_are_slow(
        [
            (name, dtype, capability)
            for capability in (70, 75)
            for dtype in ("fp16", "fp32")
            for name in ALL
        ]
    ),
)
def test_volta_and_turing(name, dtype, capability):
    """No product of tiles, so that GPUs older than Ampere can run them."""
    kernel, constants, tensors, dimensions = ALL[name]
    strides = (STRIDES[:dimensions],) * tensors
    result = compiled(kernel, constants, dtype, capability, strides=strides)
    # the sums of float32 take what there is: two programs fit on a multiprocessor
    registers = 255 if (name, dtype) == ("lrpe backward", "fp32") else 168
    check(result, capability, registers, stack=64)
    assert result.instructions["wide loads"] > 0


@pytest.mark.parametrize(("capability",), others_are_slow([(90,), (80,), (70,)]))
def test_cross_entropy(capability):
    """Whole tiles 16 bytes at a time, what is left one by one."""
    tile, warps = cross_entropy.TILE, cross_entropy.WARPS
    types = {"logits": "*fp16", "targets": "*i64", "losses": "*fp32", "scale": "fp32"}
    integers = dict.fromkeys(["vocabulary", "row_stride", "ignore_index"], "i32")
    result = compile_kernel(
        cross_entropy.cross_entropy_kernel,
        types | integers,
        {"TILE": tile, "WITH_GRADIENT": True},
        capability=capability,
        num_warps=warps,
        num_stages=3,
    )
    check(result, capability, registers=64)
    elements = tile // (32 * warps)
    assert result.instructions["wide loads"] == 2 * elements // 8
    assert result.instructions["wide stores"] == elements // 8
